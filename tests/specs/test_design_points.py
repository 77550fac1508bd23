"""Values of the spec that vary in an experiment: lists, values that change together, Latin hypercube samples."""

from __future__ import annotations

import csv
import json
import math
import time
from itertools import product
from pathlib import Path

import pytest
from conftest import RunGpusim, WriteExperiment, complaints, refused

from gpusim.experiment.definition import Experiment
from gpusim.experiment.loading import load_experiment
from gpusim.specs import Spec, load_spec, with_overrides
from gpusim.specs.design_points import MOST_POINTS, Range, design_points, latin_hypercube
from gpusim.specs.overrides import OverrideError

L2, DRAM, SMS = "l2.capacity_mib", "dram.peak_bandwidth_gb_per_s", "sm.count"
DESIGN = """\
title: Design
gpus:
  - gpu: A100-SXM4-80GB
    overrides:
      l2.capacity_mib: [1x, 1.5x, 60.5]
      dram.latency_ns: 1.5x
      dram.peak_bandwidth_gb_per_s: 1000, 2x
  - T4
dtypes: fp16
detail: bound
gemms: [{m: 16, n: 256, k: 128}]
"""
CUBE = "latin_hypercube: {samples: 8, seed: 3, ranges: {l2.capacity_mib: {min: 0.5x, max: 4x, scale: log}}}"


@pytest.fixture(scope="module")
def a100() -> Spec:
    return load_spec("A100-SXM4-80GB")


def values_of(experiment: Experiment, *key_paths: str) -> list[tuple[object, ...]]:
    """The values of every GPU but the last, from its own record."""
    found = [one.spec.system.values() for one in experiment.gpus.values()][:-1]
    return [
        tuple(of_board[part][key] for part, key in (key_path.split(".") for key_path in key_paths))
        for of_board in found
    ]


# Values -----------------------------------------------------------------------------------------


def test_lists_of_values_give_every_combination_and_the_last_varies_fastest(write: WriteExperiment) -> None:
    experiment = load_experiment(write(DESIGN))
    assert values_of(experiment, L2, DRAM) == list(product([40.0, 60.0, 60.5], [1000.0, 4078.0]))
    assert experiment.varying == (L2, DRAM)
    assert {latency for (latency,) in values_of(experiment, "dram.latency_ns")} == {1.5 * 378}
    assert len(list(experiment.cases())) == 6 + 1


def test_labels_tell_the_points_apart_with_their_units(write: WriteExperiment) -> None:
    labels = list(load_experiment(write(DESIGN)).gpus)
    assert labels[0] == "A100-SXM4-80GB, L2 capacity 40 MiB, DRAM peak bandwidth 1000 GB/s"
    assert labels[-1] == "T4"
    assert len(set(labels)) == 7


def test_values_that_change_together_are_paired_and_combined_with_lists(write: WriteExperiment) -> None:
    zipped = "zip: {dram.peak_bandwidth_gb_per_s: [1x, 2x], l2.latency_cycles: [205, 230]}\n  - T4"
    text = DESIGN.replace("      dram.peak_bandwidth_gb_per_s: 1000, 2x\n", "").replace("- T4", f"  {zipped}", 1)
    found = values_of(load_experiment(write(text)), L2, DRAM, "l2.latency_cycles")
    together = [(2039.0, 205), (4078.0, 230)]
    assert found == [(size, *pair) for size in (40.0, 60.0, 60.5) for pair in together]


def test_a_value_that_is_a_list_varies_as_a_list_of_lists(a100: Spec) -> None:
    key_path = "shared_memory.carveouts_kib"
    assert len(design_points(a100, {key_path: [0, 164]})) == 1
    points = design_points(a100, {key_path: [[0, 100, 164], [0, 164]]})
    assert [point.spec.gpu.shared_memory.carveouts_kib for point in points] == [(0, 100, 164), (0, 164)]
    assert [point.values for point in points] == [{key_path: [0, 100, 164]}, {key_path: [0, 164]}]


def test_values_of_library_and_host_and_texts_vary_too(a100: Spec) -> None:
    lists = {
        "library.split_k_search.min_steps": [1, 2],
        "host.graph_gap_us": ["1x", "2x"],
        "load_store.async_copy": [False],
    }
    points = design_points(a100, lists)
    assert [point.spec.system.library.split_k_search.min_steps for point in points] == [1, 1, 2, 2]
    gap = a100.system.host.graph_gap_us
    assert [point.spec.system.host.graph_gap_us for point in points[:2]] == [gap, 2 * gap]
    assert not any(point.spec.gpu.load_store.async_copy for point in points)


@pytest.mark.parametrize(
    ("key_path", "text", "value"),
    [(SMS, "1.5x", 162), (SMS, "1.004x", 108), (L2, "1.1x", 44.0), (L2, ".5x", 20.0), (L2, "1e1x", 400.0)],
)
def test_a_multiple_is_of_the_shipped_value_and_whole_where_that_is(
    a100: Spec, key_path: str, text: str, value: float
) -> None:
    changed = with_overrides(a100, {key_path: text})
    assert changed.provenance[key_path].value == value
    assert changed.sha256 == with_overrides(a100, {key_path: value}).sha256


