"""Fused attention on a kernel: its launch, and those around it in the backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Axis, Grid, Launch, Resources, Tensor, l2_read_bytes
from gpusim.library.attention import AttentionKernel
from gpusim.lowering.attention.backward import ACCUMULATOR_BYTES, backward_program
from gpusim.lowering.attention.forward import forward_program
from gpusim.lowering.attention.parts import Parts
from gpusim.lowering.attention.walk import walk_of
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.pages import effective_l2_bytes, usable_l2_bytes
from gpusim.lowering.totals import Lowered, Totals, totals_of
from gpusim.lowering.vector.plan import VectorPlan
from gpusim.program import Role
from gpusim.workloads.attention import Attention


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Attention on one kernel, between launches that prepare and convert."""

    operator: Attention
    kernel: AttentionKernel
    launch: Launch
    main_totals: Totals
    instruction: Instruction
    """Instruction that multiplies."""
    before: tuple[VectorPlan, ...] = ()
    after: tuple[VectorPlan, ...] = ()
    split_k: int = 1

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def grid(self) -> Grid:
        return self.launch.grid

    @property
    def totals(self) -> tuple[Totals, ...]:
        """Bytes and instructions of each launch."""
        before, after = (tuple(totals for one in those for totals in one.totals) for those in (self.before, self.after))
        return (*before, self.main_totals, *after)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Launches in order."""
        return (*(one.launch for one in self.before), self.launch, *(one.launch for one in self.after))

    @property
    def useful_fraction(self) -> float:
        """Multiply-adds of the operator over those that are executed; the rest pads tiles."""
        executed = sum(count for one, count in self.main_totals.multiply_adds if one == self.instruction)
        return self.kernel.family.multiplies * self.operator.flops / 2 / executed


def attention_plan(
    gpu: Gpu,
    operator: Attention,
    kernel: AttentionKernel,
    before: tuple[VectorPlan, ...] = (),
    after: tuple[VectorPlan, ...] = (),
    *,
    warm: bool,
) -> AttentionPlan:
    """Lower attention onto a kernel.

    Args:
        before: launches that prepare it.
        after: launches that convert its results.
        warm: the operator ran just before, on the same tensors.

    Raises:
        DoesNotFitError: a CTA needs more than an SM has.
    """
    lowered = _lowered(gpu, operator, kernel, warm=warm)
    instruction = gpu.instructions[kernel.family.instruction]
    return AttentionPlan(operator, kernel, lowered.launch, totals_of(gpu, lowered), instruction, before, after)


def _lowered(gpu: Gpu, operator: Attention, kernel: AttentionKernel, *, warm: bool) -> Lowered:
    resources = Resources(gpu.sm.warp_size * kernel.warps, kernel.tile.registers, kernel.tile.shared_bytes)
    held = gpu.sm.count * occupancy(SmLimits.of(gpu), *resources).ctas
    walk = walk_of(operator, kernel, held)
    parts = Parts(gpu, operator, kernel, walk)
    program = backward_program(parts) if operator.backward else forward_program(parts)
    resident = survival_fraction(operator.size_bytes, effective_l2_bytes(gpu)) if warm else 0.0
    written = sum(_written_bytes(operator).values())

    def launch(tensors: tuple[Tensor, ...], write_back_cost: float = 0.0) -> Launch:
        role = Role(kernel.warps, program)
        return Launch(kernel.printed_name, walk.grid, (role,), resources, tensors, write_back_cost, cold=not warm)

    requested = l2_read_bytes(launch(_tensors(gpu, parts, held, {}, resident)))
    tensors = _tensors(gpu, parts, held, requested, resident)
    missed = sum(requested.get(tensor.name, 0.0) * tensor.miss_fraction for tensor in tensors)
    moved = Traffic(sum(requested.values()), missed, written * (1.0 - resident))
    return Lowered(launch(tensors, moved.write_back_cost), moved)


def _tensors(gpu: Gpu, parts: Parts, held: int, requested: dict[str, float], resident: float) -> tuple[Tensor, ...]:
    """What CTAs read and write. Those of a head read the same tiles; heads that are in flight share L2."""
    operator, walk = parts.operator, parts.walk
    row_bytes = operator.head_dim * parts.element_bytes
    sizes = dict.fromkeys(("queries", "gradients"), operator.queries_bytes)
    sizes |= dict.fromkeys(("keys", "values"), operator.keys_bytes)
    own: tuple[str, ...] = ("queries",)
    met: tuple[str, ...] = ("keys", "values")
    if operator.backward:
        own, met = met, ("queries", "gradients")
    in_flight = min(held, walk.grid.ctas) / (walk.grid.x * walk.grid.y)
    met_bytes = sum(sizes[name] for name in met) / (operator.batch * operator.held_heads)
    kept = survival_fraction(in_flight * met_bytes, usable_l2_bytes(gpu))

    def read(name: str) -> Tensor:
        again = requested.get(name, sizes[name]) / sizes[name]
        missed = (1.0 + (again - 1.0) * (1.0 - kept)) / again if again > 1.0 else 1.0
        rows = walk.own_rows if name in own else walk.share * walk.met_rows
        axes: tuple[Axis, ...] | None = None if name in own else ("batch",)
        return Tensor(name, rows * row_bytes, axes, min(1.0, missed) * (1.0 - resident))

    written = (Tensor(name, size / walk.grid.ctas) for name, size in _written_bytes(operator).items())
    return (*(read(name) for name in (*own, *met)), *written)


def _written_bytes(operator: Attention) -> dict[str, float]:
    """What is written, by tensor: backward the sums of gradients of queries, too [B]."""
    sums = {"sums": ACCUMULATOR_BYTES * operator.queries_bytes * 8 / operator.dtype.bits} if operator.backward else {}
    return {"result": operator.result_bytes, **sums}
