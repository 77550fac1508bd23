"""What would make a workload faster on the same board: changes that rules propose, each predicted.

A rule looks at a prediction and proposes changed workloads. Each of them is predicted like any other, and becomes
advice where its time for the same work is at least 1 % shorter; nothing is said that was not predicted. A change that
the board cannot run, or whose step does not fit into memory, is not advice.

| rule | proposes |
|---|---|
| alignment | those of m, n and k along which memory runs as multiples of 16 bytes |
| last wave | m, or the batch, that fills the last wave, where SMs idle for 5 % of the time, up to twice it |
| data type | the next smaller types, which round more |
| accumulator | FP16 for FP16 operands, which rounds more |
| sparsity | a pruned A (2:4) |
| kernel | each alternative of the ranking |
| CUDA graph | a step as a graph, where the GPU waits for the host for 1 % of the time |
| fusion | chains of elementwise operators, and attention, as one kernel each |
| precision | the next lower precisions, which round more |
| batch | twice the batch, for the same number of items |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpusim.execution.cases import CaseResult, OperatorWorkload
from gpusim.numbers.formats import Dtype
from gpusim.prediction.results import Result
from gpusim.studies.explain.parts import Part
from gpusim.studies.workload import Predicted, Workload, total_us
from gpusim.workloads.gemm import Gemm

if TYPE_CHECKING:
    from gpusim.execution.models import ModelWorkload
    from gpusim.models.policy import Precision
    from gpusim.step.model import ModelResult, StepSummary

LEAST_GAIN = 0.01
"""Fraction of the time below which a gain is not worth a line; how exact predictions are is another matter."""
LEAST_IDLE = 0.05
"""Share of the time in which SMs idle, from which the last wave is looked at."""
MOST_GROWTH = 2.0
"""Largest growth of a GEMM that fills its last wave: one that grows more is another workload."""
ALIGNED_BITS = 128
"""What one instruction of a thread loads at most: rows that begin elsewhere are loaded in smaller pieces."""
OF_8_BITS = tuple(one for one in Dtype if one.bits == 8)
SMALLER_TYPES: Mapping[Dtype, tuple[Dtype, ...]] = {
    Dtype.FP64: (Dtype.FP32,),
    Dtype.FP32: (Dtype.TF32, Dtype.BF16, Dtype.FP16),
    Dtype.TF32: (Dtype.BF16, Dtype.FP16),
    Dtype.BF16: OF_8_BITS,
    Dtype.FP16: OF_8_BITS,
}
LOWER_PRECISIONS: Mapping[Precision, tuple[Precision, ...]] = {
    "fp32": ("tf32", "amp-fp16", "amp-bf16"),
    "tf32": ("amp-fp16", "amp-bf16"),
    "amp-fp16": ("fp16", "int8"),
    "amp-bf16": ("bf16", "int8"),
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A changed workload."""

    rule: str
    text: str
    """Change to make, as an imperative."""
    workload: Workload
    work: float = 1.0
    """Work of the changed workload over that of the original."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that makes a workload faster, as predicted."""

    rule: str
    text: str
    total_us: float
    """Predicted for the work of the original [us]."""
    gain_us: float
    speedup: float


def proposals(workload: Workload, result: Predicted, parts: Sequence[Part]) -> list[Proposal]:
    """Proposals of all rules."""
    if not isinstance(workload, OperatorWorkload):
        assert not isinstance(result, Result)
        return list(_of_model(workload, result, parts))
    assert isinstance(result, Result)
    return list(_of_product(workload, result, parts)) if isinstance(workload.operator, Gemm) else []


def advice(
    proposed: Sequence[Proposal],
    outcomes: Sequence[CaseResult[Result | StepSummary]],
    whole_us: float,
    *,
    fitting: bool = True,
) -> tuple[Advice, ...]:
    """The proposals that are faster, the greatest gain first; of kernels only the best.

    Args:
        whole_us: Of the original.
        fitting: Whether the original fits into memory, as its changes then have to.
    """
    found: dict[str, Advice] = {}
    for proposal, outcome in zip(proposed, outcomes, strict=True):
        if outcome.result is None or (fitting and not outcome.result.fits):
            continue
        same_work_us = total_us(outcome.result) / proposal.work
        gain_us = whole_us - same_work_us
        if gain_us < LEAST_GAIN * whole_us:
            continue
        one = Advice(proposal.rule, proposal.text, same_work_us, gain_us, whole_us / same_work_us)
        key = proposal.rule if proposal.rule == "kernel" else proposal.text
        if key not in found or found[key].gain_us < gain_us:
            found[key] = one
    return tuple(sorted(found.values(), key=lambda one: (-one.gain_us, one.text)))


