"""What a faster part of the hardware would do: each resource 10 % better and twice as good, predicted again.

Values of the spec are replaced as ``--set`` replaces them: the library launches the kernel that it launches on the
board as shipped. Of latencies and intervals, better is less. All else stays: a wider L2 keeps its ports, more SMs share
the same power.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusim.confidence import variant_interval
from gpusim.execution.cases import CaseResult, OperatorWorkload
from gpusim.files.yamlfile import SpecError
from gpusim.prediction.results import Result
from gpusim.specs.load import Spec
from gpusim.specs.overrides import is_number, number_like, values_of
from gpusim.studies.workload import GpuVariant, Workload, total_us

if TYPE_CHECKING:
    from gpusim.step.model import StepSummary

FACTORS = (1.1, 2.0)
"""How much better."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a board: the values of its spec that make it better."""

    name: str
    more: str = ""
    """Pattern of the keys of rates and capacities."""
    less: str = ""
    """Pattern of the keys of latencies and intervals."""
    unit: str = ""
    """Only of instructions of this unit."""


RESOURCES = (
    Resource("SM clock", more=r"clock\.(boost|tensor_boost|max)_mhz"),
    Resource("SMs", more=r"sm\.count"),
    Resource("Tensor Core rate", less=r"instructions\..*\.issue_interval_cycles", unit="tensor"),
    Resource(
        "CUDA core rate",
        more=r"pipes\..*\.threads_per_cycle",
        less=r"instructions\..*\.issue_interval_cycles",
        unit="cuda",
    ),
    Resource("instruction issue", more=r"sm\.issue_per_cycle"),
    Resource("shared memory bandwidth", more=r"shared_memory\.bandwidth_bytes_per_cycle"),
    Resource("L2 port of an SM", more=r"load_store\.l2_port_(write_)?bytes_per_cycle"),
    Resource("L2 bandwidth", more=r"l2\.bandwidth_bytes_per_cycle"),
    Resource("L2 capacity", more=r"l2\.capacity_mib"),
    Resource("DRAM bandwidth", more=r"dram\.peak_bandwidth_gb_per_s"),
    Resource("latency of L2 and DRAM", less=r"l2\.(far_)?latency_cycles|dram\.latency_ns"),
    Resource("start of kernels", less=r"front_end\.kernel_latency_us|host\.(graph|stream|warm_icache)_gap_us"),
    Resource("power limit", more=r"power\.board_limit_w"),
)
SCALED = (Resource("SMs and power limit", more=r"sm\.count|power\.board_limit_w"),)
"""Besides: more SMs at the same limit run at a lower clock."""
OF_MODELS = (Resource("host calls", less=r"host\.(framework_call_us|framework_step_us|framework_item_us)\..*"),)
"""Besides, of steps of models."""
OF_SEVERAL = (Resource("links between GPUs", more=r"links\..*\.gb_per_s"),)
"""Besides, of several GPUs."""
NAMED: Mapping[str, tuple[str, ...]] = {
    "arithmetic": ("Tensor Core rate", "CUDA core rate"),
    "issue": ("instruction issue",),
    "shared_memory": ("shared memory bandwidth",),
    "l2_port": ("L2 port of an SM",),
    "l2": ("L2 bandwidth",),
    "l2_capacity": ("L2 capacity",),
    "dram": ("DRAM bandwidth",),
    "sms": ("SMs",),
    "idle_sms": ("SMs",),
    "power": ("power limit",),
    "latency": ("latency of L2 and DRAM",),
    "launch": ("start of kernels",),
}
"""Bottlenecks of operators, and the resources that they stand for."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """A board with a resource that is better by a factor."""

    resource: str
    factor: float
    board: GpuVariant


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What a resource that is better by a factor does to the time."""

    resource: str
    factor: float
    overrides: Mapping[str, float]
    """Values replaced, as ``--set`` takes them."""
    total_us: float
    """Time predicted with the improved values [us]."""
    time_ratio: float
    """Ratio of that time to the time of the GPU as it is."""
    time_ratio_p10: float
    """With ``time_ratio_p90`` the 80 % interval of the ratio, which is firmer than that of either time."""
    time_ratio_p90: float


def improvements(workload: Workload, board: GpuVariant) -> list[Improvement]:
    """The boards to predict a workload on; without values that a spec cannot state, which are as good as unlimited."""
    spec = board.spec
    found = []
    for resource in _resources(workload):
        for factor in FACTORS:
            if overrides := overrides_of(resource, factor, spec):
                better = board.with_values(overrides)
                with suppress(SpecError):
                    _ = better.spec
                    found.append(Improvement(resource.name, factor, better))
    return found


def sensitivities(
    improved: Sequence[Improvement],
    outcomes: Sequence[CaseResult[Result | StepSummary]],
    board: GpuVariant,
    whole_us: float,
) -> tuple[Sensitivity, ...]:
    """What each improvement does, the resource with the greatest effect when doubled first."""
    found: dict[str, list[Sensitivity]] = {}
    for one, outcome in zip(improved, outcomes, strict=True):
        changed_us = total_us(outcome.or_raise())
        replaced = {key: value for key, value in one.board.overrides.items() if board.overrides.get(key) != value}
        ratio = changed_us / whole_us
        sensitivity = Sensitivity(one.resource, one.factor, replaced, changed_us, ratio, *variant_interval(ratio))
        found.setdefault(one.resource, []).append(sensitivity)
    ordered = sorted(found.values(), key=lambda changes: (changes[-1].time_ratio, changes[0].resource))
    return tuple(change for changes in ordered for change in changes)


def limit_saving(result: Result, found: Sequence[Sensitivity]) -> float | None:
    """Share of the time that the limit of an operator saves if doubled, as its sensitivities have it; None without."""
    named = NAMED.get(result.bottleneck, ())
    units = {one.name: one.unit for one in RESOURCES}
    wanted = [name for name in named if units[name] in ("", result.launch.unit)]
    ratios = [one.time_ratio for one in found if one.resource in wanted and one.factor == FACTORS[-1]]
    return 1.0 - ratios[0] if ratios else None


def overrides_of(resource: Resource, factor: float, spec: Spec) -> dict[str, float]:
    """The values of a board that make a resource better by a factor, by key path."""
    found: dict[str, float] = {}
    for key_path, value in values_of(spec).items():
        if not is_number(value):
            continue
        if resource.unit and key_path.startswith("instructions."):
            _, name, _ = key_path.split(".")
            if spec.gpu.instructions[name].unit != resource.unit:
                continue
        if resource.more and re.fullmatch(resource.more, key_path):
            found[key_path] = number_like(value, value * factor)
        elif resource.less and re.fullmatch(resource.less, key_path):
            found[key_path] = number_like(value, value / factor)
    return found


def _resources(workload: Workload) -> tuple[Resource, ...]:
    if isinstance(workload, OperatorWorkload):
        return *RESOURCES, *SCALED
    return (*RESOURCES, *SCALED, *OF_MODELS, *(OF_SEVERAL if workload.gpus > 1 else ()))
