"""``gpusim model``: a step of a whole model, and ``gpusim validate`` on tables of whole models."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from gpusim.cli import run_cli
from gpusim.cli.model_options import FrameworkOptions, SharingOptions, WorkOptions, model_workload
from gpusim.errors import InputError
from gpusim.evidence.end_to_end import read_steps
from gpusim.evidence.fields import MeasuredError
from gpusim.execution.cases import Case, CaseResult
from gpusim.execution.models import GenerationWorkload, ModelWorkload
from gpusim.execution.sweep import predict_one
from gpusim.files.outputs import write_csv
from gpusim.models.policy import Policy
from gpusim.specs import load_spec
from gpusim.studies.validation.end_to_end import (
    MODELS,
    SCRIPTS,
    WHOLE_MODELS,
    KnownModel,
    validate_steps,
    workload_of,
)
from gpusim.studies.validation.kinds import kind_of
from gpusim.studies.validation.session import OPERATORS

CONTRACT = {
    *("model", "arch", "mode", "precision", "batch", "gpus", "step_ms", "throughput", "unit", "memory_gib", "fits"),
    *("tensor_active_pct", "flops", "parameters", "operators"),
}
OPERATOR = {"name", "op", "count", "time_us", "share", "bottleneck", "kernel"}
HEADER = "id,gpu,gpus,model,container,mode,precision,seq_len,image_size,batch_per_gpu,accumulation_steps,value,unit\n"


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run_cli(["model", *arguments, "--jobs", "1", "--no-cache"])
    done = capsys.readouterr()
    return status, done.out, done.err


def test_json_holds_what_the_contract_states(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("bert_base", "--arch", "t4", "--mode", "inference", "--batch", "2", "--seq-len", "128")
    status, out, _ = command(capsys, *asked, "--format", "json")
    found = json.loads(out)
    assert status == 0
    assert found.keys() >= CONTRACT
    assert all(one.keys() >= OPERATOR for one in found["operators"])
    assert (found["batch"], found["unit"], found["gpus"]) == (2, "seq/s", 1)
    assert found["throughput"] == pytest.approx(2000 / found["step_ms"])
    assert sum(one["share"] for one in found["operators"]) + found["idle_pct"] / 100 == pytest.approx(1)
    assert sum(found["bottlenecks"].values()) == pytest.approx(1)


def test_any_size_of_a_model_is_stated_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("bert_base", "--arch", "t4", "--mode", "inference", "--batch", "2", "--format", "json")
    times = []
    for named in (("--seq-len", "64"), ("--size", "seq_len=64")):
        status, out, err = command(capsys, *asked, *named)
        assert status == 0, err
        times.append(json.loads(out)["step_ms"])
    assert times[0] == times[1]


def test_training_is_a_word_for_train() -> None:
    modes: tuple[Literal["train", "training"], ...] = ("train", "training")
    policies = [
        model_workload("bert_base", "fp32", WorkOptions(mode=mode), FrameworkOptions(), SharingOptions()).policy
        for mode in modes
    ]
    assert policies[0] == policies[1] == Policy(mode="train")


def test_steps_name_the_values_that_were_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("bert_base", "--mode", "inference", "--batch", "1", "--seq-len", "16")
    asked = (*small, "--arch", "t4", "--set", "sm.count=20")
    _, out, _ = command(capsys, *asked, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["arch"], json.loads(row["overrides"]), "operators" in row) == ("T4", {"sm.count": 20}, False)
    assert command(capsys, *asked)[1].startswith("bert_base, inference in fp32 on T4 (sm.count=20): ")
    several = json.loads(command(capsys, *asked, "--precision", "fp16", "--precision", "fp32", "--format", "json")[1])
    assert [one["precision"] for one in several] == ["fp16", "fp32"]


def test_the_precision_of_the_model_file_holds_unless_the_user_says_another(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    head = "title: small\nsource: none\nitem: seq\noptimizer: adam\nprecision: fp16\nsizes: {batch: 8}\n"
    path = tmp_path / "small.yaml"
    path.write_text(f"{head}inputs: {{x: [batch, 64]}}\nlayers: [{{op: linear, features: 64}}]\n")
    asked = (str(path), "--arch", "t4", "--mode", "inference", "--format", "json")
    for more, precision in (((), "fp16"), (("--precision", "fp32"), "fp32")):
        found = json.loads(command(capsys, *asked, *more)[1])
        assert found["precision"] == precision


def test_fusion_states_the_bytes_that_it_saves(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("bert_base", "--arch", "t4", "--mode", "inference", "--batch", "2", "--seq-len", "128")
    plain = json.loads(command(capsys, *asked, "--format", "json")[1])
    fused = json.loads(command(capsys, *asked, "--fusion", "elementwise", "--format", "json")[1])
    # at least two sums before layer norms in each of 12 layers, written and read, of 2 x 128 x 768 numbers
    assert plain["fusion_saves_gib"] == 0
    assert 12 * 2 * 2 * 2 * 128 * 768 * 4 / 2**30 < fused["fusion_saves_gib"] < 0.5
    assert f"saves {fused['fusion_saves_gib']:.3g} GiB" in command(capsys, *asked, "--fusion", "elementwise")[1]


def test_several_gpus_and_precisions_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    asked = (
        "bert_base",
        "--mode",
        "inference",
        "--batch",
        "4",
        "--seq-len",
        "128",
        "--arch",
        "t4",
        "--arch",
        "v100-sxm2-16gb",
    )
    status, out, _ = command(capsys, *asked, "--precision", "fp32", "--precision", "amp-fp16")
    heading, *rows = [re.split(r" {2,}", line) for line in out.splitlines()[1:]]
    assert status == 0
    assert [row[:2] for row in rows] == [
        ["T4", "fp32"], ["V100-SXM2-16GB", "fp32"], ["T4", "amp-fp16"], ["V100-SXM2-16GB", "amp-fp16"]
    ]  # fmt: skip
    last = dict(zip(heading, rows[-1], strict=True))
    low, high = (float(end.removesuffix(" ms")) for end in last["8 in 10 runs"].split(" to "))
    assert low < float(last["step"].removesuffix(" ms")) < high
    assert float(last["speedup"]) > 1


def test_set_replaces_values_of_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    boards = ("--arch", "t4", "--arch", "v100-pcie-16gb")
    asked = ("bert_base", *boards, "--mode", "inference", "--precision", "fp16", "--seq-len", "512")

    def step_ms(*more: str) -> list[float]:
        _, out, _ = command(capsys, *asked, "--batch", "8", "--jobs", "1", "--format", "json", *more)
        return [float(step["step_ms"]) for step in json.loads(out)]

    as_shipped, halved = step_ms(), step_ms("--set", "dram.peak_bandwidth_gb_per_s=0.25x")
    assert all(slow > 1.5 * fast for fast, slow in zip(as_shipped, halved, strict=True))


def test_small_batches_are_bound_by_the_host_and_a_graph_frees_them(capsys: pytest.CaptureFixture[str]) -> None:
    def step_ms(*more: str) -> float:
        asked = ("bert_base", "--arch", "a100-sxm4-80gb", "--mode", "inference", "--seq-len", "64", "--format", "json")
        _, out, _ = command(capsys, *asked, "--precision", "amp-fp16", *more)
        return float(json.loads(out)["step_ms"])

    one, two, four = (step_ms("--batch", batch) for batch in ("1", "2", "4"))
    assert one < two  # products take the heads of one sequence as they lie, without calls that copy them
    assert four == pytest.approx(two, rel=0.02)
    assert step_ms("--batch", "1", "--graphs") < one / 2
    assert step_ms("--batch", "1", "--container", "pytorch-22.10-py3") < one  # the host of a DGX A100


def test_the_table_of_a_step_states_its_interval_and_what_limits_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("bert_base", "--arch", "t4", "--mode", "inference", "--batch", "1", "--seq-len", "32", "--precision")
    _, out, _ = command(capsys, *asked, "bf16")
    rows = {name: text.strip() for name, text in (line.split("  ", 1) for line in out.splitlines() if "  " in line)}
    assert re.fullmatch(r"\d\.\d+ ms to \d+\.\d+ ms", rows["8 in 10 runs"])
    assert re.fullmatch(
        r"the GPU waits for the host for \d+ % of the step; as a CUDA graph .* a step", rows["host-bound"]
    )
    assert "no Tensor Cores: they do not multiply bf16 here" in rows["rate"]
    assert sum(int(share.split()[1]) for share in rows["phases"].strip().split(", ")) == pytest.approx(100, abs=2)
    _, out, _ = command(capsys, *asked, "fp16")
    assert "Tensor Cores active" in out


def test_a_timeline_has_every_kernel_of_the_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "step.json"
    asked = ("bert_base", "--arch", "t4", "--mode", "inference", "--batch", "1", "--seq-len", "64")
    status, table, said = command(capsys, *asked, "--timeline", str(out))
    kernels = [event for event in json.loads(out.read_text())["traceEvents"] if event["ph"] == "X"]
    assert status == 0
    assert f"{len(kernels)} kernels" in table
    assert "ui.perfetto.dev" in said


def test_generating_tells_prompt_and_tokens_apart(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("gpt2_large", "--arch", "t4", "--mode", "inference", "--batch", "1", "--seq-len", "64", "--generate", "16")
    status, out, _ = command(capsys, *asked, "--precision", "fp16", "--format", "json")
    found = json.loads(out)
    assert status == 0
    assert found["total_ms"] == pytest.approx(found["prompt_ms"] + 15 * found["token_ms"])
    assert found["tokens_per_s"] == pytest.approx(16e3 / found["total_ms"])
    assert command(capsys, *asked)[1].startswith("gpt2_large: batch 1, 64 tokens, then 16 generated")


def test_what_does_not_fit_has_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = command(capsys, "bert_large", "--arch", "t4", "--mode", "inference", "--batch", "4096")
    assert status == 1
    assert "does not fit into the memory of T4" in said


ASKED_IN_VAIN = [
    (("bert_large", "--arch", "v100-sxm2-16gb", "--batch", "32"), "V100-SXM2-16GB"),
    (
        ("bert_large", "--arch", "v100-sxm2-16gb", "--batch", "32", "--gpus", "8", "--precision", "amp-fp16"),
        "each of 8 V100-SXM2-16GB",
    ),
    (
        ("bert_large", "--arch", "v100-sxm2-16gb", "--batch", "512", "--gpus", "8", "--parallel", "tensor"),
        "each of 8 V100-SXM2-16GB",
    ),
    (
        ("bert_large", "--arch", "v100-sxm2-16gb", "--batch", "64", "--gpus", "4", "--parallel", "pipeline"),
        "the fullest of 4 V100-SXM2-16GB",
    ),
    (
        ("gpt2_large", "--arch", "t4", "--mode", "inference", "--batch", "256", "--seq-len", "512", "--generate", "8"),
        "T4",
    ),
    (
        ("gnmt_v2_beam_search", "--arch", "t4", "--mode", "inference", "--batch", "8192", "--beam", "16"),
        "T4",
    ),
]


@pytest.mark.parametrize(("asked", "where"), ASKED_IN_VAIN)
def test_what_does_not_fit_is_said_before_anything_is_predicted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], where: str
) -> None:
    def predicted(*_: object) -> None:
        raise InputError("the prediction begins")

    monkeypatch.setattr("gpusim.execution.sweep.predict_all", predicted)
    status, out, said = command(capsys, *asked)
    before, begun = said.splitlines()
    assert (status, out, begun) == (2, "", "gpusim: the prediction begins")
    found = re.fullmatch(rf"gpusim: {asked[0]} in [a-z0-9-]+ needs ([0-9.]+) GiB of ([0-9.]+) GiB on {where}", before)
    assert found is not None, before
    assert float(found[1]) > float(found[2])
    assert found[2] == ("14.75" if where == "T4" else "15.76")


def test_each_case_that_does_not_fit_is_named_and_others_are_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusim.execution.sweep.predict_all", lambda *_: [CaseResult(None, "stopped", 0.0)])
    asked = ("bert_large", "--arch", "t4", "--arch", "a100-sxm4-80gb", "--precision", "fp32", "--precision", "amp-fp16")
    _, _, said = command(capsys, *asked, "--batch", "24", "--seq-len", "512")
    lines = [line.split(" needs ")[0] + line[-6:] for line in said.splitlines()[:-1]]
    assert lines == ["gpusim: bert_large in fp32 on T4", "gpusim: bert_large in amp-fp16 on T4"]
    replaced = command(capsys, *asked, "--set", "dram.capacity_gb=4x", "--batch", "24", "--seq-len", "512")[2]
    assert replaced == "gpusim: stopped\n"


SMALL_BERT = ModelWorkload("bert_base", sizes={"batch": 2, "seq_len": 64})


@pytest.mark.parametrize(
    ("gpu", "step"),
    [
        ("t4", SMALL_BERT),
        ("v100-sxm2-16gb", replace(SMALL_BERT, gpus=4)),
        ("v100-sxm2-16gb", replace(SMALL_BERT, gpus=4, parallel="tensor")),
        ("v100-sxm2-16gb", replace(SMALL_BERT, gpus=4, parallel="pipeline")),
    ],
)
def test_the_memory_said_before_a_prediction_is_that_of_the_prediction(gpu: str, step: ModelWorkload) -> None:
    system = load_spec(gpu).system
    said, result = step.footprint(system), predict_one(Case(system, step))
    assert (said.needed_gib, said.fits) == (result.memory_gib, result.fits)


def test_the_memory_said_before_a_text_is_generated_is_that_of_its_last_token() -> None:
    prompt = ModelWorkload("gpt2_large", Policy(mode="inference"), sizes={"batch": 1, "seq_len": 64})
    system, text = load_spec("t4").system, GenerationWorkload(prompt, 8)
    said, last = text.footprint(system), predict_one(Case(system, text)).tokens[-1]
    assert (said.needed_gib, said.fits) == (last.memory_gib, last.fits)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("bert_larg", "--arch", "t4"), "bert_large"),
        (("bert_large", "--arch", "t5"), "t5"),
        (("bert_large", "--arch", "t4", "--image-size", "224"), "image_size"),
        (("bert_large", "--arch", "t4", "--precision", "fp9"), "precision: expected one of fp32"),
        (("bert_large", "--arch", "t4", "--precision", "int8"), "int8 is for inference"),
        (("bert_large", "--arch", "t4", "--precision", "tf32"), "tf32 on T4: TF32 needs compute capability 8.0"),
        (
            ("resnet50", "--arch", "a100-sxm4-40gb", "--precision", "tf32", "--version", "1.6"),
            "PyTorch before 1.7 has no TF32; choose fp32",
        ),
        (("bert_large", "--arch", "t4", "--set", "dram.peak"), "--set dram.peak: expected KEY.PATH=VALUE"),
        (
            ("bert_large", "--arch", "t4", "--set", "sm.cout=20"),
            "override: sm.cout: no such value; did you mean sm.count",
        ),
        (("bert_large", "--arch", "t4", "--seq-len", "513"), "size seq_len: at most 512 (positions), got 513"),
        (
            ("gpt2_large", "--arch", "t4", "--mode", "inference", "--seq-len", "1000", "--generate", "26"),
            "size seq_len: at most 1024 (positions), got 1025",
        ),
        (("bert_large", "--arch", "t4", "--arch", "v100", "--timeline", "x.json"), "--timeline: shows one step"),
        (("bert_large", "--arch", "t4", "--timeline", "no/x.json"), "--timeline no/x.json: no folder no"),
        (("gnmt_v2_greedy", "--arch", "t4", "--mode", "inference", "--timeline", "x.json"), "a text takes many"),
        (("gnmt_v2_greedy", "--arch", "t4"), "run it in inference"),
        (("gpt2_large", "--arch", "t4", "--generate", "8"), "give --mode inference"),
        (("gpt2_large", "--arch", "t4", "--mode", "inference", "--accumulation", "8"), "give --batch"),
        (("bert_large", "--arch", "t4", "--gpus", "8"), "t4: no node comes with this GPU; name one to put it into: "),
        (("bert_large", "--arch", "t4", "--node", "dgx-1v"), "give --gpus, too"),
        (("bert_large", "--arch", "t4", "--parallel", "tensor"), "give --gpus, too"),
        (
            ("bert_large", "--arch", "t4", "--version", "new"),
            "version: expected one of PyTorch, such as 2.1, got 'new'",
        ),
        (("bert_large", "--arch", "t4", "--container", "cuda"), "known of 'cuda'; name a container of NVIDIA's"),
        (
            ("bert_large", "--arch", "t4", "--container", "pytorch-21.07-py3"),
            "no version of PyTorch is known of 'pytorch-21.07-py3'; the nearest are those of 21.05 and 21.09",
        ),
        (("bert_large", "--arch", "t4", "--batch", "2", "--size", "batch=2"), "--size batch: is stated by --batch too"),
        (("bert_large", "--arch", "t4", "--size", "wheels=2"), "has no size 'wheels'"),
        (("bert_large", "--arch", "t4", "--batch", "9" * 30), "--batch: more than 64 bits hold"),
        (("bert_large", "--arch", "t4", "--batch", "9" * 17), "its result has more elements than 64 bits count"),
        (("bert_large", "--arch", "t4", "--mode", "inference", "--generate", "8"), "attends to later tokens"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], says: str) -> None:
    status, out, said = command(capsys, *asked)
    assert (status, out, said.count("\n")) == (2, "", 1)
    assert says in said


def _table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def test_tables_of_whole_models_are_known_by_their_header(tmp_path: Path) -> None:
    other = tmp_path / "rows.csv"
    other.write_text("gpu,op,batch,m,n,k\n")
    assert kind_of(_table(tmp_path)) is WHOLE_MODELS
    assert kind_of(other) is OPERATORS


def test_jpeg_classifiers_on_eight_gpus_in_half_precision_count_as_input_bound(tmp_path: Path) -> None:
    rows = read_steps(
        _table(
            tmp_path,
            "a,a100-sxm4-80gb,8,resnet50v1.5,,train,amp-fp16,,224,256,,16621,img/s",
            "b,a100-sxm4-80gb,1,resnet50v1.5,,train,amp-fp16,,224,256,,2470,img/s",
            "c,a100-sxm4-80gb,8,resnet50v1.5,,train,tf32,,224,256,,7248,img/s",
            "d,a100-sxm4-80gb,8,bert-large-pretrain,,train,amp-fp16,128,,256,32,4640,seq/s",
        )
    )
    assert [row.input_bound for row in rows] == [True, False, False, False]


def test_a_wrong_value_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(MeasuredError, match=r"steps.csv:2: unit: unknown 'imgs'"):
        read_steps(_table(tmp_path, "a,t4,1,resnet50v1.5,,inference,fp32,,224,64,,100,imgs"))


def test_rows_that_are_not_predicted_are_counted_with_their_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = _table(
        tmp_path,
        "a,v100-pcie-32gb,1,bert_large,pytorch-2.1-cu121,inference,fp32,512,,8,,257.422,ms/step",
        "b,v100-pcie-32gb,8,bert_large,pytorch-2.1-cu121,inference,fp32,512,,8,,257.422,ms/step",
        "c,v100-pcie-32gb,1,alexnet,pytorch-2.1-cu121,inference,fp32,,,8,,2.4,ms/step",
    )
    status = run_cli(["validate", str(path), "--jobs", "1", "--no-cache", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert status == 1
    assert found["overall"]["predicted"] == 1
    assert found["overall"]["skip_reasons"] == {
        "V100-PCIe-host-memory: has 4 GPUs, 8 asked for; ask for fewer or for another node": 1,
        "model 'alexnet' is not known": 1,
    }
    assert abs(found["rows"][0]["error_pct"]) < 10


STEP = {
    "id": "a",
    "gpu": "a100-sxm4-80gb",
    "gpus": "4",
    "model": "bert_large",
    "container": "pytorch-22.09-py3",
    "mode": "training",
    "precision": "fp32",
    "batch_per_gpu": "96.0",
    "value": "100",
    "unit": "ms/step",
}


def _steps(tmp_path: Path, *rows: dict[str, str]) -> Path:
    path = tmp_path / "steps.csv"
    names = dict.fromkeys(name for row in rows for name in row)
    write_csv(path, [{name: row.get(name, "") for name in names} for row in rows])
    return path


@pytest.mark.parametrize(
    ("stated", "parallel", "passes"),
    [
        ({}, "data", 1),
        ({"variant": "fusion", "container": "pytorch-2.1-cu121"}, "data", 1),
        ({"variant": "dp4"}, "data", 1),
        ({"variant": "tp4"}, "tensor", 1),
        ({"variant": "pp4_1"}, "pipeline", 1),
        ({"variant": "pp4_2"}, "pipeline", 2),
        ({"parallel": "tensor"}, "tensor", 1),
        ({"parallel": "pipeline:4", "accumulation_steps": "8"}, "pipeline", 8),
    ],
)
def test_a_row_says_how_gpus_share_the_work(tmp_path: Path, stated: dict[str, str], parallel: str, passes: int) -> None:
    (row,) = read_steps(_steps(tmp_path, STEP | stated))
    workload = workload_of(row, MODELS[row.model])
    assert (row.batch, row.mode, workload.gpus) == (96, "train", 4)
    assert (workload.parallel, workload.options.accumulation) == (parallel, passes)


def test_a_row_says_how_its_framework_ran(tmp_path: Path) -> None:
    stated = {"layout": "nhwc", "attention": "fused", "torch": "2.1.0+cu121", "cuda": "12.1", "compiled": "yes"}
    plain, chosen = read_steps(_steps(tmp_path, STEP, STEP | stated))
    before, after = (workload_of(one, MODELS[one.model]).policy for one in (plain, chosen))
    assert (before.version, before.layout, before.attention, before.fusion) == ("1.13", "nchw", None, "none")
    assert (after.version, after.layout, after.attention, after.fusion) == ("2.1", "nhwc", "fused", "elementwise")
    assert (plain.cuda, chosen.cuda) == (None, 12)


def test_a_row_says_what_its_loop_and_its_engine_do(tmp_path: Path) -> None:
    engine = STEP | {"gpus": "1", "mode": "inference", "framework": "paddle-tensorrt", "image_size": "224"}
    engine["batch_per_gpu"] = "8"
    boards = engine | {"framework": "torchvision", "container": "torch-1.4 cuda-10.0", "precision": "fp16"}
    copies = boards | {"notes": "copy of the input from pageable memory inside"}
    new, old, unknown, without, inside = read_steps(
        _steps(
            tmp_path,
            *(engine | {"container": f"tensorrt-{one}"} for one in ("8.0.3.4", "7.2.3", "unknown (pages)")),
            boards,
            copies,
        )
    )
    known = KnownModel("resnet50", script=SCRIPTS["paddle-tensorrt"])
    workloads = [workload_of(one, known) for one in (new, old, unknown)]
    assert [one.policy.loops_groups for one in workloads] == [False, True, True]
    assert {(one.policy.fusion, one.options.rests, one.options.copied_bytes) for one in workloads} == {
        ("engine", True, 8 * 3 * 224 * 224 * 4)
    }
    (contained,) = read_steps(
        _steps(tmp_path, boards | {"container": "nvcr.io/nvidia/pytorch:20.10-py3 cuda-11.1 cudnn-8.0.4"})
    )
    known = KnownModel("resnet50", script=SCRIPTS["torchvision"])
    assert workload_of(contained, known).policy.version == "1.7"
    loops = [workload_of(one, known).options for one in (without, inside)]
    assert [(one.rests, one.copied_bytes) for one in loops] == [(False, 0), (False, 8 * 3 * 224 * 224 * 2)]


def test_a_locked_clock_is_that_of_the_prediction(tmp_path: Path) -> None:
    small = STEP | {"gpus": "1", "batch_per_gpu": "1", "seq_len": "32", "mode": "inference"}
    clocks = [small | {"clock_mhz": clock} for clock in ("", "705", "9000")]
    unknown = small | {"container": "pytorch-21.07-py3"}
    report = validate_steps([_steps(tmp_path, *clocks, unknown)])
    free, locked = report.scored
    assert locked.result.clock_mhz <= 705 < free.result.clock_mhz
    assert [reason for _, reason in report.skipped] == [
        "clock_mhz: 9000, and A100-SXM4-80GB runs at 210 to 1410",
        "no version of PyTorch is known of 'pytorch-21.07-py3'; the nearest are those of 21.05 and 21.09",
    ]


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"parallel": "expert"}, "steps.csv:2: parallel: expected data, tensor or pipeline"),
        ({"variant": "dp8"}, "steps.csv:2: variant: dp8 is of 8 GPUs, and the column gpus says 4"),
        ({"torch": "new"}, "steps.csv:2: torch: expected a version such as 2.1, got 'new'"),
        ({"compiled": "perhaps"}, "steps.csv:2: compiled: unknown 'perhaps'"),
        ({"batch_per_gpu": "96.5"}, "steps.csv:2: batch_per_gpu: "),
    ],
)
def test_a_wrong_value_of_a_step_is_refused_at_its_line(tmp_path: Path, stated: dict[str, str], message: str) -> None:
    with pytest.raises(MeasuredError, match=re.escape(message)):
        read_steps(_steps(tmp_path, STEP | stated))
