"""``gpusim validate`` on tables of several kinds: each is known by its columns, and all are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import RunGpusim, WriteRuns, measured_line, refused

from gpusim.evidence.fields import MeasuredError
from gpusim.studies.validation.collectives import COLLECTIVES, validate_collectives
from gpusim.studies.validation.kinds import KINDS, by_kind
from gpusim.studies.validation.session import OPERATORS
from gpusim.studies.validation.traced_kernels import TRACED_KERNELS, validate_traced_kernels

TRACE = (
    "board,source,op,shapes,dtypes,numel_max,kernel,grid,block,time_us\n"
    't4,own,add,"65536,65536","f32,f32",65536,"void at::native::elementwise_kernel<128, 4>",128x1x1,128x1x1,8\n'
)
RUNS = "op,gpu,num_gpus,gpus_per_node,size_elements_or_bytes,time_us\nall_reduce,a100_dgx,8,8,1048576,40\n"
TWO_NODES = "all_reduce,a100_dgx,16,8,1048576,90\n"


@pytest.fixture
def collectives(tmp_path: Path) -> Path:
    path = tmp_path / "collectives.csv"
    path.write_text(RUNS + TWO_NODES, encoding="utf-8")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    return path


def test_tables_are_taken_by_the_first_kind_that_knows_their_columns(
    write_runs: WriteRuns, collectives: Path, trace: Path, tmp_path: Path
) -> None:
    operators, unknown = write_runs([measured_line((64, 64, 64), 9.0)]), tmp_path / "unknown.csv"
    unknown.write_text("a,b\n1,2\n", encoding="utf-8")
    given = [collectives, operators, trace, unknown]
    assert by_kind(given) == {COLLECTIVES: [collectives], OPERATORS: [operators, unknown], TRACED_KERNELS: [trace]}
    assert [kind.name for kind in KINDS if not kind.known_by] == [KINDS[-1].name]  # what others leave is its


def test_tables_of_several_kinds_are_all_reported(
    command: RunGpusim, write_runs: WriteRuns, collectives: Path, trace: Path
) -> None:
    operators = write_runs([measured_line((512, 512, 512), 30.0), measured_line((64, 64, 64), 9.0)])
    done = command("validate", collectives, operators, trace, "--format", "json")
    assert done.returncode == 1  # a row of two nodes
    found = json.loads(done.stdout)
    alone = {
        name: json.loads(command("validate", path, "--format", "json").stdout)
        for name, path in (("collectives", collectives), ("operators", operators), ("kernels out of traces", trace))
    }
    assert list(found["reports"]) == list(alone)
    assert [one["file"] for one in found["tables"]] == [str(collectives)] * 2 + [str(operators)]
    counted = ("rows", "predicted", "skipped")
    assert {name: found["overall"][name] for name in counted} == {
        name: sum(one["overall"][name] for one in alone.values()) for name in counted
    }
    errors = [(one["overall"]["mape"], one["overall"]["predicted"]) for one in alone.values()]
    assert found["overall"]["mape"] == pytest.approx(sum(mape * rows for mape, rows in errors) / 4)
    titles = ("Predicted against measured collectives", "Predicted against measured (sampled)", "Not predicted")
    shown = command("validate", collectives, operators, trace).stdout
    assert all(title in shown for title in (*titles, "Predicted against recorded kernels"))


def test_an_option_that_one_of_several_kinds_does_not_read_is_refused(
    command: RunGpusim, write_runs: WriteRuns, collectives: Path
) -> None:
    operators = write_runs([measured_line((64, 64, 64), 9.0)])
    assert "--strata: not for tables of collectives" in refused(command("validate", operators, collectives, "--strata"))


def test_a_table_of_any_kind_that_is_named_twice_is_refused(collectives: Path, trace: Path) -> None:
    with pytest.raises(MeasuredError, match="named twice"):
        validate_collectives([collectives, collectives])
    with pytest.raises(MeasuredError, match="named twice"):
        validate_traced_kernels([trace, str(trace)])
