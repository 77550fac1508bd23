"""Fused attention on a kernel: its launch, and those around it in the backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import DoesNotFitError, occupancy
from gpusim.launch import Axis, Grid, Launch, Resources, Tensor, l2_read_bytes
from gpusim.library.attention import AttentionKernel
from gpusim.lowering.attention.append import AppendPlan, append_plan
from gpusim.lowering.attention.backward import backward_program
from gpusim.lowering.attention.combine import CombinationPlan, combination_plan
from gpusim.lowering.attention.forward import forward_program
from gpusim.lowering.attention.looped import looped_program, looped_walk, one_tile
from gpusim.lowering.attention.parts import ACCUMULATOR_BYTES, Parts
from gpusim.lowering.attention.specialised import PRODUCER_WARPS, specialised_roles
from gpusim.lowering.attention.specialised_backward import adds_results, specialised_backward_roles
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


def resident_ctas(gpu: Gpu, kernel: AttentionKernel) -> int:
    """CTAs of a kernel that the GPU holds at once.

    Raises:
        DoesNotFitError: a CTA needs more than an SM has, or an SM holds fewer of them than the kernel wants.
    """
    sm_ctas = occupancy(SmLimits.of(gpu), *_resources(gpu, kernel)).ctas
    if sm_ctas < kernel.tile.sm_ctas:
        raise DoesNotFitError(f"an SM holds {sm_ctas} CTAs of {kernel.printed_name}, which wants {kernel.tile.sm_ctas}")
    return gpu.sm.count * sm_ctas


def _resources(gpu: Gpu, kernel: AttentionKernel) -> Resources:
    warps = kernel.warps + (PRODUCER_WARPS if kernel.family.kind == "specialised" else 0)
    return Resources(gpu.sm.warp_size * warps, kernel.tile.registers, kernel.tile.shared_bytes)


def _lowered(gpu: Gpu, operator: Attention, kernel: AttentionKernel, split: KeySplit, *, warm: bool) -> Lowered:
    resources, held = _resources(gpu, kernel), resident_ctas(gpu, kernel)
    looped = kernel.family.kind == "looped"
    walk = looped_walk(operator, kernel, held) if looped else walk_of(operator, kernel, held, split)
    parts = Parts(gpu, operator, kernel, walk)
    roles = _roles(parts)
    resident = survival_fraction(operator.size_bytes, effective_l2_bytes(gpu)) if warm else 0.0
    written = sum(_written_bytes(parts).values())

    def launch(tensors: tuple[Tensor, ...], write_back_cost: float = 0.0) -> Launch:
        return Launch(
            kernel.printed_name,
            walk.grid,
            roles,
            resources,
            tensors,
            write_back_cost,
            persistent=kernel.family.kind == "specialised" and not operator.backward,
            cold=not warm,
        )

    requested = l2_read_bytes(launch(_tensors(gpu, parts, held, {}, resident)))
    tensors = _tensors(gpu, parts, held, requested, resident)
    missed = sum(requested.get(tensor.name, 0.0) * tensor.miss_fraction for tensor in tensors)
    moved = Traffic(sum(requested.values()), missed, written * (1.0 - resident))
    return Lowered(launch(tensors, moved.write_back_cost), moved)


def _roles(parts: Parts) -> tuple[Role, ...]:
    """The warps of a CTA by what they execute."""
    if parts.kernel.family.kind != "specialised":
        return (Role(parts.kernel.warps, _program(parts)),)
    return specialised_backward_roles(parts) if parts.operator.backward else specialised_roles(parts)


def _program(parts: Parts) -> Program:
    """What each warp of a kernel without special roles executes."""
    if parts.kernel.family.kind == "looped":
        return looped_program(parts)
    return backward_program(parts) if parts.operator.backward else forward_program(parts)


def _tensors(gpu: Gpu, parts: Parts, held: int, requested: dict[str, float], resident: float) -> tuple[Tensor, ...]:
    """What CTAs read and write. Those of a head read the same tiles; heads that are in flight share L2."""
    operator, walk = parts.operator, parts.walk
    looped = parts.kernel.family.kind == "looped"
    sizes = dict.fromkeys(("queries", "gradients"), parts.element_bytes * operator.queries_elements)
    sizes |= dict.fromkeys(("keys", "values"), operator.keys_bytes)
    own: tuple[str, ...] = ("queries",)
    met: tuple[str, ...] = ("keys", "values")
    if operator.backward:
        own, met = met, ("queries", "gradients")
    elif looped:
        own, met = met, own
    in_flight = min(held, walk.grid.ctas) / (walk.grid.x * walk.grid.y * walk.grid.splits)
    stored = _written_bytes(parts)
    again_bytes = sum(sizes[name] for name in met) + stored.get("partials", 0.0)
    met_bytes = again_bytes / (operator.batch * operator.held_heads)
    kept = survival_fraction(in_flight * met_bytes, usable_l2_bytes(gpu))

    # CTAs of heads that share keys begin together and go over the same tiles in step; those of a causal mask begin at
    # tiles of their own.
    in_step = walk.grid.y * (1 if operator.causal else walk.grid.x)
    together = 1.0 if operator.backward or looped else min(in_step, held)

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

    # What a tile of keys leaves is read with the next one.
    lost = {"partials": 1.0 - kept}
    written = (Tensor(name, size / walk.grid.ctas, None, lost.get(name, 0.0)) for name, size in stored.items())
    masks = (_mask(gpu, parts, requested, resident),) if operator.mask else ()
    return (*(read(name) for name in (*own, *met)), *masks, *written)


def _mask(gpu: Gpu, parts: Parts, requested: dict[str, float], resident: float) -> Tensor:
    """The mask, which sequences, heads or queries may share: those that do read it one after the other."""
    operator = parts.operator
    heads, sequences = operator.batch * operator.heads, operator.batch
    apart = operator.size_bytes / (heads if "h" not in operator.mask_by else sequences)
    kept = survival_fraction(apart + operator.mask_bytes, usable_l2_bytes(gpu))
    again = max(1.0, requested.get("mask", operator.mask_bytes) / operator.mask_bytes)
    missed = (1.0 + (again - 1.0) * (1.0 - kept)) / again
    rows = operator.queries / parts.walk.grid.x if "q" in operator.mask_by else 1.0
    block_bytes = rows * parts.walk.share * parts.walk.met_rows * parts.element_bytes
    return Tensor("mask", block_bytes, None, missed * (1.0 - resident))


def _written_bytes(parts: Parts) -> dict[str, float]:
    """What is written, by tensor: backward the sums of gradients of queries, too; of parts of the keys in FP32 [B].

    What FlashAttention-1 leaves between tiles of keys is written over, and counts once.
    """
    operator, walk, looped = parts.operator, parts.walk, parts.kernel.family.kind == "looped"
    in_fp32 = ACCUMULATOR_BYTES * operator.queries_elements
    if walk.grid.splits > 1:
        return {"result": walk.grid.splits * (in_fp32 + operator.statistics_bytes)}
    if operator.backward and parts.kernel.family.kind == "specialised":
        # Kernels that follow write what has been added up in FP32.
        in_sums = 2 * operator.keys_bytes * ACCUMULATOR_BYTES / parts.element_bytes
        results = {"result_sums": in_sums} if adds_results(parts) else {"result": 2 * operator.keys_bytes}
        return results | {"sums": in_fp32}
    written = {"result": operator.result_bytes - operator.appended_bytes}
    if operator.backward and not (looped and one_tile(walk)):
        written["sums"] = in_fp32
    if looped and not operator.backward and walk.iterations > 1:
        written["partials"] = in_fp32
    return written
