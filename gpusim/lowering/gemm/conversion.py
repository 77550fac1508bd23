"""Weights that are narrower than what they are multiplied with: each warp converts what it multiplies."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop, WgmmaLoop
from gpusim.lowering.gemm.problem import Problem


def converting_instructions(
    gpu: Gpu, kernel: Kernel, loop: MmaLoop | WgmmaLoop, problem: Problem, of_a: float, of_b: float
) -> float:
    """Instructions of a warp and k-step that convert its weights; 0 of kernels whose operands have one type.

    Args:
        of_a: elements of the first operand that the warp multiplies in a step; ``of_b`` of the second.
    """
    if not kernel.family.weights or loop.dequantising is None:
        return 0.0
    narrow, elements = (problem.a, of_a) if problem.a.values_per_element < 1 else (problem.b, of_b)
    weights = min(kernel.family.weights, key=lambda one: abs(one.bits - narrow.bits))
    counts = loop.dequantising.of(weights)
    return sum(counts.by_pipe.values()) * elements / gpu.sm.warp_size if counts else 0.0
