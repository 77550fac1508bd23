"""Pydantic field types of YAML documents with operators; lists may be given as a single value."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from gpusim.numbers.formats import Dtype, accumulator_named, result_named
from gpusim.record import ALSO_SINGLE, AlsoWritten, as_list
from gpusim.units import LARGEST_SIZE
from gpusim.workloads.conditions import L2State, checked_load
from gpusim.workloads.convolution import ConvolutionOp
from gpusim.workloads.gemm import Layout, Sparsity
from gpusim.workloads.sizes import parse_sizes
from gpusim.workloads.vector import VectorOp

_Listed = BeforeValidator(as_list)
_NotEmpty = Field(min_length=1)

Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
Padding = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
Sizes = Annotated[tuple[int, ...], BeforeValidator(parse_sizes), _NotEmpty, AlsoWritten(int | str | list[int | str])]
"""Sizes, or ``start:end:step`` ranges of them."""
Dtypes = Annotated[tuple[Dtype, ...], _Listed, _NotEmpty, ALSO_SINGLE]
Layouts = Annotated[tuple[Layout, ...], _Listed, _NotEmpty, ALSO_SINGLE]
Sparsities = Annotated[tuple[Sparsity, ...], _Listed, _NotEmpty, ALSO_SINGLE]
ConvolutionOps = Annotated[tuple[ConvolutionOp, ...], _Listed, _NotEmpty, ALSO_SINGLE]
VectorOps = Annotated[tuple[VectorOp, ...], _Listed, _NotEmpty, ALSO_SINGLE]
L2States = Annotated[tuple[L2State, ...], _Listed, _NotEmpty, ALSO_SINGLE]
Accumulator = Annotated[str, AfterValidator(lambda name: name and accumulator_named(name))]
"""Accumulator format; the default of the data type if empty."""
Output = Annotated[str, AfterValidator(lambda name: name and result_named(name))]
"""Format of C; the default of the data type if empty."""
RunLoad = Annotated[str, BeforeValidator(checked_load), AlsoWritten(int)]
"""``sustained``, ``burst``, ``flushed`` or a number of calls back to back."""
