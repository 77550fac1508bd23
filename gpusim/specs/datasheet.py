"""A spec made from a datasheet: what it states, and the rest after the most similar board of the same architecture.

Each value says which of the two it is: what the datasheet states is of kind ``datasheet``, what follows from the other
board of kind ``assumed``, with a source that names the board and the rule. What the other board does not state itself
comes from the base that both extend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain as chained
from pathlib import Path
from typing import Any

from gpusim.errors import InputError
from gpusim.hardware.gpu import BoardLink, Gpu
from gpusim.specs.checks import STATED_PEAK_TOLERANCE
from gpusim.specs.document import Document, Tree, leaves
from gpusim.specs.folders import search_folders
from gpusim.specs.inheritance import chain
from gpusim.specs.likeness import distance
from gpusim.specs.load import Spec, load_spec
from gpusim.specs.registry import list_archs
from gpusim.specs.sourced import Sourced
from gpusim.specs.starter import IDENTITY, names_after, stated_by
from gpusim.specs.writing import file_text

OTHER_MEMORY = math.log(2)
"""What another technology of DRAM adds to the distance of two boards [assumed]."""
NVLINK = "nvlink"
L2_BANDWIDTH, IDLE = "l2.bandwidth_bytes_per_cycle", "power.idle_w"
OF_MEMORY = ("dram.", "power.dram_pj_per_byte")
"""Key paths of values that follow the technology of the DRAM."""


@dataclass(frozen=True, slots=True)
class Datasheet:
    """What a vendor states of a board."""

    name: str
    sm_count: int
    base_mhz: float
    boost_mhz: float
    l2_mib: float
    dram_technology: str
    dram_gb: float
    dram_gb_per_s: float
    board_limit_w: float
    architecture: str = ""
    """Empty: that of the boards of the compute capability."""
    compute_capability: str = ""
    """Empty: that of the boards of the architecture."""
    max_mhz: float | None = None
    """Highest clock [MHz]: of boards for servers the boost clock, of others more. None: as of the most similar one."""
    nvlink_gb_per_s: float | None = None
    """All NVLinks in both directions [GB/s]; None: the board is as the others of its base."""
    fp16_tflops: float | None = None
    """Dense FP16 peak of the Tensor Cores with FP32 accumulation [TFLOP/s]: on some boards of an architecture half of
    what others have. None: as on the most similar board."""
    source: str = "datasheet, as given to gpusim archs new"
    dram_rate: str = ""
    """How the bandwidth follows from the bus, such as ``256 bit / 8 x 14 Gbit/s``."""

    @classmethod
    def of(cls, gpu: Gpu) -> Datasheet:
        """What the datasheet of a board says whose spec is known."""
        nvlink, fp16 = gpu.links.get(NVLINK), _fp16_instruction(gpu)
        return cls(
            gpu.name,
            gpu.sm.count,
            gpu.clock.base_mhz,
            gpu.clock.boost_mhz,
            gpu.l2.capacity_mib,
            gpu.dram.technology,
            gpu.dram.capacity_gb,
            gpu.dram.peak_bandwidth_gb_per_s,
            gpu.power.board_limit_w,
            gpu.architecture,
            gpu.compute_capability,
            gpu.clock.max_mhz if gpu.clock.max_mhz == gpu.clock.boost_mhz else None,
            None if nvlink is None else _both_directions(nvlink),
            None if fp16 is None else gpu.peak_tflops(gpu.instructions[fp16]),
        )

    def on(self, gpu: Gpu) -> Gpu:
        """Another board with what is stated of this one; its clocks above boost in proportion."""
        tensor_mhz = gpu.clock.tensor_boost_mhz
        clock = {
            "base_mhz": self.base_mhz,
            "boost_mhz": self.boost_mhz,
            "tensor_boost_mhz": tensor_mhz and _rounded(tensor_mhz * self.boost_mhz / gpu.clock.boost_mhz),
        }
        dram = {"technology": self.dram_technology, "capacity_gb": self.dram_gb}
        return gpu.model_copy(
            update={
                "clock": gpu.clock.model_copy(update=clock),
                "sm": gpu.sm.model_copy(update={"count": self.sm_count}),
                "l2": gpu.l2.model_copy(update={"capacity_mib": self.l2_mib}),
                "dram": gpu.dram.model_copy(update={**dram, "peak_bandwidth_gb_per_s": self.dram_gb_per_s}),
                "power": gpu.power.model_copy(update={"board_limit_w": self.board_limit_w}),
            }
        )


@dataclass(frozen=True, slots=True)
class MadeSpec:
    """A spec made from a datasheet."""

    text: str
    like: str
    """Board that the rest is after."""
    stated: int
    """Values that the datasheet states."""
    derived: int
    """Values that follow from the other board; those of its base are not counted."""


def spec_of(
    sheet: Datasheet,
    arch_path: Iterable[Path] = (),
    folder: Path | None = None,
    *,
    like: str | None = None,
    without: Collection[str] = (),
) -> MadeSpec:
    """The spec of a board after its datasheet.

    Args:
        arch_path: Folders of specs that are searched first.
        folder: Where the file is to lie, for the path of its schema.
        like: Board that the rest is after, by name or path; None: the most similar one of the compute capability.
        without: Names of boards that are passed over.

    Raises:
        SpecError: there is no such other board.
        InputError: no board has the compute capability, none of those the stated peak, or it is not clear which.
    """
    folders = tuple(arch_path)
    identities = {
        entry.path: _stated_identity(entry.path, folders) for entry in list_archs(folders) if entry.name not in without
    }
    named = None if like is None else load_spec(like, folders)
    sheet = _identified(sheet, sorted({*identities.values()}, key=lambda one: (len(one[1]), one[1])), named)
    alike = [load_spec(path, folders) for path, identity in identities.items() if identity == _identity(sheet)]
    model = named or most_similar(sheet, alike)
    document = stated_by(str(model.files[0]), folders)
    stated = dict(
        _stated(sheet, model.gpu, chained([model, *alike], (load_spec(path, folders) for path in identities)))
    )
    derived = dict(_derived(sheet, model, dict(leaves(document.values))))
    copied = _copied(model, document) | _copied_of_memory(_memory_like(sheet, model, alike), folders)
    derived = {key: value for key, value in (copied | derived).items() if key not in stated}
    values: Tree = {"clock": {}, "sm": {}, "l2": {}, "dram": {"technology": sheet.dram_technology}, "power": {}}
    for key, value in (*stated.items(), *derived.items(), *_instruction_texts(document.values)):
        _put(values, key, value)
    names = names_after(document, sheet.name)
    if _identity(model.gpu) != _identity(sheet):
        names |= {"architecture": sheet.architecture, "compute_capability": sheet.compute_capability}
    comments = (
        f"{sheet.name}: what its datasheet states, and the rest after {model.gpu.name}, by gpusim archs new.",
        "Replace what is known better; 'gpusim archs show' lists every value with its source.",
    )
    text = file_text("gpu", folder, comments, {**names, **document.names}, {}, values)
    return MadeSpec(text, model.gpu.name, len(stated), len(derived))


def _stated_identity(path: Path, folders: Iterable[Path]) -> tuple[str, str]:
    """Architecture and compute capability of a board, which is not loaded for it."""
    files = chain(path, search_folders(folders))
    architecture, capability = (
        next((str(file.data[key]) for file in files if key in file.data), "") for key in IDENTITY
    )
    return architecture, capability


def _identity(of: Gpu | Datasheet) -> tuple[str, str]:
    return of.architecture, of.compute_capability


def _identified(sheet: Datasheet, identities: Sequence[tuple[str, str]], like: Spec | None) -> Datasheet:
    """The datasheet with architecture and compute capability, of which it may state one or, beside ``like``, none.

    Args:
        identities: Those of the boards.
    """
    architecture, capability = sheet.architecture.lower(), sheet.compute_capability
    if not (architecture or capability):
        if like is None:
            raise InputError("no --architecture and no --compute-capability; state one, or name a board with --like")
        architecture, capability = _identity(like.gpu)
    found = [one for one in identities if architecture in ("", one[0]) and capability in ("", one[1])]
    if len(found) > 1:
        listed = ", ".join(one for _, one in found)
        raise InputError(
            f"--architecture {architecture}: has compute capabilities {listed}; state --compute-capability"
        )
    if not found and (like is None or not (architecture and capability)):
        known = ", ".join(" ".join(one) for one in identities)
        asked = " ".join(text for text in (architecture, capability) if text)
        raise InputError(
            f"{asked}: no board to derive the rest from (there are {known}); name one with --like, and state both "
            "--architecture and --compute-capability"
        )
    architecture, capability = found[0] if found else (architecture, capability)
    return replace(sheet, architecture=architecture, compute_capability=capability)


def most_similar(sheet: Datasheet, boards: Sequence[Spec]) -> Spec:
    """The board that is most like a datasheet's; of several alike a measured one.

    Raises:
        InputError: none has the stated peak.
    """
    fitting = boards if sheet.fp16_tflops is None else [one for one in boards if _has_peak(sheet, one.gpu)]
    if not fitting:
        found = sorted({round(peak, 1) for one in boards if (peak := _fp16_tflops(sheet, one.gpu)) is not None})
        would = " or ".join(f"{peak:g}" for peak in found) or "none"
        raise InputError(
            f"{sheet.fp16_tflops:g} TFLOP/s of FP16: with {sheet.sm_count} SMs at {sheet.boost_mhz:g} MHz a board of "
            f"compute capability {sheet.compute_capability} has {would}; state the dense peak with FP32 accumulation"
        )
    return min(fitting, key=_distance_to(sheet))


def _distance_to(sheet: Datasheet) -> Callable[[Spec], tuple[float, bool, str]]:
    def key(spec: Spec) -> tuple[float, bool, str]:
        other = 0.0 if _same_memory(sheet, spec.gpu) else OTHER_MEMORY
        apart = round(distance(sheet.on(spec.gpu), spec.gpu) + other, 9)
        return apart, spec.system.calibrated_on != "board", spec.gpu.name

    return key


def _same_memory(sheet: Datasheet, gpu: Gpu) -> bool:
    return gpu.dram.technology.lower() == sheet.dram_technology.lower()


def _fp16_instruction(gpu: Gpu) -> str | None:
    """Key of the fastest dense FP16 instruction of the Tensor Cores that accumulates in FP32."""
    found = {
        key: gpu.peak_tflops(one)
        for key, one in gpu.instructions.items()
        if one.unit == "tensor" and "fp16" in one.inputs and (one.accumulate, one.sparsity) == ("fp32", "dense")
    }
    return max(found, key=lambda key: found[key], default=None)


def _fp16_tflops(sheet: Datasheet, gpu: Gpu) -> float | None:
    """The peak that a board would have with what is stated."""
    key, changed = _fp16_instruction(gpu), sheet.on(gpu)
    return None if key is None else changed.peak_tflops(changed.instructions[key])


def _has_peak(sheet: Datasheet, gpu: Gpu) -> bool:
    peak = _fp16_tflops(sheet, gpu)
    return peak is not None and abs(peak / (sheet.fp16_tflops or peak) - 1) <= STATED_PEAK_TOLERANCE


def _memory_like(sheet: Datasheet, model: Spec, alike: Sequence[Spec]) -> Spec:
    """The most similar board with the technology of the DRAM; the one that the rest is after if there is none."""
    same = [one for one in alike if _same_memory(sheet, one.gpu)]
    return model if _same_memory(sheet, model.gpu) or not same else min(same, key=_distance_to(sheet))


def _stated(sheet: Datasheet, model: Gpu, boards: Iterable[Spec]) -> Iterator[tuple[str, Sourced[Any]]]:
    """What the datasheet states, by key path.

    Args:
        model: Board that the rest is after.
        boards: Whose NVLinks those of the new one are like, the nearest first.
    """
    for key, value in (
        ("clock.base_mhz", sheet.base_mhz),
        ("clock.boost_mhz", sheet.boost_mhz),
        ("clock.max_mhz", sheet.max_mhz),
        ("sm.count", sheet.sm_count),
        ("l2.capacity_mib", sheet.l2_mib),
        ("dram.capacity_gb", sheet.dram_gb),
    ):
        if value is not None:
            yield key, Sourced(value, "datasheet", sheet.source)
    of_bus = f": {sheet.dram_rate}" if sheet.dram_rate else ""
    yield "dram.peak_bandwidth_gb_per_s", Sourced(sheet.dram_gb_per_s, "datasheet", f"{sheet.source}{of_bus}")
    yield "power.board_limit_w", Sourced(sheet.board_limit_w, "datasheet", sheet.source)
    if sheet.nvlink_gb_per_s is not None:
        yield from _links(sheet, sheet.nvlink_gb_per_s, boards)
    if sheet.fp16_tflops is not None and (instruction := _fp16_instruction(model)) is not None:
        yield f"stated_peaks.{instruction}", Sourced(sheet.fp16_tflops, "datasheet", sheet.source)


def _derived(sheet: Datasheet, model: Spec, own: dict[str, Sourced[Any]]) -> Iterator[tuple[str, Sourced[Any]]]:
    """Values in proportion to those of another board, where it states them or the base's would not do."""
    gpu, name = model.gpu, model.gpu.name
    if L2_BANDWIDTH in own or sheet.l2_mib != gpu.l2.capacity_mib:
        value = _rounded(gpu.l2.bandwidth_bytes_per_cycle * sheet.l2_mib / gpu.l2.capacity_mib)
        rule = (
            f"{gpu.l2.bandwidth_bytes_per_cycle:g} B/cycle of {name} x {sheet.l2_mib:g} / {gpu.l2.capacity_mib:g} MiB"
        )
        yield L2_BANDWIDTH, Sourced(value, "assumed", f"{rule} ({model.provenance[L2_BANDWIDTH].source})")
    if IDLE in own:
        value = _rounded(gpu.power.idle_w * sheet.board_limit_w / gpu.power.board_limit_w)
        rule = f"{gpu.power.idle_w:g} W of {name} x {sheet.board_limit_w:g} / {gpu.power.board_limit_w:g} W of limit"
        yield IDLE, Sourced(value, "assumed", f"{rule} ({model.provenance[IDLE].source})")
    if (tensor_mhz := sheet.on(gpu).clock.tensor_boost_mhz) is not None:
        rule = f"{gpu.clock.tensor_boost_mhz:g} MHz of {name} x {sheet.boost_mhz:g} / {gpu.clock.boost_mhz:g}"
        yield "clock.tensor_boost_mhz", Sourced(tensor_mhz, "assumed", rule)
    at_boost = gpu.clock.max_mhz <= gpu.clock.boost_mhz
    highest = sheet.boost_mhz if at_boost else max(gpu.clock.max_mhz, sheet.boost_mhz)
    if "clock.max_mhz" in own or highest != gpu.clock.max_mhz:
        rule = (
            f"as the boost clock, like {name}"
            if at_boost
            else f"as on {name}: {model.provenance['clock.max_mhz'].source}"
        )
        yield "clock.max_mhz", Sourced(highest, "assumed", rule)


