"""The tasks of a step of a captured program: the kernels of its calls, then the update of its parameters."""

from __future__ import annotations

from functools import lru_cache

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.models.arithmetic import Arithmetic
from gpusim.models.aten.call import DTYPES, Trace
from gpusim.models.aten.engine import as_engine
from gpusim.models.aten.launches import Launched, launched
from gpusim.models.aten.memory import context_bytes, used_bytes
from gpusim.models.aten.program import Program
from gpusim.models.passes import gradients, optimizer
from gpusim.models.passes.fusion import fused
from gpusim.models.passes.grouped import group_after_group
from gpusim.models.policy import Policy, PolicyError
from gpusim.models.shape import elements
from gpusim.models.tape import Tape
from gpusim.models.task import Task
from gpusim.models.value import Value


def program_tasks(program: Program, policy: Policy, gpu: Gpu) -> tuple[Task, ...]:
    """What a step of a captured program launches on a GPU, in the order of the launches.

    Raises:
        PolicyError: it was not traced in this way, or the framework refuses the precision on the GPU.
    """
    _refuse(program, policy)
    trace, arithmetic, found = _launched(CacheKey(program), policy, CacheKey(gpu, gpu.arithmetic))
    tape = Tape(arithmetic, tasks=list(found.tasks))
    if policy.mode == "train":
        _take_gradients(tape, program, trace)
        gradients.add_up(tape)
        optimizer.update(tape, program.optimizer, program.clipping, program.counted_loss)
    tasks = tuple(tape.tasks)
    if policy.loops_groups:
        tasks = tuple(group_after_group(tasks))
    return fused(tasks) if policy.fusion in ("elementwise", "engine") else tasks


def unmodelled(program: Program, policy: Policy, gpu: Gpu) -> dict[str, float]:
    """Calls whose kernels have no model, and are simulated as copies: their share of the bytes of all calls, by name.

    Raises:
        PolicyError: as :func:`program_tasks`.
    """
    *_, found = _launched(CacheKey(program), policy, CacheKey(gpu, gpu.arithmetic))
    shares = {name: one.size_bytes / found.size_bytes for name, one in found.unknown.items() if found.size_bytes}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


@lru_cache(maxsize=4)
def _launched(captured: CacheKey[Program], policy: Policy, board: CacheKey[Gpu]) -> tuple[Trace, Arithmetic, Launched]:
    """The calls of a step, without those that an engine computes in the kernels of others, and what they launch."""
    trace = captured.record.trace(policy)
    trace, arithmetic = as_engine(trace) if policy.fusion == "engine" else trace, Arithmetic(policy, board.record)
    return trace, arithmetic, launched(trace.calls, arithmetic)


def _refuse(program: Program, policy: Policy) -> None:
    if policy.checkpointing:
        raise PolicyError(
            f"{program.name}: calls of a captured model are as they were recorded; use torch.utils.checkpoint"
        )


def _take_gradients(tape: Tape, program: Program, trace: Trace) -> None:
    """Note the parameters and what the recorded backward pass gives as their gradients."""
    for name, parameter in program.parameters_by_name.items():
        if parameter.trained and name in trace.gradients:
            weight = tape.new(parameter.shape, DTYPES[parameter.dtype_name], name=name)
            gradient = trace.gradients[name]
            tape.parameters[name] = weight
            tape.kept(weight, Value(-weight.number, gradient.tensor.name, gradient.shape, gradient.dtype))


def program_used_bytes(program: Program, policy: Policy, capacity_bytes: float) -> list[list[float]]:
    """Device memory that a process needs while each call runs, of steps that follow each other [B].

    The context of the driver, storages as they are made and freed, and the state of the optimizer.

    Raises:
        PolicyError: it was not traced in this way.
    """
    trace = program.trace(policy)
    resident = program.resident_bytes + context_bytes(policy.version)
    if policy.mode == "train":
        trained = sum(elements(one.shape) for one in program.parameters_by_name.values() if one.trained)
        resident += trained * optimizer.state_bytes_per_parameter(program.optimizer)
        if gradients.keeps_gradients(policy):
            resident += sum(one.size_bytes for one in trace.gradients.values())
    return used_bytes(trace, resident, capacity_bytes)
