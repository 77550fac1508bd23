"""Fused attention on a kernel: its launch, and those around it in the backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import DoesNotFitError, occupancy
from gpusim.launch import Axis, Grid, Launch, Resources, Tensor, l2_read_bytes
from gpusim.library.attention import AttentionKernel
from gpusim.lowering.attention.append import AppendPlan, append_plan
from gpusim.lowering.attention.backward import ACCUMULATOR_BYTES, backward_program
from gpusim.lowering.attention.combine import CombinationPlan, combination_plan
from gpusim.lowering.attention.forward import forward_program
from gpusim.lowering.attention.parts import PARTIAL_BYTES, Parts
from gpusim.lowering.attention.specialised import PRODUCER_WARPS, specialised_roles
from gpusim.lowering.attention.splits import KeySplit, key_split_of
from gpusim.lowering.attention.walk import walk_of
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.pages import effective_l2_bytes, page_cost, usable_l2_bytes
from gpusim.lowering.totals import Lowered, Totals, totals_of
from gpusim.lowering.vector.plan import VectorPlan
from gpusim.program import Program, Role
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
    before: tuple[VectorPlan | AppendPlan, ...] = ()
    after: tuple[VectorPlan | CombinationPlan, ...] = ()
    split_k: int = 1
    """Parts of the keys of a head, each of which a CTA meets."""

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
    split = key_split_of(operator, kernel, gpu.sm.count)
    lowered = _lowered(gpu, operator, kernel, split, warm=warm)
    instruction = gpu.instructions[kernel.family.instruction]
    appended = (append_plan(gpu, operator, warm=warm),) if operator.appends else ()
    combined = (combination_plan(gpu, operator, kernel, split.parts),) if split.combines else ()
    totals = totals_of(gpu, lowered)
    return AttentionPlan(
        operator,
        kernel,
        lowered.launch,
        totals,
        instruction,
        (*appended, *before),
        (*combined, *after),
        split.parts,
    )


def _lowered(gpu: Gpu, operator: Attention, kernel: AttentionKernel, split: KeySplit, *, warm: bool) -> Lowered:
    specialised = kernel.family.kind == "specialised"
    warps = kernel.warps + (PRODUCER_WARPS if specialised else 0)
    resources = Resources(gpu.sm.warp_size * warps, kernel.tile.registers, kernel.tile.shared_bytes)
    sm_ctas = occupancy(SmLimits.of(gpu), *resources).ctas
    if sm_ctas < kernel.tile.sm_ctas:
        raise DoesNotFitError(f"an SM holds {sm_ctas} CTAs of {kernel.printed_name}, which wants {kernel.tile.sm_ctas}")
    held = gpu.sm.count * sm_ctas
    walk = walk_of(operator, kernel, held, split)
    parts = Parts(gpu, operator, kernel, walk)
    roles = specialised_roles(parts) if specialised else (Role(kernel.warps, _program(parts)),)
    resident = survival_fraction(operator.size_bytes, effective_l2_bytes(gpu)) if warm else 0.0
    written = sum(_written_bytes(operator, split.parts).values())

    def launch(tensors: tuple[Tensor, ...], write_back_cost: float = 0.0) -> Launch:
        return Launch(
            kernel.printed_name,
            walk.grid,
            roles,
            resources,
            tensors,
            write_back_cost,
            persistent=specialised,
            cold=not warm,
        )

    requested = l2_read_bytes(launch(_tensors(gpu, parts, held, {}, resident)))
    tensors = _tensors(gpu, parts, held, requested, resident)
    missed = sum(requested.get(tensor.name, 0.0) * tensor.miss_fraction for tensor in tensors)
    moved = Traffic(sum(requested.values()), missed, written * (1.0 - resident))
    return Lowered(launch(tensors, moved.write_back_cost), moved)


def _program(parts: Parts) -> Program:
    """What each warp of a kernel without special roles executes."""
    return backward_program(parts) if parts.operator.backward else forward_program(parts)


def _tensors(gpu: Gpu, parts: Parts, held: int, requested: dict[str, float], resident: float) -> tuple[Tensor, ...]:
    """What CTAs read and write. Those of a head read the same tiles; heads that are in flight share L2."""
    operator, walk = parts.operator, parts.walk
    sizes = dict.fromkeys(("queries", "gradients"), parts.element_bytes * operator.queries_elements)
    sizes |= dict.fromkeys(("keys", "values"), operator.keys_bytes)
    own: tuple[str, ...] = ("queries",)
    met: tuple[str, ...] = ("keys", "values")
    if operator.backward:
        own, met = met, ("queries", "gradients")
    in_flight = min(held, walk.grid.ctas) / (walk.grid.x * walk.grid.y * walk.grid.splits)
    met_bytes = sum(sizes[name] for name in met) / (operator.batch * operator.held_heads)
    kept = survival_fraction(in_flight * met_bytes, usable_l2_bytes(gpu))

    # CTAs of heads that share keys begin together and go over the same tiles in step; those of a causal mask begin at
    # tiles of their own.
    in_step = walk.grid.y * (1 if operator.causal else walk.grid.x)
    together = 1.0 if operator.backward else min(in_step, held)

    def read(name: str) -> Tensor:
        again = requested.get(name, sizes[name]) / sizes[name]
        passes = max(1.0, again / together) if name in met else again
        missed = (1.0 + (passes - 1.0) * (1.0 - kept)) / again if again > 1.0 else 1.0
        rows, row_bytes = walk.own_rows if name in own else walk.share * walk.met_rows, parts.row_bytes(name)
        axes: tuple[Axis, ...] | None = None if name in own else ("batch", "split")
        # Heads of a token lie side by side.
        run_bytes = row_bytes if operator.packed and operator.held_heads > 1 else rows * row_bytes
        cost = page_cost(gpu, run_bytes) if name in met and operator.packed else 1.0
        return Tensor(name, rows * row_bytes, axes, min(1.0, missed) * (1.0 - resident), read_cost=cost)

    stored = _written_bytes(operator, walk.grid.splits)
    written = (Tensor(name, size / walk.grid.ctas) for name, size in stored.items())
    return (*(read(name) for name in (*own, *met)), *written)


def _written_bytes(operator: Attention, parts: int) -> dict[str, float]:
    """What is written, by tensor: backward the sums of gradients of queries, too; of parts of the keys in FP32 [B]."""
    if parts > 1:
        partial = PARTIAL_BYTES * operator.queries_elements + operator.statistics_bytes
        return {"result": parts * partial}
    sums = {"sums": ACCUMULATOR_BYTES * operator.queries_elements} if operator.backward else {}
    return {"result": operator.result_bytes - operator.appended_bytes, **sums}