def test_a_retuned_library_compares_times_on_the_changed_gpu(a100: Spec) -> None:
    (shipped,) = design_points(a100, {DRAM: "3x"})
    (retuned,) = design_points(a100, {DRAM: "3x"}, retuned=True)
    assert shipped.spec.system.library.tuned_for == a100.gpu
    assert retuned.spec.system.library.tuned_for is None
    assert shipped.spec.sha256 != retuned.spec.sha256


# Latin hypercube --------------------------------------------------------------------------------


def test_each_part_of_each_range_holds_one_sample(a100: Spec) -> None:
    ranges = {L2: Range("0.5x", "4x", "log"), DRAM: Range(1000, 5000.0, "linear")}
    samples = latin_hypercube(a100, ranges, 16, 1)
    exponents = sorted(math.log2(float(str(sample[L2])) / 20) * 16 / 3 for sample in samples)
    parts = sorted((float(str(sample[DRAM])) - 1000) / 250 for sample in samples)
    for found in (exponents, parts):
        assert [int(place) for place in found] == list(range(16))


def test_the_same_seed_gives_the_same_samples_everywhere_and_another_seed_others(a100: Spec) -> None:
    ranges = {L2: Range("0.5x", "4x", "log"), SMS: Range(80, "2x", "linear")}
    samples = latin_hypercube(a100, ranges, 4, 1)
    assert samples == SAMPLES
    assert latin_hypercube(a100, ranges, 4, 2) != samples


SAMPLES = [
    {L2: 39.3326, SMS: 176},
    {L2: 68.0295, SMS: 103},
    {L2: 152.143, SMS: 188},
    {L2: 31.0965, SMS: 119},
]
"""Drawn by SciPy 1.17 on x86-64 Linux; replay, to be the same elsewhere."""


def test_samples_are_rows_of_the_results_and_stand_in_the_manifest(
    write: WriteExperiment, command: RunGpusim, tmp_path: Path
) -> None:
    text = DESIGN.replace("      l2.capacity_mib: [1x, 1.5x, 60.5]\n", "").replace("  - T4", f"    {CUBE}\n  - T4")
    done = command("run", write(text), "-o", tmp_path / "out", "--jobs", "1")
    assert (done.returncode, complaints(done)) == (0, [])
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    specs = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))["specs"]
    assert len(rows) == len(specs) == 8 * 2 + 1
    for row in rows[:-1]:
        overrides = specs[row["gpu"]]["overrides"]
        assert (float(row[L2]), float(row[DRAM])) == (overrides[L2], overrides[DRAM])
        assert float(row["dram_peak_gb_per_s"]) == float(row[DRAM])
    assert len({row[L2] for row in rows}) == 8 + 1
    assert (rows[-1]["gpu"], rows[-1][L2], specs["T4"]["overrides"]) == ("T4", "4.0", {})


# Output -----------------------------------------------------------------------------------------


def test_the_printed_table_has_a_column_with_its_unit_for_each_value(
    write: WriteExperiment, command: RunGpusim, tmp_path: Path
) -> None:
    printed = command("run", write(DESIGN), "-o", tmp_path / "out", "--jobs", "1").stdout.splitlines()
    assert printed[1].split("  ")[0] == "GPU"
    assert "L2 capacity [MiB]" in printed[1]
    assert "DRAM peak bandwidth [GB/s]" in printed[1]
    assert printed[2].split()[:3] == ["A100-SXM4-80GB", "40", "1000"]
    assert printed[8].split()[:3] == ["T4", "4", "320"]


def test_a_gpu_without_the_key_has_an_empty_cell(write: WriteExperiment) -> None:
    text = DESIGN.replace("l2.capacity_mib: [1x, 1.5x, 60.5]", "instructions.imma_16832.latency_cycles: [1x, 2x]")
    *_, t4 = load_experiment(write(text)).gpus.values()
    assert t4.values == {"instructions.imma_16832.latency_cycles": "", DRAM: 320.0}


def test_the_command_line_gives_lists_to_a_gpu_of_an_experiment(write: WriteExperiment) -> None:
    overrides = (
        "gpus.1.overrides.l2.capacity_mib=1x,2x",
        "gpus.1.zip={l2.partitions: [1, 2], sm.count: [40, 50]}",
        "gpus.0.overrides.l2.capacity_mib=[50]",
        "gpus.0.latin_hypercube.samples=2",
        "gpus.0.latin_hypercube.ranges.sm.count.min=80",
        "gpus.0.latin_hypercube.ranges.sm.count.max=120",
    )
    experiment = load_experiment(write(DESIGN), overrides)
    a100s = [one for one in experiment.gpus.values() if one.name == "A100-SXM4-80GB"]
    t4s = [one for one in experiment.gpus.values() if one.name == "T4"]
    assert {one.values[L2] for one in a100s} == {50}
    assert len(a100s) == 2 * 2
    assert [(one.values[L2], one.values[SMS]) for one in t4s] == [(4.0, 40), (4.0, 50), (8.0, 40), (8.0, 50)]