def _links(sheet: Datasheet, gb_per_s: float, boards: Iterable[Spec]) -> Iterator[tuple[str, Sourced[Any]]]:
    """NVLinks that together have a rate in both directions [GB/s], each about as fast as those of another board."""
    found = next(((one.gpu.name, link) for one in boards if (link := one.gpu.links.get(NVLINK))), None)
    if found is None:
        raise InputError("no board has NVLink to derive its links from; leave --nvlink out")
    name, link = found
    count = max(1, round(gb_per_s / 2 / link.gb_per_s))
    rule = f"{sheet.source}: {gb_per_s:g} GB/s in both directions, links of about the rate of {name}"
    yield f"links.{NVLINK}.count", Sourced(count, "assumed", rule)
    yield f"links.{NVLINK}.gb_per_s", Sourced(_rounded(gb_per_s / 2 / count, 6), "assumed", rule)
    yield f"links.{NVLINK}.sustained_fraction", Sourced(link.sustained_fraction, "assumed", f"as on {name}")


def _copied(model: Spec, document: Document) -> dict[str, Sourced[Any]]:
    """What the other board states itself, but for its memory, its NVLinks and the peaks of its datasheet."""
    passed_over = (*OF_MEMORY, f"links.{NVLINK}.", "stated_peaks.")
    return {key: _as_on(model, one) for key, one in leaves(document.values) if not key.startswith(passed_over)}


def _copied_of_memory(memory: Spec, folders: Iterable[Path]) -> dict[str, Sourced[Any]]:
    """What a board states itself of its memory."""
    own = leaves(stated_by(str(memory.files[0]), folders).values)
    return {key: _as_on(memory, one) for key, one in own if key.startswith(OF_MEMORY)}


def _both_directions(link: BoardLink) -> float:
    return 2 * link.count * link.gb_per_s


def _as_on(spec: Spec, one: Sourced[Any]) -> Sourced[Any]:
    return replace(one, kind="assumed", source=f"as on {spec.gpu.name}: {one.source}")


def _instruction_texts(values: Tree) -> Iterator[tuple[str, Any]]:
    """What a board says of instructions of its own without a source: unit, types, shape."""
    for instruction, of in values.get("instructions", {}).items():
        yield from (
            (f"instructions.{instruction}.{key}", one) for key, one in of.items() if not isinstance(one, Sourced)
        )


def _put(tree: Tree, key_path: str, value: object) -> None:
    *parents, last = key_path.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[last] = value


def _rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")
