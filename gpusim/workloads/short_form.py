"""An operator in one word, as commands take it: ``gemm:4096x4096x4096:fp16``, ``softmax:8192x1024:fp32``.

The parts between colons are the name of the operator, its sizes, its data type, and further values ``name=value`` with
the names that :func:`gpusim.predict` and measured tables have. Sizes are m x n x k, or m x n of an operator on rows;
four of them begin with the batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpusim.errors import excerpt
from gpusim.workloads.operators import OPS, Operator, parse_operator

PRODUCT = "gemm"
DEFAULT_DTYPE = "fp16"
_SIZES = re.compile(r"[0-9]+(x[0-9]+)*")
_NAMES = ("m", "n", "k")


def is_operator(text: str) -> bool:
    """Whether a text names an operator, and not a model or a file.

    >>> is_operator("gemm:64x64x64"), is_operator("bert_large"), is_operator("models/mine.yaml")
    (True, False, False)
    """
    return text.partition(":")[0] in OPS


def is_sizes(text: str) -> bool:
    """Whether a text states the sizes of an operator without its name.

    >>> is_sizes("64x64x64"), is_sizes("64x64x64:fp16"), is_sizes("resnet50")
    (True, True, False)
    """
    return _SIZES.fullmatch(text.partition(":")[0]) is not None


def operator_of(text: str) -> Operator:
    """The operator that a text stands for.

    >>> operator_of("gemm:8x128x64x32:bf16:layout=nn").columns["batch"]
    8
    >>> operator_of("softmax:8192x1024:fp32")
    Softmax(m=8192, n=1024, dtype=<Dtype.FP32: 'fp32'>)

    Raises:
        ValueError: a part that cannot be read, or values that make no operator; one line.
    """
    op, *parts = text.split(":")
    values: dict[str, Any] = {}
    for part in parts:
        for name, value in _values(part).items():
            if name in values:
                raise ValueError(f"{excerpt(text)}: {name} is given twice; keep one")
            values[name] = value
    named = {} if op == PRODUCT else {"op": op}
    try:
        return parse_operator({"dtype": DEFAULT_DTYPE, **values, **named})
    except ValueError as error:
        raise ValueError(f"{excerpt(text)}: {error}; write OP:SIZES:TYPE, such as gemm:4096x4096x4096:fp16") from None


def _values(part: str) -> Mapping[str, str]:
    """What a part between colons states: sizes, named values, or the data type."""
    name, equals, value = part.partition("=")
    if equals:
        return {name: value}
    if not _SIZES.fullmatch(part):
        if part[:1].isdigit():
            raise ValueError(f"{excerpt(part)}: sizes cannot be read; write them as 4096x4096x4096")
        return {"dtype": part}
    sizes = part.split("x")
    if len(sizes) > len(_NAMES) + 1:
        raise ValueError(f"{excerpt(part)}: {len(sizes)} sizes; write m x n x k, or batch x m x n x k")
    names = ("batch", *_NAMES) if len(sizes) > len(_NAMES) else _NAMES
    return dict(zip(names, sizes, strict=False))