def _of_product(workload: OperatorWorkload, result: Result, parts: Sequence[Part]) -> Iterator[Proposal]:
    gemm = workload.operator
    assert isinstance(gemm, Gemm)

    def changed(rule: str, text: str, work: float = 1.0, **values: Any) -> Iterator[Proposal]:
        with suppress(ValueError):  # no such GEMM
            options = replace(workload.options, kernel=None)
            yield Proposal(rule, text, OperatorWorkload(replace(gemm, **values), options), work)

    aligned = max(1, ALIGNED_BITS // gemm.dtype.bits)
    padded = {name: -(-getattr(gemm, name) // aligned) * aligned for name in sorted(set(gemm.leading_dimensions))}
    padded = {name: size for name, size in padded.items() if size != getattr(gemm, name)}
    if padded:
        sizes = ", ".join(f"{name} from {getattr(gemm, name)} to {size}" for name, size in padded.items())
        yield from changed("alignment", f"Pad {sizes}.", **padded)
    yield from _fuller_wave(changed, gemm, result, parts)
    for dtype in SMALLER_TYPES.get(gemm.dtype, ()):
        text = f"Multiply in {dtype.value} instead of {gemm.dtype.value}, where its rounding is acceptable."
        yield from changed("data type", text, dtype=dtype, accumulate="", output="")
    if gemm.dtype is Dtype.FP16 and gemm.accumulate != "fp16":
        yield from changed("accumulator", "Accumulate in fp16, where its rounding is acceptable.", accumulate="fp16")
    if gemm.sparsity == "dense":
        yield from changed("sparsity", "Prune A to 2:4 sparsity.", sparsity="2:4")
    if workload.options.kernel is None and workload.options.detail != "bound":
        names = dict.fromkeys(one.kernel for one in result.alternatives if one.kernel != result.kernel)
        for name in names:
            options = replace(workload.options, kernel=name)
            yield Proposal("kernel", f"Use the kernel {name}.", OperatorWorkload(gemm, options))


def _fuller_wave(changed: Any, gemm: Gemm, result: Result, parts: Sequence[Part]) -> Iterator[Proposal]:
    """More rows, or a larger batch, in as many waves."""
    idle = sum(part.share for part in parts if part.name == "idle_sms")
    waves = result.launch.waves
    growth = -(-waves // 1) / waves
    if idle < LEAST_IDLE or not 1.0 < growth <= MOST_GROWTH:
        return
    name = "batch" if gemm.batch > 1 else "m"
    size = getattr(gemm, name)
    larger = int(size * growth + 1e-9)
    aligned = max(1, ALIGNED_BITS // gemm.dtype.bits)
    if name == "m" and larger > size + aligned:
        larger -= larger % aligned
    if larger > size:
        text = f"Fill the last wave: {name} of {larger} instead of {size}, for the same number of rows in all."
        yield from changed("last wave", text, larger / size, **{name: larger})


def _of_model(workload: ModelWorkload, result: ModelResult, parts: Sequence[Part]) -> Iterator[Proposal]:
    from gpusim.models.policy import PolicyError, default_layout  # noqa: PLC0415 -- of models alone

    policy = workload.policy

    def with_policy(rule: str, text: str, **values: Any) -> Iterator[Proposal]:
        with suppress(PolicyError):  # no such step
            yield Proposal(rule, text, replace(workload, policy=replace(policy, **values)))

    waiting = sum(part.share for part in parts if part.name == "host")
    if not workload.options.graphs and waiting >= LEAST_GAIN:
        graphs = replace(workload.options, graphs=True, compiled_host=False)
        yield Proposal("CUDA graph", "Replay the step as a CUDA graph.", replace(workload, options=graphs))
    if policy.fusion == "none":
        yield from with_policy("fusion", "Fuse chains of elementwise operators.", fusion="elementwise")
    if not policy.fuses_attention:
        yield from with_policy("fusion", "Use fused attention.", attention="fused")
    for precision in LOWER_PRECISIONS.get(policy.precision, ()):
        layout = default_layout(precision) if policy.layout == default_layout(policy.precision) else policy.layout
        text = f"Run in {precision} instead of {policy.precision}, where its rounding is acceptable."
        yield from with_policy("precision", text, precision=precision, layout=layout)
    batch = result.graph.sizes["batch"]
    text = f"Double the batch, {2 * batch} instead of {batch}, for the same number of items in all."
    yield Proposal("batch", text, replace(workload, sizes={**workload.sizes, "batch": 2 * batch}), 2.0)
