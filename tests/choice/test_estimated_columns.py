"""Estimates in columns: each row is what a prediction of its own gives, to the bit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim.lowering.gemm.problem import EXACT_SIZE
from gpusim.numbers.formats import Dtype
from gpusim.prediction.estimated_columns import SIZES, estimated_in_columns, is_columnar
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import field_kinds, values_of
from gpusim.prediction.selection import UnsupportedError
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

FIGURES = [name for name, kind in field_kinds().items() if kind in (int, float, bool, str)]
KINDS: list[tuple[str, Dtype, dict[str, Any], dict[str, Any]]] = [
    ("A100-SXM4-80GB", Dtype.FP16, {}, {}),
    ("A100-SXM4-80GB", Dtype.FP16, {"sparsity": "2:4"}, {"load": "burst"}),
    ("A100-SXM4-80GB", Dtype.FP32, {"beta": 1.0, "order": "column"}, {"load": "flushed"}),
    ("T4", Dtype.FP32, {}, {}),
    ("T4", Dtype.INT8, {"layout": "tn"}, {"load": "20"}),
    ("V100-SXM2-16GB", Dtype.FP16, {"layout": "nn"}, {"l2": "warm"}),
    ("H100-SXM5-80GB", Dtype.BF16, {"op": "linear", "bias": True}, {"operands": "zeros"}),
]


def random_sizes(count: int, seed: int) -> dict[str, Any]:
    draw = random.Random(seed)

    def size() -> int:
        exact = int(2 ** draw.uniform(0, 13.5))
        return max(8, exact // 8 * 8) if draw.random() < 0.6 else exact

    batches = [1 if draw.random() < 0.7 else draw.randint(2, 64) for _ in range(count)]
    return {"batch": np.array(batches), **{name: np.array([size() for _ in range(count)]) for name in "mnk"}}


def rows_of(columns: Mapping[str, Any], place: int) -> dict[str, Any]:
    values = ((name, columns[name]) for name in FIGURES)
    return {name: one[place].item() if isinstance(one, np.ndarray) else one for name, one in values}


@pytest.mark.parametrize(("board", "dtype", "kind", "how"), KINDS)
def test_a_row_of_the_columns_is_the_result_of_its_gemm(
    board: str, dtype: Dtype, kind: dict[str, Any], how: dict[str, Any]
) -> None:
    system, options = load_spec(board).system, Options("estimate", **how)
    gemm, sizes = Gemm(64, 64, 64, dtype, **kind), random_sizes(40, 7)
    assert is_columnar(system, gemm, options)
    limits, seen = set(), set()
    for rows, result in estimated_in_columns(system, gemm, options, sizes):
        columns = values_of(result)
        for place, row in enumerate(rows.tolist()):
            one = replace(gemm, **{name: sizes[name].item(row) for name in SIZES})
            alone = values_of(predict(system, one, options))
            assert repr(rows_of(columns, place)) == repr({name: alone[name] for name in FIGURES})
            limits.add(alone["clock_limit"])
            seen.add(row)
    for row in set(range(40)) - seen:
        with pytest.raises(UnsupportedError):
            _ = predict(system, replace(gemm, **{name: sizes[name].item(row) for name in SIZES}), options)
    if board == "T4" and dtype is Dtype.FP32:
        assert limits == {"power", "maximum"}


def test_rows_too_large_for_arrays_are_left_out() -> None:
    system, side = load_spec("T4").system, round(EXACT_SIZE ** (1 / 3))
    sizes = {"batch": np.ones(3, int), **{name: np.array([64, 2 * side, 65]) for name in "mnk"}}
    parts = estimated_in_columns(system, Gemm(64, 64, 64, Dtype.FP16), Options("estimate"), sizes)
    assert sorted(row for rows, _ in parts for row in rows.tolist()) == [0, 2]
    only = {name: column[1:2] for name, column in sizes.items()}
    assert not list(estimated_in_columns(system, Gemm(64, 64, 64, Dtype.FP16), Options("estimate"), only))


@pytest.mark.parametrize(
    ("gemm", "options"),
    [
        (Gemm(64, 64, 64, Dtype.FP16), Options()),
        (Gemm(64, 64, 64, Dtype.FP16), Options("estimate", limits=True)),
        (Gemm(64, 64, 64, Dtype.FP16, b_dtype=Dtype.INT4), Options("estimate")),
        (Gemm(64, 64, 64, Dtype.FP16, counts=(32, 32)), Options("estimate")),
    ],
)
def test_what_differs_in_more_than_sizes_has_no_columns(gemm: Gemm, options: Options) -> None:
    assert not is_columnar(load_spec("A100-SXM4-80GB").system, gemm, options)
