"""The JSON API of ``gpusim serve``, asked of a real process: its numbers are those of other ways to predict."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import RunGpusim
from served import MINE, Served

import gpusim
from gpusim.confidence import ratio_of
from gpusim.execution.models import model_step
from gpusim.execution.sweep import predict_one
from gpusim.models.loading import shipped_models
from gpusim.prediction.results import json_ready
from gpusim.specs import load_spec, with_overrides
from gpusim.studies.knobs import knobs_of, overrides_of_knobs
from gpusim.studies.workload import GpuVariant
from gpusim.workloads.short_form import operator_of

GEMM = "gemm:1024x512x2048:fp16"
SIZES = {"m": 1024, "n": 512, "k": 2048, "dtype": "fp16"}
STEP = {"workload": "bert_base", "step": {"precision": "fp16", "sizes": {"batch": 1, "seq_len": 128}}}


def test_numbers_are_those_of_predict(server: Served) -> None:
    (board,) = server.predict(workload=GEMM, gpu="a100", knobs={"sms": 54, "dram_bandwidth": 1000})["boards"]
    shipped = gpusim.predict("a100", **SIZES)  # type: ignore[arg-type]
    overrides = {"sm.count": 54, "dram.peak_bandwidth_gb_per_s": 1000.0}
    changed = gpusim.predict("a100", overrides=overrides, **SIZES)  # type: ignore[arg-type]
    assert board["shipped"]["result"] == shipped.as_dict()
    assert board["changed"]["result"] == changed.as_dict()
    assert board["changed"]["time_us"] == changed.time_us
    assert list(board["speedup"].values()) == list(ratio_of(shipped.timed, changed.timed))
    assert sum(part["us"] for part in board["changed"]["parts"]) == pytest.approx(changed.time_us)
    assert sum(board["changed"]["stalls"].values()) == pytest.approx(1)


def test_a_second_board_has_values_of_its_own(server: Served) -> None:
    found = server.predict(workload=GEMM, gpu="t4", second={"gpu": "v100-sxm2-16gb", "overrides": {"sm.count": "0.5x"}})
    first, second = found["boards"]
    assert (first["changed"], second["changed"]["overrides"]) == (first["shipped"], {"sm.count": 40})
    times_us = [one["changed"]["time_us"] for one in (first, second)]
    assert found["speedup"]["value"] == pytest.approx(times_us[0] / times_us[1])
    assert found["table"]["columns"] == ["value", "T4", "V100-SXM2-16GB", "V100-SXM2-16GB, changed"]
    assert {row["board"] for row in found["charts"]["times"]["rows"]} == set(found["table"]["columns"][1:])


def test_a_step_reports_as_it_is_predicted(server: Served) -> None:
    headers = {"Accept": "application/x-ndjson"}
    with server.client.stream("POST", "api/predict", json={**STEP, "gpu": "t4"}, headers=headers) as answer:
        events = [json.loads(line) for line in answer.iter_lines()]
    kinds = [one["event"] for one in events]
    assert kinds[0] == "progress"
    assert kinds[-2:] == ["time", "result"] or "time" in kinds
    assert kinds[-1] == "result"
    early, last = (next(one for one in events if one["event"] == kind)["answer"] for kind in ("time", "result"))
    step = model_step("bert_base", mode="inference", precision="fp16", sizes={"batch": 1, "seq_len": 128})
    whole = predict_one(GpuVariant("T4").case(step))
    assert last["boards"][0]["changed"]["result"] == json.loads(json.dumps(whole.as_dict()))
    assert early["boards"][0]["changed"]["time_us"] == last["boards"][0]["changed"]["time_us"]
    assert not early["boards"][0]["changed"]["limited"]


def test_the_error_of_a_step_is_an_event(server: Served) -> None:
    asked = {"workload": "bert_base", "step": {"precision": "int8", "mode": "train"}, "gpu": "t4"}
    assert server.refusal(json=asked).startswith("step: precision: int8 is for inference")
    slow = {"workload": "gemm:64x64x64:fp8", "gpu": "t4"}
    answer = server.client.post("api/predict", json=slow, headers={"Accept": "application/x-ndjson"})
    (event,) = map(json.loads, answer.text.splitlines())
    assert event["event"] == "error"
    assert "fp8" in event["detail"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gpu": "t4"}, "workload: missing; add it"),
    ({"workload": GEMM, "gpu": "t4", "knob": {}}, "knob: unknown field; did you mean knobs?"),
    ({"workload": GEMM, "gpu": "A100-SXM4-8GB"}, "gpu: unknown GPU 'A100-SXM4-8GB'; did you mean A100-SXM4-80GB?"),
    ({"workload": GEMM, "gpu": "t4", "second": {"gpu": "x9"}}, "second.gpu: unknown GPU 'x9'"),
    ({"workload": "resnet5", "gpu": "t4"}, "workload: unknown model or operator 'resnet5'; did you mean resnet50?"),
    ({"workload": "gemm:64x64", "gpu": "t4"}, "workload: gemm:64x64: k: missing"),
    ({"workload": GEMM, "gpu": "t4", "knobs": {"sms": 1}}, "knobs.sms: expected 10 to 160, got 1"),
    ({"workload": GEMM, "gpu": "t4", "knobs": {"sms": 20.5}}, "knobs.sms: expected a multiple of 1, got 20.5"),
    (
        {"workload": GEMM, "gpu": "t4", "overrides": {"sm.counts": 3}},
        "override: sm.counts: no such value; did you mean",
    ),
    ({"workload": GEMM, "gpu": "t4", "overrides": {"sm.count": "many"}}, "overrides.sm.count: expected a number"),
    ({"workload": GEMM, "gpu": "t4", "overrides": {"l2.latency_cycles": 9999}}, "override: l2.far_latency_cycles"),
    (
        {"workload": GEMM, "gpu": "t4", "conditions": {"detail": "full"}},
        "conditions.detail: input should be 'bound', 'estimate' or",
    ),
    ({"workload": GEMM, "gpu": "t4", "conditions": {"l3": 1}}, "conditions.l3: unknown field; did you mean l2?"),
    (
        {"workload": GEMM, "gpu": "t4", "step": {"mode": "train"}},
        "step.mode: of a model, but gemm:1024x512x2048:fp16 is",
    ),
    ({**STEP, "gpu": "t4", "conditions": {"l2": "warm"}}, "conditions.l2: of an operator, but bert_base is none"),
    ({**STEP, "gpu": "t4", "step": {"sizes": {"batches": 2}}}, "step: bert_base has no size 'batches'; it has batch"),
    ({**STEP, "gpu": "t4", "step": {"sizes": {"batch": 0}}}, "step.sizes.batch: input should be greater than or equal"),
]


@pytest.mark.parametrize(("asked", "begins"), WRONG, ids=[begins for _, begins in WRONG])
def test_one_line_names_the_wrong_field_and_the_remedy(server: Served, asked: dict[str, Any], begins: str) -> None:
    assert server.refusal(json=asked).startswith(begins)


@pytest.mark.parametrize("body", ["{", "[]", "null", '"text"', '{"workload": 1e999}', b"\xff"])
def test_what_is_no_object_is_refused(server: Served, body: str | bytes) -> None:
    assert server.refusal(content=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("gpu", ["T4", "V100-SXM2-16GB", "A100-SXM4-80GB", "RTX-3090", "H100-SXM5-80GB"])
def test_every_knob_can_be_turned_to_its_ends(gpu: str) -> None:
    spec = load_spec(gpu)
    knobs = knobs_of(spec)
    assert len(knobs) == 11
    for knob in knobs:
        assert knob.values[0].source
        for value in (knob.least, knob.most):
            overrides = overrides_of_knobs(spec, {knob.name: value})
            assert overrides.keys() >= {one.key_path for one in knob.values}
            assert with_overrides(spec, overrides).gpu != spec.gpu
        assert overrides_of_knobs(spec, {knob.name: knob.shipped}) == {}


def test_knobs_have_the_values_behind_them(server: Served) -> None:
    found = server.client.get("api/knobs", params={"gpu": "a100"}).json()
    clock = next(one for one in found["knobs"] if one["name"] == "clock")
    assert (found["gpu"], clock["shipped"], clock["unit"]) == ("A100-SXM4-80GB", 1410, "MHz")
    assert [one["key_path"] for one in clock["values"]] == ["clock.max_mhz", "clock.boost_mhz", "clock.base_mhz"]
    assert clock["values"][0]["source"] == load_spec("a100").provenance["clock.max_mhz"].source


def test_every_choice_can_be_predicted(server: Served) -> None:
    found = server.client.get("api/workloads").json()
    for one in found["operators"]:
        values = {field["name"]: field["default"] for field in one["fields"]}
        word = ":".join([one["name"], *(f"{name}={value}" for name, value in values.items())])
        assert operator_of(word)
    assert {one["name"] for one in found["models"]} == {*shipped_models(), MINE}
    assert {one["name"] for one in server.client.get("api/gpus").json()} >= {"T4", "A100-SXM4-80GB"}


def test_the_yaml_is_a_board_with_the_same_values(server: Served, tmp_path: Path) -> None:
    query = {"gpu": "a100", "knobs": "sms:120,shared_memory:384", "overrides": "l2.capacity_mib=2x"}
    answer = server.client.get("api/yaml", params=query)
    assert "extends: a100_sxm4_80gb" in answer.text
    file = tmp_path / "changed.yaml"
    _ = file.write_text(answer.text, "utf-8")
    changed, shipped = load_spec(file).gpu, load_spec("a100")
    overrides = {**overrides_of_knobs(shipped, {"sms": 120, "shared_memory": 384}), "l2.capacity_mib": "2x"}
    names = {"name": "", "aliases": (), "short_names": ()}
    assert changed.model_copy(update=names) == with_overrides(shipped, overrides).gpu.model_copy(update=names)


@pytest.mark.parametrize("query", [{"knobs": "sms"}, {"knobs": "sms:1"}, {"overrides": "x=1"}, {"gpu": "x9"}])
def test_wrong_yaml_is_refused(server: Served, query: dict[str, str]) -> None:
    answer = server.client.get("api/yaml", params={"gpu": "t4", **query})
    assert (answer.status_code, "\n" in answer.json()["detail"]) == (422, False)


def test_the_page_to_keep_needs_nothing_else(server: Served) -> None:
    answer = server.client.post("api/page", json={"workload": GEMM, "gpu": "t4", "knobs": {"sms": 80}})
    assert answer.status_code == 200
    assert "attachment" in answer.headers["Content-Disposition"]
    for text in ("T4, changed", "vegaEmbed", "gpusim explain gemm:1024x512x2048:fp16 --arch T4", "extends: t4"):
        assert text in answer.text
    assert "http://" not in answer.text.split("<script")[0]


@pytest.mark.parametrize("asked", [STEP, {"workload": "bert_base", "step": {"sizes": {"batch": 2}, "graphs": True}}])
def test_the_command_of_a_page_predicts_it_again(server: Served, asked: dict[str, Any], command: RunGpusim) -> None:
    page = server.client.post("api/page", json={**asked, "gpu": "t4"}).text
    found = re.search(r"<code>gpusim (explain bert_base --[^<]*)</code>", page)
    assert found
    done = command(*shlex.split(found[1]), "--parts-only", "--format", "json")
    time_us = server.predict(**asked, gpu="t4")["boards"][0]["changed"]["time_us"]
    assert json.loads(done.stdout)["total_us"] == json_ready(time_us)


def test_the_api_is_described_without_the_network(server: Served) -> None:
    document = server.client.get("openapi.json").json()
    assert set(document["paths"]) == {
        f"/api/{name}" for name in ("gpus", "workloads", "knobs", "yaml", "predict", "page")
    }
    page = server.client.get("docs")
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    for text in ("POST /api/predict", "PredictRequest", "gemm:4096x4096x4096:bf16"):
        assert text in page.text
    assert "https://" not in page.text


def test_models_of_a_folder_are_chosen_by_name(server: Served) -> None:
    models = {one["name"]: one["captured"] for one in server.client.get("api/workloads").json()["models"]}
    assert (models[MINE], models["bert_base"]) == (True, False)
    times = [server.predict(**{**STEP, "workload": name}, gpu="t4") for name in (MINE, "bert_base")]
    assert len({one["boards"][0]["changed"]["time_us"] for one in times}) == 1
