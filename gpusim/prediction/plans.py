"""Plans of an operator, with their launches and bounds: a case for each kind of operator.

A new kind of operator is a module of its own in ``gpusim.lowering`` and a case in each function here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.launch import Launch
from gpusim.library.catalogue import Kernel
from gpusim.lowering.attention.plan import AttentionPlan
from gpusim.lowering.convolution.depthwise import DepthwisePlan
from gpusim.lowering.convolution.plan import ConvolutionPlan
from gpusim.lowering.convolution.transforms import Transform
from gpusim.lowering.gemm.lower import lower, lower_tiles
from gpusim.lowering.gemm.plan import GemmPlan, plan
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.lowering.quantised import QuantisedPlan, quantising
from gpusim.lowering.vector.plan import VectorPlan, vector_plan
from gpusim.prediction.attention_selection import planned_attention
from gpusim.prediction.choose import AroundGemmCandidate, Candidate, GemmCandidate, OnlyCandidate, Ranking, candidates
from gpusim.prediction.convolution_selection import ranked_convolutions
from gpusim.prediction.options import Options
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.prediction.vector_selection import vector_kernel
from gpusim.roofline import TileFacts, attention_bounds_us, bounds_us, convolution_bounds_us, vector_bounds_us
from gpusim.system import System
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

Plan = GemmPlan | QuantisedPlan | ConvolutionPlan | DepthwisePlan | AttentionPlan | VectorPlan
"""How an operator may run; the union of the plans of all kinds of operators."""


def ranked_plans(system: System, operator: Operator, options: Options = Options()) -> Sequence[Candidate[Plan]]:
    """The plans that an operator may run on, the one a library would launch first.

    Raises:
        UnsupportedError: the GPU has no path for the operator, or the pinned kernel does not fit.
    """
    warm = options.l2 == "warm"
    match operator:
        case Gemm(quantise=""):
            return ranked_gemms(system, operator, options)
        case Gemm():
            before = _quantised(system, operator, options)
            return [QuantisedCandidate(before, one) for one in ranked_gemms(system, operator, options)]
        case Convolution():
            return ranked_convolutions(system, operator, options.kernel, options.unit, options.torch, warm=warm)
        case Attention():
            return [_candidate(system, planned_attention(system, operator, options.kernel, warm=warm), warm=warm)]
        case _:
            kernel = vector_kernel(system, operator, options.kernel, options.torch)
            return [_candidate(system, vector_plan(system.gpu, operator, kernel, warm=warm), warm=warm)]


@dataclass(frozen=True, slots=True)
class QuantisedCandidate(AroundGemmCandidate):
    """A way to run a GEMM after the kernel that quantises its activations."""

    before: VectorPlan
    gemm: GemmCandidate

    @property
    def estimate_us(self) -> float:
        return self.gemm.estimate_us

    @property
    def plan(self) -> QuantisedPlan:
        gemm = self.gemm.plan
        assert isinstance(gemm.operator, Gemm)
        return QuantisedPlan(gemm.operator, self.before, gemm)


def _quantised(system: System, gemm: Gemm, options: Options) -> VectorPlan:
    """The launch that quantises the activations, which the work before has left in L2 as far as they fit."""
    operator = quantising(gemm)
    kernel = vector_kernel(system, operator, version=options.torch, compiled=gemm.quantise == "compiled")
    return vector_plan(system.gpu, operator, kernel, warm=True)


def _candidate(system: System, planned: VectorPlan | AttentionPlan, *, warm: bool) -> OnlyCandidate:
    bounds = bounds_of(system.gpu, planned, system.gpu.clock.boost_mhz, warm=warm)
    return OnlyCandidate(planned, max(bounds.values()))


def launches_of(gpu: Gpu, planned: Plan, detail: str = "sampled") -> tuple[Launch | Schedule, ...]:
    """The launches of a plan, in order: for ``full`` with edge tiles as they are, for ``estimate`` GEMMs as schedules.

    Other launches have no estimate: frameworks choose their kernels by rule, so that no ranking estimates them.
    """
    match planned:
        case GemmPlan():
            return _launches_of_gemm(gpu, planned, detail)
        case ConvolutionPlan(before=before, gemm=gemm, after=after):
            launches = launches_of(gpu, gemm, detail)
            return (*_launches(before), *launches, *_launches(after))
        case AttentionPlan():
            return planned.launches
        case VectorPlan():
            return (planned.launch,)
        case QuantisedPlan(before=first, gemm=gemm):
            return (first.launch, *launches_of(gpu, gemm, detail))
        case DepthwisePlan():
            return planned.launches


def _launches_of_gemm(gpu: Gpu, planned: GemmPlan, detail: str) -> tuple[Launch | Schedule, ...]:
    if detail == "estimate":
        return planned.schedules
    return lower_tiles(gpu, planned) if detail == "full" else lower(planned)


def memsets_of(planned: Plan) -> int:
    """How many memsets stand before the launches of a plan."""
    match planned:
        case GemmPlan():
            return planned.memsets
        case ConvolutionPlan(gemm=gemm) | QuantisedPlan(gemm=gemm):
            return gemm.memsets
    return 0


def main_launch(planned: Plan) -> int:
    """The number of the launch that computes, of those of a plan."""
    if isinstance(planned, QuantisedPlan):
        return 1
    return len(planned.before) if isinstance(planned, ConvolutionPlan | AttentionPlan) else 0


def _launches(transforms: Sequence[Transform]) -> tuple[Launch, ...]:
    return tuple(one.lowered.launch for one in transforms)


def bounds_of(gpu: Gpu, planned: Plan, clock_mhz: float, *, warm: bool) -> dict[str, float]:
    """Lower bounds of a plan's time, by resource [us]."""
    match planned:
        case GemmPlan(main=main):
            gemm: Any = planned.operator
            of, staged = main.kernel, main.kernel.loop.in_shared_memory
            tile = TileFacts(*of.tile, staged, *of.cluster, stores_result=of.stores_result)
            return bounds_us(gpu, gemm, planned.instruction, clock_mhz, warm=warm, tile=tile)
        case ConvolutionPlan():
            return convolution_bounds_us(
                gpu,
                planned.operator,
                planned.instruction,
                clock_mhz,
                warm=warm,
                products_fraction=planned.products_fraction,
            )
        case DepthwisePlan(operator=convolution, instruction=instruction):
            return convolution_bounds_us(gpu, convolution, instruction, clock_mhz, warm=warm)
        case AttentionPlan(operator=attention, instruction=instruction, kernel=attention_kernel):
            multiplies = attention_kernel.family.multiplies
            return attention_bounds_us(gpu, attention, instruction, clock_mhz, warm=warm, multiplies=multiplies)
        case VectorPlan():
            return vector_bounds_us(gpu, planned.operator, clock_mhz, warm=warm)
        case QuantisedPlan(gemm=gemm):
            return bounds_of(gpu, gemm, clock_mhz, warm=warm)