# Refusals ---------------------------------------------------------------------------------------


LIST = "[1x, 1.5x, 60.5]"
OF_L2 = ":5: gpus.0.overrides.l2.capacity_mib: "
OF_RANGES = ":8: gpus.0.latin_hypercube.ranges."


def with_list(values: str) -> tuple[str, str]:
    return LIST, values


def with_line(line: str) -> tuple[str, str]:
    return "  - T4", f"    {line}"


def with_cube(old: str, new: str) -> tuple[str, str]:
    return with_line(CUBE.replace(old, new))


REFUSALS = [
    (("l2.cap", "l2.kap"), ":5: gpus.0.overrides.l2.kapacity_mib: no such value; did you mean l2.capacity_mib?"),
    (with_list("[60MiB]"), OF_L2 + "'60MiB': its unit is that of the key; write the number alone, or a multiple"),
    (with_list("[-1]"), OF_L2 + "should be greater than or equal to 0.125, got -1; correct it"),
    (with_list("[true]"), OF_L2 + "should be a valid number, got True"),
    (with_list("[big]"), OF_L2 + "should be a valid number, got 'big'"),
    (with_list("40, [50"), OF_L2 + "not YAML: "),
    (with_list("[]"), OF_L2 + "an empty list; add a value"),
    (
        with_list("[1x, 40]"),
        ":3: gpus.0: 'A100-SXM4-80GB, L2 capacity 40 MiB, DRAM peak bandwidth 1000 GB/s' appears twice; vary",
    ),
    (with_list(str([*range(1, 502)])), f": 1002 combinations, more than {MOST_POINTS}; shorten a list"),
    (
        ("l2.capacity_mib: [1x", "load_store.async_copy: [2x"),
        ":5: gpus.0.overrides.load_store.async_copy: '2x' is a multiple of True, which is not a number",
    ),
    (
        (f"l2.capacity_mib: {LIST}", "l2.latency_cycles: [1x, 2x]"),
        "swap them; in the combination l2.latency_cycles 410, dram.peak_bandwidth_gb_per_s 1000",
    ),
    (
        with_line("zip: {sm.count: [1, 2], l2.partitions: [1]}"),
        ":8: gpus.0.zip.l2.partitions: 1 values, but sm.count has 2",
    ),
    (with_line("zip: {sm.count: 8}"), ":8: gpus.0.zip.sm.count: no list; write the values in brackets"),
    (with_line("zip: {l2.capacity_mib: [1, 2]}"), ":8: gpus.0.zip.l2.capacity_mib: " + "given twice; keep one"),
    (with_line(CUBE), OF_RANGES + "l2.capacity_mib: " + "given twice; keep one"),
    (with_cube("seed", "sede"), ":8: gpus.0.latin_hypercube.sede: unknown key; did you mean seed?"),
    (with_cube(": 8", ": 5000"), ":8: gpus.0.latin_hypercube.samples: "),
    (with_cube("scale: log", "scale: logs"), OF_RANGES + "l2.capacity_mib.scale: "),
    (with_cube(L2, "l2.partitons"), OF_RANGES + "l2.partitons: no such value; did you mean l2.partitions?"),
    (with_cube(L2, "dram.technology"), OF_RANGES + "dram.technology: a range needs numbers"),
    (with_cube("4x", ".25x"), OF_RANGES + "l2.capacity_mib: a range from 20 to 10 is empty; swap or correct its ends"),
    (with_cube("0.5x", "0"), OF_RANGES + "l2.capacity_mib: a logarithmic range cannot start at 0; write scale: linear"),
]


@pytest.mark.parametrize(("change", "problem"), REFUSALS, ids=[change[1].strip()[:40] for change, _ in REFUSALS])
def test_what_cannot_be_is_one_line_at_its_place(
    write: WriteExperiment, command: RunGpusim, tmp_path: Path, change: tuple[str, str], problem: str
) -> None:
    assert change[0] in DESIGN
    line = refused(command("run", write(DESIGN.replace(*change, 1)), "-o", tmp_path / "out"))
    assert problem in line
    assert not (tmp_path / "out").exists()


def test_a_contradiction_of_single_values_names_no_combination(a100: Spec) -> None:
    with pytest.raises(OverrideError, match=r"swap them$"):
        design_points(a100, {"l2.latency_cycles": 500})


def test_a_thousand_points_take_seconds_at_most(a100: Spec) -> None:
    began = time.process_time()
    points = design_points(a100, {L2: list(range(20, 60)), SMS: list(range(84, 109))})
    assert len({point.spec.system.content_hash for point in points}) == MOST_POINTS
    assert time.process_time() - began < 8  # 1.3 ms each on the machine that this was written on
