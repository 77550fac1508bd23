"""Several products on one command line, products larger than memory, and names of data types."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import RunGpusim, refused

import gpusim
from gpusim.cli import run_cli
from gpusim.evidence.measured import read_measured
from gpusim.experiment.loading import load_experiment
from gpusim.numbers.formats import Dtype, dtype_named
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.report.formatting import interval_text
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run ``gpusim gemm`` in this process: status, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = run_cli(["gemm", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def cases_of(answer: tuple[int, str, str]) -> list[dict[str, Any]]:
    status, out, err = answer
    assert (status, err) == (0, "")
    cases = json.loads(out)
    assert isinstance(cases, list)
    return cases


def test_every_gpu_that_is_named_answers(ask: Ask) -> None:
    shape = ("-m", "512", "-n", "512", "-k", "512")
    cases = cases_of(ask("--arch", "A100-SXM4-80GB", "--arch", "T4", *shape, "--format", "json"))
    assert [case["arch"] for case in cases] == ["A100-SXM4-80GB", "T4"]
    alone = json.loads(ask("--arch", "T4", *shape, "--format", "json")[1])
    assert alone == cases[1]


def test_a_product_that_is_added_to_c_takes_longer(ask: Ask) -> None:
    shape = ("-m", "2048", "-n", "2048", "-k", "64", "--arch", "t4", "--format", "json")
    new, added, scaled = (json.loads(ask(*shape, "--beta", beta)[1]) for beta in ("0", "1", "0.5"))
    assert added["kernel_time_us"] > 1.1 * new["kernel_time_us"]
    assert scaled["kernel_time_us"] == added["kernel_time_us"]
    assert added["kernel"] == new["kernel"]


def test_lists_and_ranges_of_sizes_ask_for_every_combination(ask: Ask) -> None:
    sizes = ("-m", "1,16", "-n", "128:384:128", "-k", "64")
    cases = cases_of(ask("--arch", "t4", *sizes, "--detail", "bound", "--format", "json"))
    asked = [(case["m"], case["n"], case["k"]) for case in cases]
    assert asked == [(m, n, 64) for m in (1, 16) for n in (128, 256, 384)]


def test_a_comparison_has_a_line_for_each_case_and_the_speedup_over_the_first_gpu(ask: Ask) -> None:
    gpus = ("--arch", "v100-sxm2-16gb", "--arch", "a100-sxm4-40gb")
    _, out, _ = ask(*gpus, "-m", "2048,4096", "-n", "2048", "-k", "2048", "--load", "burst")
    title, header, *lines = out.splitlines()
    assert title.endswith("speedup over V100-SXM2-16GB")
    assert header.split()[-6:] == ["speedup", "TFLOP/s", "%", "peak", "bottleneck", "kernel"]
    assert [line.split()[0] for line in lines] == ["V100-SXM2-16GB", "A100-SXM4-40GB"] * 2
    found = re.search(r" (\d\.\d\d) \((\d\.\d\d) to (\d\.\d\d)\) ", lines[1])
    assert found is not None
    low, a100, high = (float(found[number]) for number in (2, 1, 3))
    assert 1.0 < low < a100 < high < 4.0


def test_a_comparison_states_the_interval_of_each_case(ask: Ask) -> None:
    question = ("--arch", "t4", "-m", "16,64", "-n", "512", "-k", "512")
    _, out, _ = ask(*question)
    _, header, *lines = out.splitlines()
    assert "8 in 10 runs" in header
    for line, m in zip(lines, (16, 64), strict=True):
        alone = gpusim.predict("t4", m=m, n=512, k=512)
        interval = interval_text(alone.timing.time_us_p10, alone.timing.time_us_p90, alone.timing.evidence)
        assert interval in line
    _, out, _ = ask(*question, "--detail", "bound")
    assert "8 in 10 runs" not in out


def test_set_and_explain_apply_to_every_case(ask: Ask) -> None:
    two = ("--arch", "v100-sxm2-16gb", "--arch", "t4", "-m", "256", "-n", "256", "-k", "256")
    cases = cases_of(ask(*two, "--set", "sm.count=20", "--format", "json"))
    assert [case["sm_count"] for case in cases] == [20, 20]
    _, out, _ = ask(*two, "--explain")
    assert out.count("Kernels of 256x256x256 on ") == 2


def test_a_product_that_does_not_fit_ends_with_status_1_unless_it_is_meant(ask: Ask) -> None:
    question = ("--arch", "t4", "-m", "400000", "-n", "400000", "-k", "400000", "--detail", "bound", "--format", "json")
    status, out, err = ask(*question)
    assert (status, json.loads(out)["fits"]) == (1, False)
    assert err == "gpusim: the GEMM would not fit into the GPU's memory; --allow-oom accepts that\n"
    status, out, err = ask(*question, "--allow-oom")
    assert (status, err) == (0, "")
    assert json.loads(out)["notes"]
    _, out, _ = ask("--arch", "t4", "-m", "512,400000", *question[4:-2], "--allow-oom")
    assert out.count(" 400000x400000x400000  A, B and C do not fit into device memory") == 1


def test_an_experiment_says_how_many_products_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "title: Large\ngpus: [T4]\ndtypes: [fp16]\ndetail: bound\ngemms: [{square: [512, 400000]}]\n"
    Path("large.yaml").write_text(text, encoding="utf-8")
    assert run_cli(["run", "large.yaml", "-o", "out"]) == 0
    said = "gpusim: 1 of 2 GEMMs would not fit into the GPU's memory; see the column 'fits'"
    assert said in capsys.readouterr().err.splitlines()
    with Path("out/results.csv").open(encoding="utf-8", newline="") as lines:
        assert [row["fits"] for row in csv.DictReader(lines)] == ["True", "False"]


def test_help_has_a_short_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["gemm"], ["archs", "list"]):
        assert run_cli([*command, "-h"]) == 0
        assert "Usage: gpusim" in capsys.readouterr().out


def test_a_shell_completes_gpus_and_data_types(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, expected in (
        ("gpusim gemm --arch v100-p", {"v100-pCIe-16GB", "v100-pCIe-32GB"}),
        ("gpusim gemm --dtype f", {"fp64", "fp32", "fp16", "fp8"}),
    ):
        monkeypatch.setenv("_GPUSIM_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        with pytest.raises(SystemExit) as ended:
            _ = run_cli([])
        assert ended.value.code == 0
        assert set(capsys.readouterr().out.split()) == expected


# Names of data types

OTHER_NAMES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "torch.float16": "fp16",
    "FP16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "double": "fp64",
}


@pytest.mark.parametrize(("name", "dtype"), OTHER_NAMES.items())
def test_a_data_type_goes_by_the_names_of_frameworks_wherever_one_is_read(
    ask: Ask, tmp_path: Path, name: str, dtype: str
) -> None:
    question = ("--arch", "a100-sxm4-40gb", "-m", "64", "-n", "64", "-k", "64", "--detail", "bound")
    assert json.loads(ask(*question, "--dtype", name, "--format", "json")[1])["dtype"] == dtype
    experiment = tmp_path / "one.yaml"
    experiment.write_text(f"title: One\ngpus: [A100-SXM4-40GB]\ndtypes: [{name}]\ngemms: [{{square: 64}}]\n")
    assert [case.case.workload.operator.dtype for case in load_experiment(str(experiment)).cases()] == [Dtype(dtype)]
    table = tmp_path / "runs.csv"
    table.write_text(
        "gpu,op,batch,m,n,k,dtype,acc_dtype,layout,sparsity,time_us,method,l2,kernel,source\n"
        f"t4,linear,1,64,64,64,{name},,tn,dense,10,graph,warm,,made up\n"
    )
    assert [row.dtype for row in read_measured(table)] == [Dtype(dtype)]


def test_accumulators_and_results_go_by_those_names_too() -> None:
    gemm = Gemm(64, 64, 64, Dtype.FP16, accumulate="half", output="float32")
    assert (gemm.accumulate, gemm.output) == ("fp16", "fp32")


# The same from Python

T4 = load_spec("t4").gpu


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"detail": "sampeld"}, "detail: 'sampeld' is not one of 'bound', 'estimate', 'sampled', 'full'"),
        ({"l2": "hot"}, "l2: 'hot' is not one of 'cold', 'warm'"),
        ({"unit": "gpu"}, "unit: 'gpu' is not one of 'cuda', 'tensor'"),
        (
            {"operands": "zero"},
            "operands: 'zero' is not one of 'random', 'positive', 'one_zero', 'zeros'; did you mean 'zeros'?",
        ),
        ({"load": "brust"}, "load brust: expected sustained, burst, flushed or a number of calls back to back"),
        ({"load": "0"}, "load 0: expected"),
    ],
)
def test_options_that_are_none_are_refused_in_the_words_of_the_command_line(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        _ = Options(**wrong)


def test_a_data_type_may_be_its_name_and_a_wrong_one_is_refused_with_the_nearest() -> None:
    named: Any = "bfloat16"
    assert Gemm(64, 64, 64, named) == Gemm(64, 64, 64, Dtype.BF16)
    with pytest.raises(ValueError, match="unknown data type 'bf61'; nearest: bf16"):
        _ = dtype_named("bf61")


def test_sizes_that_are_not_whole_numbers_are_refused() -> None:
    wrong: Any = 64.0
    with pytest.raises(ValueError, match=r"m: expected a positive integer, got 64\.0"):
        _ = Gemm(wrong, 64, 64, Dtype.FP16)


def test_a_gpu_by_name_is_refused_with_what_loads_it() -> None:
    name: Any = "t4"
    with pytest.raises(TypeError, match=r"expected a System, such as load_spec\('t4'\).system, got 't4'"):
        _ = predict(name, Gemm(64, 64, 64, Dtype.FP16))


def test_operands_of_two_types_are_refused_with_the_reason() -> None:
    with pytest.raises(
        UnsupportedError, match=r"no fp16 by int8 multiplication .* the kernel catalogues of this GPU hold"
    ):
        _ = predict(load_spec("t4").system, Gemm(64, 64, 64, Dtype.FP16, b_dtype=Dtype.INT8))


def test_a_grid_prints_the_same_however_many_processes_work(command: RunGpusim) -> None:
    sizes = ("-m", "64:1280:64", "-n", "256", "-k", "128", "--detail", "bound", "--format", "json")
    one, two = (command("gemm", "--arch", "t4", "--arch", "v100-sxm2-16gb", *sizes, "--jobs", jobs) for jobs in "12")
    assert (one.returncode, one.stderr) == (0, "")
    assert len(json.loads(one.stdout)) == 40
    assert two.stdout == one.stdout


def test_a_grid_with_a_case_that_a_gpu_cannot_run_is_one_line(command: RunGpusim) -> None:
    grid = ("-m", "64:1280:64", "-n", "256", "-k", "128", "--dtype", "bf16", "--detail", "bound", "--jobs", "2")
    assert "T4 (compute capability 7.5) has no bf16" in refused(
        command("gemm", "--arch", "a100-sxm4-80gb", "--arch", "t4", *grid)
    )


PRODUCT = ("-m", "16", "-n", "256", "-k", "64", "--detail", "bound")


def test_lists_of_spec_values_are_a_table_with_a_column_for_each(command: RunGpusim) -> None:
    lists = ("--set", "l2.capacity_mib=1x,6", "--set", "sm.count=[20, 40]")
    done = command("gemm", "--arch", "t4", *PRODUCT, *lists)
    assert (done.returncode, done.stderr) == (0, "")
    title, headings, *lines = done.stdout.splitlines()
    assert title.endswith("speedup over the first")
    assert headings.split("  ")[:5] == ["GPU", "L2 capacity [MiB]", "SM count", "m x n x k", ""]
    assert [tuple(line.split()[:3]) for line in lines] == [
        ("T4", "4", "20"),
        ("T4", "4", "40"),
        ("T4", "6", "20"),
        ("T4", "6", "40"),
    ]


def test_objects_of_several_spec_values_have_their_key_paths(command: RunGpusim) -> None:
    several = ("gemm", "--arch", "t4", "--arch", "a10", *PRODUCT, "--format", "json", "--set")
    objects = json.loads(command(*several, "dram.peak_bandwidth_gb_per_s=1x,2x").stdout)
    assert [(one["arch"], one["dram.peak_bandwidth_gb_per_s"]) for one in objects] == [
        ("T4", 320.0),
        ("T4", 640.0),
        ("A10", 600.0),
        ("A10", 1200.0),
    ]


def test_one_value_is_one_object_and_a_multiple_the_number_it_stands_for(command: RunGpusim) -> None:
    one, other = (
        json.loads(command("gemm", "--arch", "t4", *PRODUCT, "--format", "json", "--set", f"sm.count={value}").stdout)
        for value in ("0.5x", "20")
    )
    assert one == other
    assert "sm.count" not in one
    assert one["overrides"] == {"sm.count": 20}
    title = command("gemm", "--arch", "t4", *PRODUCT, "--set", "sm.count=20").stdout.splitlines()[0]
    assert " on T4 (sm.count=20) " in title


def test_a_list_of_spec_values_with_a_wrong_one_is_refused(command: RunGpusim) -> None:
    assert "'2MiB': its unit is that of the key" in refused(
        command("gemm", "--arch", "t4", *PRODUCT, "--set", "l2.capacity_mib=1x,2MiB")
    )


# Kernels ----------------------------------------------------------------------------------------

SQUARE = ("--arch", "a100-sxm4-80gb", "-m", "2048", "-n", "2048", "-k", "2048", "--format", "json")


def test_a_kernel_of_ones_own_is_given_by_options(ask: Ask) -> None:
    status, out, err = ask(*SQUARE, "--tile", "128x64x32", "--warps", "2x2x1", "--stages", "4", "--swizzle", "4")
    assert (status, err) == (0, "")
    own = json.loads(out)
    assert own["kernel"] == "own_hmma_16816_f32_128x64x32_2x2_stages4_tn"
    assert (own["threads"], own["split_k"], own["evidence"]) == (128, 1, "extrapolated")
    assert own["grid"] == [16, 32, 1]
    split = json.loads(ask(*SQUARE, "--tile", "128x64x32", "--split-k", "2")[1])
    assert (split["split_k"], split["grid"]) == (2, [16, 32, 2])


def test_what_differs_in_nothing_is_the_librarys_kernel(ask: Ask) -> None:
    shipped, same = json.loads(ask(*SQUARE)[1]), json.loads(ask(*SQUARE, "--split-k", "1")[1])
    assert (same["cycles"], same["split_k"]) == (shipped["cycles"], shipped["split_k"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--tile", "128x64"), "--tile 128x64: expected MxNxK"),
        (("--tile", "96x64x32", "--warps", "5x1x1"), "do not divide the tile [96, 64, 32] evenly"),
        (("--tile", "512x256x32"), "registers a thread, more than 255; use more warps or a smaller tile"),
        (("--stages", "1"), "no such kernel: a ring of 1 stage in shared memory"),
        (("--stages", "30"), "does not fit"),
    ],
)
def test_a_kernel_that_cannot_be_is_refused(options: tuple[str, ...], problem: str, command: RunGpusim) -> None:
    assert problem in refused(command("gemm", *SQUARE, *options))


def test_a_model_has_no_kernel_of_ones_own(command: RunGpusim) -> None:
    assert "not of a model" in refused(command("explain", "resnet50", "--arch", "t4", "--stages", "2"))


def test_the_kernels_of_a_library_are_listed(command: RunGpusim) -> None:
    listed = json.loads(command("kernels", "list", "--arch", "t4", "--dtype", "fp16", "--format", "json").stdout)
    assert (listed["arch"], listed["library"]) == ("T4", "turing_fitted")
    by_name = {row["kernel"]: row for row in listed["kernels"]}
    one = by_name["turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn"]
    assert (one["tile"], one["threads"], one["for"]) == ([256, 128, 64], 256, "gemm")
    assert all("fp16" in row["dtypes"] and row["source"] for row in listed["kernels"])
    assert {row["for"] for row in listed["kernels"]} >= {"gemm", "convolution", "rows and elements"}
    older = command("kernels", "list", "--arch", "h200", "--dtype", "bf16", "--cuda", "12.4", "--format", "json").stdout
    assert json.loads(older)["library"] == "hopper_cuda_12_5"
    table = command("kernels", "list", "--arch", "t4", "--dtype", "fp32").stdout
    assert table.startswith("Kernels of turing_fitted, as T4 runs them\n")
    assert "volta_sgemm_128x64_tn" in table
    assert "no kernel for this type" in refused(command("kernels", "list", "--arch", "t4", "--dtype", "fp8"))