def ranked_gemms(system: System, gemm: Gemm, options: Options = Options()) -> Ranking:
    """The plans of a GEMM by itself, without what quantises its activations; as :func:`ranked_plans`."""
    if gemm.b_dtype is not None and options.kernel is None:
        return _ranked_as_timed(system, gemm, options)
    kernels = usable_kernels(system, gemm, options.kernel, options.unit)
    ranked = candidates(system, gemm, kernels, warm=options.l2 == "warm", clock_mhz=system.gpu.clock.boost_mhz)
    if not ranked:
        raise UnsupportedError(_misfit(system.gpu, gemm, kernels[0]))
    return ranked


def _ranked_as_timed(system: System, gemm: Gemm, options: Options) -> Ranking:
    """Plans of a product with narrow weights, whose program has timed its kernels with powers of two of tokens.

    It launches what was fastest with the next of them (NVIDIA/TensorRT-LLM cpp/tensorrt_llm/plugins/common/
    gemmPluginProfiler.cpp, getBestConfig).
    """
    tokens = 1 << (gemm.m - 1).bit_length()
    timed, warm = replace(gemm, m=tokens), options.l2 == "warm"
    kernels = usable_kernels(system, timed, None, options.unit)
    clock_mhz = system.gpu.clock.boost_mhz
    ranked = candidates(system, timed, kernels, warm=warm, clock_mhz=clock_mhz)
    if not ranked:
        raise UnsupportedError(_misfit(system.gpu, gemm, kernels[0]))
    library = replace(system.library, fixed_split_k=ranked[0].split_k)
    fixed = replace(system, library=library)
    return candidates(fixed, gemm, (ranked[0].kernel,), warm=warm, clock_mhz=clock_mhz)


def _misfit(gpu: Gpu, gemm: Gemm, kernel: Kernel) -> str:
    """Why a kernel cannot run on an SM."""
    name = kernel.printed_name(gemm.blas_call.layout, gemm.dtype)
    try:
        plan(gpu, gemm, kernel)
    except DoesNotFitError as error:
        return f"{name} does not fit: {error}"
    raise AssertionError(f"{name} fits {gpu.name}")
