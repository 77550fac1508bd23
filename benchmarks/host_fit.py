"""Fits what the loop of a container takes on its host to steps on one GPU: the rows of even number of a table.

    python benchmarks/host_fit.py TABLE CONTAINER BOARDS MODE NAME [NAME ...]

BOARDS begins the names of the boards whose rows count, such as ``v100``; MODE is ``train`` or ``inference``; a NAME is
``factors``, ``step_us``, ``item_us`` or ``load_us``, of ``framework_*`` in ``arch_specs/hosts``. Prints the values of
least squares in the logarithm of throughput, and errors before and after. A person writes them into the record. Kernels
are simulated once, steps with each trial. Text that is written token by token is left out.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import InputError
from gpusim.evidence.end_to_end import StepRow, read_steps
from gpusim.execution.store import remembering
from gpusim.host.host import Host
from gpusim.models.loading import load_model
from gpusim.models.passes.step import tasks_of
from gpusim.models.task import Task
from gpusim.prediction.power import sustained_clock
from gpusim.record import record_key
from gpusim.sim.drivers.choice import prefer_compiled
from gpusim.specs import load_spec
from gpusim.step.kernels import Kernels
from gpusim.step.options import StepOptions
from gpusim.step.schedule import once, run
from gpusim.studies.validation.end_to_end import MODELS, workload_of
from gpusim.studies.validation.step_report import held_out
from gpusim.system import System

STEP = 0.05
"""Step of the numerical derivatives, in the logarithm of a value."""
ROUNDS = 8
LARGEST_MOVE = 0.7
"""How far a value moves in a round, at most, in its logarithm."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A row with its kernels."""

    row: StepRow
    system: System
    tasks: Sequence[Task]
    kernels: Kernels
    options: StepOptions
    items: int

    def log_error(self, host: Host) -> float:
        """Logarithm of predicted over measured throughput."""
        training = self.row.mode == "train"
        counted = self.items // self.options.accumulation
        waiting, loaded = (0, counted) if training else (counted * self.options.synchronised, 0)
        options = replace(self.options, host_us=host.pass_us(self.options.framework, waiting, loaded))
        counts = [1 if task.phase in once(self.options) else options.accumulation for task in self.tasks]

        def time_at(clock_mhz: float) -> float:
            return run(host, self.tasks, self.kernels.durations_us(clock_mhz), options).step_us

        clock = sustained_clock(self.system.gpu, self.kernels.energy(counts), time_at).clock_mhz
        return float(np.log(self.items / time_at(clock) * 1e6 / self.row.value))


def measured(table: Path, container: str, boards: str, mode: str) -> list[Measured]:
    """The rows of a container that are not held out, with their kernels."""
    prefer_compiled()
    found = []
    with remembering(disk=True) as store:
        for row in read_steps(table):
            counts = record_key(row.framework) == container and row.gpu.startswith(boards) and row.mode == mode
            if held_out(row) or row.gpus > 1 or not counts:
                continue
            step = workload_of(row, MODELS[row.model])
            model, system = load_model(step.model), load_spec(row.gpu).system
            if model.content.decoding:
                continue
            graph = model.graph(step.sizes)
            tasks = tasks_of(graph, step.policy, system.gpu)
            kernels = Kernels(system, tasks, store.simulate)
            items = graph.items * step.options.accumulation
            found.append(Measured(row, system, tasks, kernels, step.options, items))
    return found


def fitted(rows: Sequence[Measured], container: str, start: Mapping[str, float]) -> dict[str, float]:
    """The values of least squares, by Gauss and Newton."""
    names, at = list(start), np.log(list(start.values()))

    def errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
        moved = {name: float(np.exp(value)) for name, value in zip(names, values, strict=True)}
        return np.array([one.log_error(host_with(one.system.host, container, moved)) for one in rows])

    for _ in range(ROUNDS):
        here = errors(at)
        slopes = np.array([(errors(at + STEP * axis) - here) / STEP for axis in np.eye(len(names))]).T
        move = np.linalg.lstsq(slopes, -here, rcond=1e-6)[0]
        at = at + np.clip(move, -LARGEST_MOVE, LARGEST_MOVE)
        if np.abs(move).max() < 0.01:
            break
    return {name: float(np.exp(value)) for name, value in zip(names, at, strict=True)}


def host_with(host: Host, container: str, values: Mapping[str, float]) -> Host:
    """A host with other values of a container."""
    keys = {f"framework_{name}": value for name, value in values.items()}
    return host.model_copy(update={key: {**getattr(host, key), container: value} for key, value in keys.items()})


def main(arguments: Sequence[str]) -> None:
    """Fit, and print."""
    parser = ArgumentParser(description="Fit what the loop of a container takes on its host to rows of even number.")
    parser.add_argument("table", type=Path)
    parser.add_argument("container")
    parser.add_argument("boards", help="how the names of the boards begin, such as v100")
    parser.add_argument("mode", choices=("train", "inference"))
    parser.add_argument("names", nargs="+", choices=("factors", "step_us", "item_us", "load_us"))
    chosen = parser.parse_args(arguments)
    container = chosen.container
    try:
        rows = measured(chosen.table, container, chosen.boards, chosen.mode)
    except InputError as error:
        parser.error(str(error))
    if not rows:
        parser.error(f"{chosen.table} has no row of even number of {container} on {chosen.boards}, {chosen.mode}")
    known = rows[0].system.host
    start = {name: getattr(known, f"framework_{name}").get(container, 1000.0) for name in chosen.names}
    values = fitted(rows, container, start)
    before = [one.log_error(one.system.host) for one in rows]
    after = [one.log_error(host_with(one.system.host, container, values)) for one in rows]
    for one, old, new in zip(rows, before, after, strict=True):
        print(f"{one.row.id} {one.row.gpu} {one.row.model} {one.row.mode} {one.row.precision} {one.row.batch}", end=" ")
        print(f"{100 * np.expm1(old):+.1f} % -> {100 * np.expm1(new):+.1f} %")
    print(start, "->", values)
    print(f"mean error {100 * mean(map(abs, before)):.1f} % -> {100 * mean(map(abs, after)):.1f} %")


if __name__ == "__main__":
    main(sys.argv[1:])
