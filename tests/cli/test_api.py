"""The Python API: the same predictions and the same words as on the command line, columns to columns, short results."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import RunGpusim, environment, refused

import gpusim
from gpusim.prediction.results import values_of

SHAPE: dict[str, Any] = {"m": 512, "n": 512, "k": 256}


def flags(arguments: dict[str, Any]) -> list[str]:
    """Arguments of ``predict`` as options of ``gpusim gemm``."""
    short = {"m", "n", "k"}
    pairs = (
        (f"-{name}" if name in short else f"--{name.replace('_', '-')}", str(value))
        for name, value in arguments.items()
    )
    return [word for pair in pairs for word in pair]


# The package ------------------------------------------------------------------------------------


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import gpusim; new = set(sys.modules) - before; "
        "print(sorted(name for name in new if name.partition('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout == "['gpusim', 'gpusim.version']\n"


def test_every_public_name_is_there_and_listed() -> None:
    assert set(gpusim.__all__) <= set(dir(gpusim))
    for name in gpusim.__all__:
        assert getattr(gpusim, name) is not None
    with pytest.raises(AttributeError, match="module 'gpusim' has no attribute 'predikt'"):
        _ = gpusim.predikt  # type: ignore[attr-defined]


def test_no_module_takes_the_name_of_a_public_function() -> None:
    assert [name for name in gpusim.__all__ if find_spec(f"gpusim.{name}")] == ["program"]  # which is a module


# predict ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"arch": "t4", **SHAPE},
        {"arch": "a100-sxm4-80gb", **SHAPE, "dtype": "bf16", "batch": 3, "layout": "nn", "l2": "warm", "load": "burst"},
        {"arch": "a100-sxm4-80gb", **SHAPE, "dtype": "int8", "sparsity": "2:4", "output_dtype": "fp16", "load": 25},
        {"arch": "v100-sxm2-16gb", **SHAPE, "unit": "cuda", "detail": "bound", "accumulate": "fp16"},
        {"arch": "v100-sxm2-16gb", **SHAPE, "operands": "zeros"},
        {"arch": "v100-sxm2-16gb", **SHAPE, "order": "column", "cuda": 10, "detail": "full"},
    ],
)
def test_a_prediction_is_that_of_the_command_line_to_the_byte(command: RunGpusim, arguments: dict[str, Any]) -> None:
    printed = command("gemm", *flags(arguments), "--format", "json").stdout
    assert json.dumps(gpusim.predict(**arguments).as_dict(), indent=2) + "\n" == printed


def test_a_gpu_can_be_loaded_once_and_changed() -> None:
    faster = gpusim.load_system("t4", overrides={"dram.peak_bandwidth_gb_per_s": 640})
    skinny: dict[str, Any] = {"m": 4, "n": 8192, "k": 8192}
    plain = gpusim.predict("t4", **skinny)
    assert gpusim.predict(faster, **skinny).time_us < plain.time_us
    assert gpusim.predict("t4", **skinny, overrides={"dram.peak_bandwidth_gb_per_s": 320.0}).time_us == plain.time_us
    with pytest.raises(gpusim.ArgumentError, match="overrides: only for a GPU by name; give them to load_system"):
        _ = gpusim.predict(faster, **skinny, overrides={"sm.count": 1})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"arch": "a100-sxm5-40gb"}, "a100-sxm5-40gb: unknown GPU; did you mean A100-SXM"),
        ({"dtype": "bf61"}, "unknown data type 'bf61'; nearest: bf16"),
        ({"dtype": "bf16"}, "T4 (compute capability 7.5) has no bf16 multiplication"),
        ({"detail": "sampeld"}, "'sampeld' is not one of 'bound', 'estimate', 'sampled', 'full'"),
        ({"l2": "hot"}, "'hot' is not one of 'cold', 'warm'"),
        ({"unit": "tenser"}, "'tenser' is not one of 'cuda', 'tensor'"),
        ({"load": "brust"}, "load brust: expected sustained, burst, flushed or a number of calls back to back"),
        ({"batch": 0}, "batch: expected a positive integer, got 0"),
        ({"output_dtype": "fp12"}, "output: expected one of"),
        ({"kernel": "turing_h1688gemm_128x129_tn"}, "no kernel 'turing_h1688gemm_128x129_tn'"),
    ],
)
def test_what_the_command_line_refuses_is_refused_in_the_same_words(
    command: RunGpusim, wrong: dict[str, Any], words: str
) -> None:
    arguments: dict[str, Any] = {"arch": "t4", **SHAPE, **wrong}
    with pytest.raises(gpusim.InputError) as error:
        _ = gpusim.predict(**arguments)
    assert isinstance(error.value, ValueError)
    assert words in str(error.value)
    assert words in refused(command("gemm", *flags(arguments)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"detail": "sampeld"}, "did you mean 'sampled'?"),
        ({"dtpye": "fp16"}, "unknown argument 'dtpye'; did you mean dtype?"),
        ({"bacth": 2}, "unknown argument 'bacth'; did you mean batch?"),
        ({"op": "sofmax"}, "op: unknown 'sofmax'; nearest: softmax"),
        ({"overrides": {"dram.peak_bandwith_gb_per_s": 1}}, "did you mean dram.peak_bandwidth_gb_per_s?"),
    ],
)
def test_a_typing_error_is_refused_with_the_nearest_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(gpusim.InputError) as error:
        _ = gpusim.predict("t4", **(SHAPE | wrong))
    assert words in str(error.value)


def test_an_unknown_argument_is_a_type_error_too() -> None:
    with pytest.raises(TypeError, match="unknown argument 'mm'"):
        _ = gpusim.predict("t4", **SHAPE, mm=1)  # type: ignore[call-arg]


def test_an_operator_may_be_a_record() -> None:
    product = gpusim.Gemm(512, 512, 256, gpusim.Dtype.FP16)
    assert gpusim.predict("t4", product, l2="warm") == gpusim.predict("t4", **SHAPE, l2="warm")
    with pytest.raises(gpusim.ArgumentError, match=r"m: values of an operator, which is given as Gemm\("):
        _ = gpusim.predict("t4", product, m=1)


def test_a_size_that_is_missing_is_named() -> None:
    with pytest.raises(gpusim.ArgumentError, match="k: missing"):
        _ = gpusim.predict("t4", m=64, n=64)


# Results ----------------------------------------------------------------------------------------


def test_a_result_is_short_to_read() -> None:
    result = gpusim.predict("a100-sxm4-80gb", m=4096, n=4096, k=4096, dtype="bf16")
    text = repr(result)
    assert text.startswith("<Result 4096x4096x4096 bf16 on A100-SXM4-80GB: ")
    assert f"{result.time_us:.4g} us" in text
    assert result.bottleneck in text
    assert len(text) < 150
    html = result._repr_html_()
    assert html.count("<tr>") == 4
    assert result.kernel in html
    oversize = gpusim.predict("t4", m=400000, n=400000, k=8, detail="bound")
    assert oversize.notes[0] in oversize._repr_html_()
    assert json.loads(json.dumps(result.as_dict()))["time_us"] == pytest.approx(result.time_us)


def test_an_operator_on_rows_is_asked_for_by_name() -> None:
    result = gpusim.predict("a100-sxm4-80gb", op="softmax", m=4096, n=1024, dtype="fp32", load="burst")
    assert repr(result).startswith("<Result softmax of 4096x1024 fp32 on A100-SXM4-80GB: ")
    assert " GB/s, " in repr(result)
    found = gpusim.sweep({"op": ["softmax", "add", "linear"]}, arch="t4", m=512, n=1024, k=256, dtype="fp32")
    assert found["skipped"].tolist() == ["", "", ""]
    refused = gpusim.sweep({"op": ["softmax"]}, arch="t4", m=512, n=1024, dtype="int8")
    assert (refused["m"].tolist(), refused["skipped"].tolist() != [""]) == ([512], True)
    assert found["time_us"][1] == gpusim.predict("t4", op="add", m=512, n=1024, dtype="fp32").time_us


# sweep ------------------------------------------------------------------------------------------


COLUMNS: dict[str, list[Any]] = {
    "arch": ["t4", "a100-sxm4-80gb", "t4"],
    "dtype": ["fp16", "bf16", "bf16"],
    "m": [1, 2, 3],
}


def test_every_row_is_predicted_as_by_itself() -> None:
    found = gpusim.sweep(COLUMNS, n=512, k=256)
    assert list(found)[:3] == ["arch", "dtype", "m"]
    for row in range(2):
        arguments = {name: values[row] for name, values in COLUMNS.items()}
        alone = values_of(gpusim.predict(**arguments, n=512, k=256))
        for name in found.keys() - {"arch", "skipped"}:
            assert found[name][row] == alone[name], name
        assert found["skipped"][row] == ""


def test_a_row_that_its_gpu_cannot_run_says_why_and_the_others_go_on() -> None:
    found = gpusim.sweep(COLUMNS, n=512, k=256)
    assert "T4 (compute capability 7.5) has no bf16 multiplication" in found["skipped"][2]
    assert math.isnan(found["time_us"][2])
    assert (found["kernel"][2], found["n"][2], found["detail"][2]) == ("", 512, "sampled")


def test_workers_change_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.execution.sweep.START_S", 0.0)
    columns = {"m": list(range(64, 64 * 20, 64))}
    alone, shared = (gpusim.sweep(columns, arch="t4", n=64, k=64, detail="bound", jobs=jobs) for jobs in (1, 2))
    assert alone.keys() == shared.keys()
    for name, values in alone.items():
        np.testing.assert_array_equal(values, shared[name])


def test_a_sweep_of_estimates_has_the_columns_that_single_predictions_give() -> None:
    table: dict[str, list[Any]] = {
        "arch": ["t4", "a100", "t4", "a100", "t4", "t4", "a100"],
        "m": [512, 4096, 1, 17, 64, 4096, 8192],
        "n": [512, 4096, 4096, 33, 64, 4096, 8192],
        "batch": [1, 1, None, 5, 1, 2, 1],
        "dtype": ["fp16", "fp16", "fp32", "int8", "bf16", "fp32", "fp16"],
    }
    alone, shared = (gpusim.sweep(table, k=1024, detail="estimate", jobs=jobs) for jobs in (1, 2))
    assert [bool(reason) for reason in alone["skipped"]] == [False, False, False, True, True, False, False]
    for name, column in alone.items():
        assert repr(column.tolist()) == repr(shared[name].tolist())
    for row, reason in enumerate(alone["skipped"].tolist()):
        given = {name: values[row] for name, values in table.items() if values[row] is not None}
        if reason:
            with pytest.raises(gpusim.UnsupportedError, match=re.escape(reason)):
                _ = gpusim.predict(**given, k=1024, detail="estimate")
        else:
            result = gpusim.predict(**given, k=1024, detail="estimate")
            assert (alone["time_us"][row], alone["kernel"][row], alone["time_us_p90"][row], alone["power_w"][row]) == (
                result.time_us,
                result.kernel,
                result.timing.time_us_p90,
                result.counters.power_w,
            )


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "x", True, 2**70])
def test_a_wrong_size_among_estimates_names_its_row(wrong: object) -> None:
    with pytest.raises(gpusim.ArgumentError, match=r"row 2: .*m"):
        _ = gpusim.sweep({"m": [64, 64, wrong, 0]}, arch="t4", n=64, k=64, detail="estimate")


def test_a_data_frame_gives_one_of_its_kind() -> None:
    sizes = {"m": [16, 64], "batch": [1, 2]}
    arrays = gpusim.sweep({name: np.array(values) for name, values in sizes.items()}, arch="t4", n=64, k=64)
    frame = gpusim.sweep(pd.DataFrame(sizes, index=[7, 9]), arch="t4", n=64, k=64)
    table = gpusim.sweep(pa.table(sizes), arch="t4", n=64, k=64)
    assert isinstance(frame, pd.DataFrame)
    assert isinstance(table, pa.Table)
    assert list(frame.index) == [7, 9]
    for name, values in arrays.items():
        assert isinstance(values, np.ndarray)
        assert frame[name].tolist() == table[name].to_pylist() == values.tolist()


def test_a_stream_that_can_be_read_once_gives_a_pyarrow_table() -> None:
    table = pa.table({"m": [16, 64]})
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    found = gpusim.sweep(stream, arch="t4", n=64, k=64)
    assert isinstance(found, pa.Table)
    assert found["m"].to_pylist() == [16, 64]
    assert found["time_us"].to_pylist() == gpusim.sweep({"m": [16, 64]}, arch="t4", n=64, k=64)["time_us"].tolist()


def test_a_missing_value_stands_for_the_default() -> None:
    frame = pd.DataFrame({"m": [64, 64], "dtype": ["fp32", None], "cuda": [math.nan, math.nan]})
    found = gpusim.sweep(frame, arch="t4", n=64, k=64, detail="bound")
    assert gpusim.predict("t4", m=64, n=64, k=64, detail="bound").time_us == found["time_us"][1]
    assert found["time_us"][0] == gpusim.predict("t4", m=64, n=64, k=64, dtype="fp32", detail="bound").time_us


def test_gpus_differ_by_row_in_what_is_changed() -> None:
    changes: list[Any] = [{"sm.count": 20}, {"sm.count": 40}, None]
    found = gpusim.sweep({"overrides": changes}, arch="t4", m=4096, n=4096, k=4096, detail="bound")
    assert found["sm_count"].tolist() == [20, 40, 40]


def test_a_table_without_rows_gives_columns_without_rows() -> None:
    found = gpusim.sweep({"m": []}, arch="t4", n=64, k=64)
    assert {len(values) for values in found.values()} == {0}


@pytest.mark.parametrize(
    ("columns", "same", "words"),
    [
        ({"m": [1, 0]}, {}, "row 1: m: expected a positive integer, got 0"),
        ({"m": [1], "arch": ["t4444"]}, {"arch": None}, "row 0: t4444: unknown GPU"),
        ({"m": [1], "dtpye": ["fp16"]}, {}, "unknown argument 'dtpye'; did you mean dtype?"),
        ({"m": [1], "n": [1]}, {}, "n: given as a column and for every row; keep one"),
        ({"m": [1], "batch": [1, 2]}, {}, "columns differ in length: m 1, batch 2"),
        ({"m": 64}, {}, "m: expected a sequence; give one value for every row as m=..."),
        ({"dtype": "fp16"}, {}, "dtype: expected a sequence; give one value for every row as dtype=..."),
        ({"m": [1]}, {"arch": None}, "row 0: arch: missing; give a column, or one GPU for every row"),
        ([1, 2], {}, "columns: expected a mapping or a data frame, got list"),
    ],
)
def test_wrong_columns_are_refused_with_the_row(columns: Any, same: dict[str, Any], words: str) -> None:
    constants: dict[str, Any] = {"arch": "t4", "n": 64, "k": 64, **same}
    constants = {name: value for name, value in constants.items() if value is not None}
    with pytest.raises(gpusim.InputError) as error:
        _ = gpusim.sweep(columns, **constants)
    assert words in str(error.value)
