"""The Python API: predictions from named arguments. The command line calls the same functions.

Public names are attributes of ``gpusim``, which imports them on first use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypedDict, Unpack

from gpusim.cuda_version import CudaVersion
from gpusim.errors import InputError, did_you_mean
from gpusim.execution.cases import Case, OperatorCase, OperatorWorkload
from gpusim.hardware.gpu import Gpu, Unit
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict as predict_operator
from gpusim.prediction.results import Result
from gpusim.specs import load_spec, with_overrides
from gpusim.system import System
from gpusim.workloads.operators import Operator, parse_operator

DEFAULT_DTYPE = "fp16"


class ArgumentError(InputError):
    """An argument that is unknown, missing or invalid; the text names it and what it may be."""


class UnknownArgumentError(ArgumentError, TypeError):
    """An argument of an unknown name; also a ``TypeError``, as Python raises."""


class GpuArguments(TypedDict, total=False):
    """What :func:`load_system` takes by name."""

    overrides: Mapping[str, Any] | None
    cuda: CudaVersion | str | int | None
    arch_path: Iterable[str | os.PathLike[str]]


class Arguments(GpuArguments, total=False):
    """What :func:`predict` takes by name: the values of an operator, how to predict it, and what its GPU is."""

    op: str
    m: int
    n: int
    k: int
    dtype: str | Dtype
    batch: int
    layout: str
    sparsity: str
    accumulate: str
    order: str
    output_dtype: str
    bias: str | bool
    beta: float
    b_dtype: str | Dtype | None
    group: int | None
    scales: str
    quantise: str
    counts: str | Iterable[int]
    heads: int
    key_heads: int | None
    causal: str | bool
    mask: str | bool
    dropout: str | bool
    packed: str | bool
    appends: str | bool
    page_tokens: int | None
    window: int | None
    mask_by: str
    alibi: str | bool
    implementation: str
    kv_dtype: str | Dtype | None
    function: str
    reads: str
    writes: str
    detail: str
    l2: str
    load: str | int
    operands: str
    kernel: str | None
    unit: Unit | None
    torch: str
    limits: bool


def load_system(
    name: str | os.PathLike[str],
    *,
    overrides: Mapping[str, Any] | None = None,
    cuda: CudaVersion | str | int | None = None,
    arch_path: Iterable[str | os.PathLike[str]] = (),
) -> System:
    """A GPU by name, alias, nvidia-smi name or spec file, with the library and the host that its spec names.

    >>> load_system("t4").gpu.sm.count, load_system("t4", overrides={"sm.count": 80}).gpu.sm.count
    (40, 80)

    Args:
        name: Name, alias, nvidia-smi name or spec file.
        overrides: Values of the spec to replace, by key path, as ``--set`` does.
        cuda: CUDA version of the library that selects kernels, such as 12 or "12.4"; None for the newest known.
        arch_path: Folders of additional specs, searched first.

    Raises:
        SpecError: No such GPU, or a spec that is wrong; the text has file and line.
    """
    spec = load_spec(os.fspath(name), arch_path, cuda=cuda)
    return (with_overrides(spec, overrides) if overrides else spec).system


def load_gpu(name: str | os.PathLike[str], **arguments: Unpack[GpuArguments]) -> Gpu:
    """The GPU of :func:`load_system` alone, such as :meth:`gpusim.Machine.of` takes.

    >>> load_gpu("t4").l2.capacity_mib
    4.0

    Args:
        name: Name, alias, nvidia-smi name or spec file.
        arguments: ``overrides``, ``cuda`` and ``arch_path``, as :func:`load_system` takes them.

    Raises:
        SpecError: No such GPU, or a spec that is wrong; the text has file and line.
    """
    return load_system(name, **arguments).gpu


def case(
    arch: str | os.PathLike[str] | System, operator: Operator | None = None, **arguments: Unpack[Arguments]
) -> OperatorCase:
    """The system, operator and options that the arguments of :func:`predict` describe.

    Raises:
        ArgumentError: An argument is unknown, missing or invalid.
        SpecError: No such GPU.
    """
    check_names(arguments)
    given: dict[str, Any] = dict(arguments)
    of_gpu = {name: given.pop(name) for name in GpuArguments.__annotations__ if name in given}
    system = system_of(arch, of_gpu)
    return Case(system, workload_of(operator, **given))


def workload_of(operator: Operator | None = None, **arguments: Any) -> OperatorWorkload:
    """The operator and options that the arguments of :func:`predict`, but those of its GPU, describe.

    Raises:
        ArgumentError: An argument is unknown, missing or invalid.
    """
    check_names(arguments)
    of_options = {item.name: arguments.pop(item.name) for item in fields(Options) if item.name in arguments}
    try:
        return OperatorWorkload(_operator(operator, arguments), Options(**of_options))
    except ValueError as error:
        raise ArgumentError(str(error)) from None


def _operator(operator: Operator | None, values: Mapping[str, Any]) -> Operator:
    """The operator that is given, or the one that named values describe."""
    if operator is None:
        return parse_operator({"dtype": DEFAULT_DTYPE, **values})
    if values:
        raise ValueError(f"{', '.join(values)}: values of an operator, which is given as {operator}; keep one")
    return operator


def check_names(names: Iterable[str]) -> None:
    """Refuse what is not an argument of :func:`predict`."""
    for name in names:
        if name not in Arguments.__annotations__:
            raise UnknownArgumentError(f"unknown argument '{name}'{did_you_mean(name, Arguments.__annotations__)}")


def system_of(arch: str | os.PathLike[str] | System, arguments: Mapping[str, Any]) -> System:
    """The system of the GPU that is named, with the arguments of :func:`load_system`, or the one that is given.

    Raises:
        ArgumentError: There are arguments for one that is given.
        SpecError: No such GPU.
    """
    if isinstance(arch, Gpu):
        raise ArgumentError("arch: a Gpu alone has no library and no host; give a name, or load_system(...)")
    if not isinstance(arch, System):
        return load_system(arch, **arguments)
    if arguments:
        raise ArgumentError(f"{', '.join(arguments)}: only for a GPU by name; give them to load_system")
    return arch


def predict(
    arch: str | os.PathLike[str] | System, operator: Operator | None = None, **arguments: Unpack[Arguments]
) -> Result:
    """Predict one operator on one GPU, as ``gpusim gemm`` does.

    >>> result = predict("t4", m=4096, n=4096, k=4096, dtype="fp16")
    >>> result.bottleneck, result.time_us > result.timing.bound_us
    ('power', True)
    >>> import gpusim
    >>> predict("t4", gpusim.Gemm(64, 64, 64, gpusim.Dtype.FP16)) == predict("t4", m=64, n=64, k=64)
    True

    Args:
        arch: GPU by name, alias, nvidia-smi name or spec file; or what :func:`load_system` gives.
        operator: A record such as :class:`gpusim.Gemm`, in place of the values of one below.
        op: Operator, as in measured tables: ``gemm`` (a matrix multiplication, the default), ``linear``, ``bmm``,
            ``attention_fwd`` or ``attention_bwd``, or an operator on
            m rows of n elements (``softmax``, ``layernorm``, ``add``, ``gelu``, ``sum`` ...).
        m, n, k: Rows of C, columns of C, length of the sums; queries, keys and size of a head; or rows and columns.
        dtype: Data type of the operands; ``fp16`` if not given.
        batch, layout, sparsity, accumulate, order, output_dtype, bias, beta: Further properties of a matrix
            multiplication; see :class:`gpusim.Gemm` for values and defaults. C lies in rows unless ``order`` is
            ``column``; ``output_dtype`` is its type.
        b_dtype, group, scales, quantise, counts: The same of quantised operands, and of groups with weights of their
            own: ``b_dtype`` of weights, how many share a scale, what else has one, what quantises A within the call;
            rows of A for each group.
        batch, heads, key_heads, causal, mask, mask_by, alibi, dropout: Further properties of attention.
        packed, page_tokens, appends, window, implementation, kv_dtype: As a serving engine launches it; see
            :class:`gpusim.Attention`.
        function, reads, writes: What a ``pointwise``, ``row_reduction`` or ``column_reduction`` computes and touches,
            such as ``reads="4096 fp16, 4096 fp32 run 8"`` (:func:`gpusim.workloads.memory_bound.parse_accesses`).
        torch: Version of PyTorch whose kernels run, such as ``2.1``; the newest known if empty.
        detail: ``bound``, ``estimate``, ``sampled`` (default) or ``full``.
        l2: State of L2 at the start, ``cold`` (default) or ``warm``.
        load: ``sustained`` (default), ``burst``, ``flushed``, or a number of calls back to back.
        operands: What the operands hold, ``random`` (default), ``positive`` or ``zeros``; it changes energy and clock.
        kernel: Name of the kernel to use; selected as a library would if None.
        unit: ``cuda`` or ``tensor`` cores only; either if None.
        limits: Whether to find what would help, by further simulations; else the bottleneck is the busiest resource. By
            default where the detail simulates.
        overrides, cuda, arch_path: As :func:`load_system` takes them.

    Returns:
        Time [us], clock [MHz], rates, bytes and what limits the operator.

    Raises:
        SpecError: No such GPU.
        UnsupportedError: The GPU cannot run this operator; the text names what it can.
        ArgumentError: An argument is unknown, missing or invalid.
    """
    one = case(arch, operator, **arguments)
    return predict_operator(one.system, one.workload.operator, one.workload.options)
