"""``gpusim explain``: parts that add up, sensitivities that are predictions, advice that was predicted."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from conftest import RunGpusim, refused
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusim
from gpusim.execution.cases import OperatorWorkload
from gpusim.prediction.results import Result
from gpusim.specs import load_spec
from gpusim.studies.explain.losses import losses
from gpusim.studies.explain.neighbours import neighbours
from gpusim.studies.explain.parts import MEANINGS, meaning_of, parts_of
from gpusim.studies.explain.sensitivities import FACTORS, NAMED, RESOURCES, overrides_of
from gpusim.studies.explain.tables import explanation_tables
from gpusim.studies.workload import GpuVariant
from gpusim.workloads.short_form import is_operator, operator_of

CONTRACT = {"total_us", "parts", "sensitivities", "advice"}
SMALL = "gemm:100x1001x256:fp16"
BERT = ("bert_base", "--mode", "inference", "--precision", "fp16", "--batch", "1", "--seq-len", "32")
BERT_OPERATORS = {"gemm", "softmax", "layernorm", "elementwise", "reduction"}


@settings(max_examples=12)
@given(
    arch=st.sampled_from(["t4", "v100-sxm2-16gb", "a100-sxm4-80gb", "h200-sxm-141gb"]),
    op=st.sampled_from(["linear", "bmm", "softmax", "add"]),
    m=st.integers(1, 300),
    n=st.integers(1, 300),
    k=st.integers(1, 300),
    detail=st.sampled_from(["bound", "estimate", "sampled"]),
)
def test_parts_add_up_to_the_time(arch: str, op: str, m: int, n: int, k: int, detail: str) -> None:
    sizes = {"m": m, "n": n} if op in {"softmax", "add"} else {"m": m, "n": n, "k": k}
    result = gpusim.predict(arch, op=op, detail=detail, **sizes)  # type: ignore[arg-type]
    parts = parts_of(result)
    assert sum(part.us for part in parts) == pytest.approx(result.time_us, rel=1e-9)
    assert sum(part.share for part in parts) == pytest.approx(1, rel=1e-9)
    assert all(part.us > 0 for part in parts)
    assert {part.name for part in parts} <= MEANINGS.keys()


@pytest.mark.parametrize("detail", ["bound", "estimate", "sampled"])
@pytest.mark.parametrize(
    "operator",
    [
        "gemm:100x1001x256:fp16",
        "gemm:16x11008x4096:fp16",
        "gemm:512x512x512:fp32",
        "softmax:8192x1024:fp32",
        "add:4096x4096:fp16",
        "attention_fwd:512x512x64:fp16:batch=2:heads=4",
    ],
)
def test_the_peak_and_the_losses_add_up_to_the_time(operator: str, detail: str) -> None:
    result = gpusim.predict("a100-sxm4-80gb", operator_of(operator), detail=detail)
    gpu = load_spec("a100-sxm4-80gb").gpu
    found = losses(result, parts_of(result), gpu)
    assert sum(one.us for one in found) == pytest.approx(result.time_us, rel=1e-12)
    assert found[0].name == "peak"
    if result.operator.k:
        assert found[0].us == pytest.approx(1e-6 * operator_of(operator).flops / result.timing.peak_tflops)
    else:
        assert found[0].us == pytest.approx(1e-3 * operator_of(operator).size_bytes / gpu.dram.peak_bandwidth_gb_per_s)
    assert all(one.meaning for one in found)


def test_a_neighbour_has_one_size_halved_or_doubled() -> None:
    workload = OperatorWorkload(operator_of("gemm:1x512x256:fp16"))
    found = {one.name: one.result for one in neighbours(workload, GpuVariant("t4"))}
    assert found.keys() == {"m 2", "n 256", "n 1024", "k 128", "k 512", "batch 2"}
    assert found["k 512"].time_us == gpusim.predict("t4", m=1, n=512, k=512, dtype="fp16").time_us


def test_a_resource_that_a_spec_cannot_make_better_has_no_sensitivity() -> None:
    found = gpusim.explain("teaching", m=32, n=32, k=32, dtype="fp32", layout="nt")
    resources = {one.resource for one in found.sensitivities}
    assert "latency of L2 and DRAM" in resources
    assert "shared memory bandwidth" not in resources


def test_a_part_of_a_resource_is_its_work_and_latency_is_divided_by_the_ledger() -> None:
    result = gpusim.predict("t4", m=16, n=2048, k=2048, dtype="fp16")
    found = {part.name: part.us for part in parts_of(result)}
    shares = result.utilization.time_shares
    assert next(iter(shares)) == "dram"
    assert found["dram"] == pytest.approx(shares["dram"] * result.kernel_time_us)
    waits = sum(us for name, us in found.items() if meaning_of(name).startswith("latency"))
    assert waits == pytest.approx(result.utilization.time_shares["latency"] * result.kernel_time_us)
    assert found["launch_gap"] == pytest.approx(result.timing.launch_overhead_us)


def test_a_sensitivity_is_the_prediction_with_the_override() -> None:
    product: dict[str, Any] = {"m": 16, "n": 2048, "k": 2048, "dtype": "fp16", "load": "burst"}
    found = gpusim.explain("t4", **product)
    dram = {one.factor: one for one in found.sensitivities if one.resource == "DRAM bandwidth"}
    assert dram.keys() == set(FACTORS)
    for factor, one in dram.items():
        faster = gpusim.predict("t4", **product, overrides={"dram.peak_bandwidth_gb_per_s": f"{factor}x"})
        assert one.total_us == pytest.approx(faster.time_us, rel=1e-12)
        assert one.time_ratio == pytest.approx(faster.time_us / found.total_us)
    assert found.sensitivities[0].resource == "DRAM bandwidth"
    doubled = [one.time_ratio for one in found.sensitivities if one.factor == FACTORS[-1]]
    assert doubled == sorted(doubled)


def test_advice_is_the_prediction_of_the_changed_product() -> None:
    found = gpusim.explain("t4", m=100, n=1001, k=256, dtype="fp16")
    by_rule = {one.rule: one for one in found.advice}
    padded = gpusim.predict("t4", m=100, n=1008, k=256, dtype="fp16")
    assert by_rule["alignment"].text == "Pad n from 1001 to 1008."
    assert by_rule["alignment"].total_us == pytest.approx(padded.time_us, rel=1e-12)
    assert by_rule["alignment"].gain_us == pytest.approx(found.total_us - padded.time_us)
    assert all(one.speedup > 1.01 for one in found.advice)


def test_what_the_board_cannot_run_is_not_advised() -> None:
    found = gpusim.explain("v100-sxm2-16gb", m=512, n=512, k=512, dtype="fp32")
    assert not any("tf32" in one.text or "bf16" in one.text for one in found.advice)
    assert any("fp16" in one.text for one in found.advice)


def test_each_resource_changes_values_of_every_architecture() -> None:
    from gpusim.specs import load_spec

    for arch in ("t4", "v100-sxm2-16gb", "a100-sxm4-80gb", "rtx-3090", "h200-sxm-141gb"):
        spec = load_spec(arch)
        assert all(overrides_of(resource, 2.0, spec) for resource in RESOURCES), arch
    values = overrides_of(RESOURCES[2], 2.0, load_spec("t4"))
    assert all(load_spec("t4").gpu.instructions[key.split(".")[1]].unit == "tensor" for key in values)


def test_json_holds_what_the_contract_states(command: RunGpusim) -> None:
    done = command("explain", SMALL, "--arch", "t4", "--to", "v100-sxm2-16gb", "--jobs", "1", "--format", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found.keys() >= CONTRACT
    assert all(part.keys() == {"name", "us", "share"} for part in found["parts"])
    assert sum(part["us"] for part in found["parts"]) == pytest.approx(found["total_us"], rel=1e-9)
    alone = gpusim.predict("t4", m=100, n=1001, k=256)
    assert found["total_us"] == pytest.approx(alone.time_us, rel=1e-11)
    for board, result in (found, alone), (found["to"], gpusim.predict("v100-sxm2-16gb", m=100, n=1001, k=256)):
        assert board["total_us_p10"] == pytest.approx(result.timing.time_us_p10)
        assert board["total_us_p90"] == pytest.approx(result.timing.time_us_p90)
        assert board["evidence"] == result.timing.evidence
    to = found["to"]
    assert sum(part["us"] for part in to["parts"]) == pytest.approx(to["total_us"], rel=1e-9)
    difference = found["total_us"] - to["total_us"]
    assert sum(one["difference_us"] for one in to["differences"]) == pytest.approx(difference)
    assert sum(one["share"] for one in to["differences"]) == pytest.approx(difference / found["total_us"])
    assert to["speedup"] == pytest.approx(found["total_us"] / to["total_us"])


def test_tables_name_parts_resources_and_the_sum(command: RunGpusim) -> None:
    done = command("explain", SMALL, "--arch", "t4", "--jobs", "1")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("all ")]
    assert "DRAM bandwidth" in done.stdout
    assert "Pad n from 1001 to 1008." in done.stdout


@pytest.mark.parametrize("operator", ["gemm:4096x4096x4096:fp16", "gemm:512x512x4096:fp16"])
def test_the_limit_saves_what_its_row_says(operator: str) -> None:
    found = gpusim.explain("a100-sxm4-80gb", operator_of(operator))
    (title,) = [table.title for table in explanation_tables(found, operator) if "the limit is" in (table.title or "")]
    assert isinstance(found.of.result, Result)
    named = NAMED[found.of.result.bottleneck]
    saved = [1 - one.time_ratio for one in found.sensitivities if one.resource == named[0] and one.factor == 2.0]
    assert f"twice as much saves {100 * saved[0]:.0f} %" in title


def test_set_changes_the_first_board_only(command: RunGpusim) -> None:
    asked = ("explain", SMALL, "--arch", "t4", "--to", "t4", "--parts-only", "--jobs", "1", "--format", "json")
    same = json.loads(command(*asked).stdout)
    faster = json.loads(command(*asked, "--set", "front_end.kernel_latency_us=0.1").stdout)
    assert same["total_us"] == same["to"]["total_us"] == faster["to"]["total_us"]
    assert faster["total_us"] < same["total_us"]
    assert (same["sensitivities"], same["advice"]) == ([], [])
    assert (faster["overrides"], faster["to"]["overrides"]) == ({"front_end.kernel_latency_us": 0.1}, {})


def test_csv_has_the_parts(command: RunGpusim) -> None:
    asked = ("explain", SMALL, "--arch", "t4", "--parts-only", "--jobs", "1", "--format")
    rows = csv.DictReader(io.StringIO(command(*asked, "csv").stdout))
    parts = json.loads(command(*asked, "json").stdout)["parts"]
    assert [row["name"] for row in rows] == [part["name"] for part in parts]
    beside = csv.DictReader(io.StringIO(command(*asked, "csv", "--to", "a10").stdout))
    assert {row["to"] for row in beside} == {"A10"}


def test_parts_of_a_step_add_up(command: RunGpusim) -> None:
    asked = (*BERT, "--arch", "t4", "--jobs", "1", "--format", "json")
    found = json.loads(command("explain", *asked, "--parts-only").stdout)
    title = command("explain", *asked[:-2], "--parts-only").stdout.splitlines()[0]
    assert title == "bert_base, inference in fp16 on T4: batch 1, seq_len 32"
    assert found["step"] == "bert_base, inference in fp16: batch 1, seq_len 32"
    step = json.loads(command("model", *asked).stdout)
    assert found["total_us"] == pytest.approx(1e3 * step["step_ms"])
    assert sum(part["us"] for part in found["parts"]) == pytest.approx(found["total_us"], rel=1e-9)
    assert found["total_us_p10"] == pytest.approx(1e3 * step["step_ms_p10"])
    assert found["total_us_p10"] < found["total_us"] < found["total_us_p90"]
    assert found["evidence"] is None
    parts = {part["name"]: part["share"] for part in found["parts"]}
    assert parts["host"] + parts["launch_gap"] == pytest.approx(step["idle_pct"] / 100)
    assert {name.split(": ")[0] for name in parts if ": " in name} <= BERT_OPERATORS
    of_gemm = sum(share for name, share in parts.items() if name.startswith("gemm: "))
    assert of_gemm == pytest.approx(sum(one["share"] for one in step["operators"] if one["op"] in {"linear", "bmm"}))


def test_what_does_not_fit_has_status_1(command: RunGpusim) -> None:
    done = command("explain", "gemm:99999x99999x99999", "--arch", "t4", "--to", "a100-sxm4-80gb", "--parts-only")
    assert (done.returncode, done.stderr) == (
        1,
        "gpusim: the workload does not fit into the memory of T4; --allow-oom accepts that\n",
    )
    assert "all" in done.stdout


def test_operators_are_read_from_one_word() -> None:
    assert is_operator("softmax:8x8")
    assert not is_operator("resnet50")
    assert operator_of("gemm:64x32x16:bf16") == gpusim.Gemm(64, 32, 16, gpusim.Dtype.BF16)
    assert operator_of("gemm:2x64x32x16").columns["batch"] == 2
    assert operator_of("gemm:64x32x16:int8:layout=nn:output_dtype=int8").columns["layout"] == "nn"
    assert operator_of("attention_fwd:128x128x64:heads=4:causal=yes").columns["m"] == 128


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("gemm:64x64", "--arch", "t4"), "k"),
        (("gemm:64x64x64:fp61", "--arch", "t4"), "unknown data type 'fp61'"),
        (("gemm:1x2x3x4x5", "--arch", "t4"), "5 sizes"),
        (("gemm:64x64x64:m=3", "--arch", "t4"), "m is given twice"),
        (("gemm:64x64x64:colour=red", "--arch", "t4"), "colour"),
        (("gemm:64,64,64:fp16", "--arch", "t4"), "64,64,64: sizes cannot be read; write them as 4096x4096x4096"),
        (("64x64x64:fp16", "--arch", "t4"), "an operator begins with its name; write gemm:64x64x64:fp16"),
        (("model:bert_base", "--arch", "t4"), "a model is its name alone; write bert_base"),
        (("gem:64x64x64", "--arch", "t4"), "did you mean gemm?"),
        (("gemm:64x64x64", "--arch", "t44x"), "t44x"),
        (("gemm:64x64x64", "--arch", "t4", "--arch", "v100"), "--arch is given twice; 'gpusim explain' takes one GPU"),
        (("gemm:64x64x64", "--arch", "t4", "--batch", "8"), "--batch: of a model"),
        (("gemm:64x64x64:fp8", "--arch", "t4"), "fp8"),
        (("no_such_model", "--arch", "t4"), "no_such_model"),
        (("bert_base", "--arch", "t4", "--detail", "bound"), "--detail: of an operator"),
        (("gemm:64x64x64", "--arch", "t4", "--set", "l2.capacity=3"), "l2.capacity"),
    ],
)
def test_wrong_input_is_one_line(command: RunGpusim, arguments: tuple[str, ...], text: str) -> None:
    assert text in refused(command("explain", *arguments, "--parts-only"))
