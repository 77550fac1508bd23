"""Records of number formats against the libraries that implement them, and against each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpusim
from gpusim.numbers.formats import ACCUMULATORS, DTYPE_IN_KERNEL_NAME, FORMATS, RESULTS, Dtype, NumberFormat
from gpusim.numerics.rounding import storage

IN_ARRAYS = [one for one in FORMATS.values() if not one.stored_as]


@pytest.mark.parametrize("one", [one for one in IN_ARRAYS if not one.is_integer], ids=lambda one: one.name)
def test_a_floating_point_format_has_the_limits_that_its_library_states(one: NumberFormat) -> None:
    facts: Any = ml_dtypes.finfo(storage(one))  # type: ignore[no-untyped-call]
    stated = (facts.nmant, facts.nexp, facts.max, facts.smallest_normal, facts.smallest_subnormal)
    ours = (one.mantissa_bits, one.exponent_bits, one.largest, one.smallest_normal, one.smallest)
    assert ours == tuple(float(value) for value in stated)


@pytest.mark.parametrize("one", [one for one in IN_ARRAYS if one.is_integer], ids=lambda one: one.name)
def test_an_integer_format_has_the_limits_that_its_library_states(one: NumberFormat) -> None:
    facts: Any = ml_dtypes.iinfo(storage(one))  # type: ignore[no-untyped-call]
    assert (one.bits, one.largest) == (facts.bits, facts.max)


def test_tf32_has_the_range_of_fp32_and_the_precision_of_fp16() -> None:
    tf32, fp32, fp16 = (FORMATS[name] for name in ("tf32", "fp32", "fp16"))
    assert (tf32.smallest_normal, tf32.exponent_bits) == (fp32.smallest_normal, fp32.exponent_bits)
    assert tf32.mantissa_bits == fp16.mantissa_bits
    assert storage(tf32) == np.float32


def test_bits_are_sign_exponent_and_mantissa() -> None:
    for one in IN_ARRAYS:
        assert one.bits == 1 + one.exponent_bits + one.mantissa_bits


def test_every_operand_type_has_a_record_and_records_refer_to_records() -> None:
    assert {dtype.value for dtype in Dtype} <= set(FORMATS)
    for one in FORMATS.values():
        assert one.accumulator in ACCUMULATORS
        assert one.output in RESULTS
        assert {one.stored_as, one.counted_as} <= {"", *FORMATS}


def test_no_name_stands_for_two_formats() -> None:
    for kind in ("others", "traced", "cpp", "kernels"):
        names = [name for one in FORMATS.values() for name in getattr(one.names, kind)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("torch.bfloat16", Dtype.BF16), ("Half", Dtype.FP16), ("float8_e4m3fn", Dtype.FP8), ("s8", Dtype.INT8)],
)
def test_a_data_type_is_found_by_its_other_names(text: str, dtype: Dtype) -> None:
    assert Dtype(text) is dtype


def test_both_fp8_formats_are_one_data_type_of_the_schema() -> None:
    assert DTYPE_IN_KERNEL_NAME["e5m2"] is DTYPE_IN_KERNEL_NAME["e4m3"] is Dtype.FP8
    with pytest.raises(ValueError, match="e5m2"):
        Dtype("e5m2")


WORDS_OF_OTHERS = {
    "measure/instructions.py",  # mnemonics of PTX
}


def test_no_other_module_knows_the_formats_of_fp8() -> None:
    package = Path(gpusim.__file__).parent
    naming = set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        named = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        named += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        ]
        if any(re.search("e4m3|e5m2", name, re.IGNORECASE) for name in named):
            naming.add(path.relative_to(package).as_posix())
    assert naming == {"numbers/formats.py", *WORDS_OF_OTHERS}
