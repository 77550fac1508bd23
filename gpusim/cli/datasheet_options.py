"""Options that state what a datasheet says of a GPU; a terminal asks for those that are missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import refuse

if TYPE_CHECKING:
    from gpusim.specs.datasheet import Datasheet

SOURCE = "datasheet, as given to gpusim archs new"
"""Source of the values where none is named."""
NEEDED: Mapping[str, tuple[str, Callable[[str], int | float | str]]] = {
    "sms": ("Streaming multiprocessors", int),
    "base_mhz": ("Base clock [MHz]", float),
    "boost_mhz": ("Boost clock [MHz]", float),
    "l2_mib": ("Capacity of L2 [MiB]", float),
    "dram": ("Technology of the DRAM, such as GDDR6X or HBM3", str),
    "gb": ("Capacity of the DRAM [GB]", float),
    "gb_per_s": ("Bandwidth of the DRAM [GB/s]", float),
    "watts": ("Power limit of the board [W]", float),
}
"""Options without which there is no spec: what a terminal asks, and what an answer is."""
OPTIONAL: Mapping[str, str] = {
    "max_mhz": "Highest clock [MHz], 0 if not stated",
    "nvlink": "All NVLinks in both directions [GB/s], 0 for those of its base",
    "fp16_tflops": "Dense FP16 peak of the Tensor Cores with FP32 accumulation [TFLOP/s], 0 if not stated",
}
"""Options that a terminal asks for where it asks for others."""


@dataclass(frozen=True, slots=True)
class DatasheetOptions:
    """What a datasheet states."""

    architecture: Annotated[str, typer.Option(metavar="NAME", help="Architecture, such as ampere.")] = ""
    compute_capability: Annotated[
        str,
        typer.Option(
            metavar="X.Y", help="CUDA compute capability, such as 8.6; where it is given, no architecture is needed."
        ),
    ] = ""
    sms: Annotated[int | None, typer.Option(min=1, help="Streaming multiprocessors.")] = None
    base_mhz: Annotated[float | None, typer.Option(min=1, help="Base clock [MHz].")] = None
    boost_mhz: Annotated[float | None, typer.Option(min=1, help="Boost clock [MHz].")] = None
    max_mhz: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Highest clock [MHz]: boards for servers go no higher than their boost clock, others do. "
            "Default: as of the most similar board.",
        ),
    ] = None
    l2_mib: Annotated[float | None, typer.Option(min=0.125, help="Capacity of L2 [MiB].")] = None
    dram: Annotated[str | None, typer.Option(metavar="NAME", help="DRAM technology, such as GDDR6X or HBM3.")] = None
    gb: Annotated[float | None, typer.Option(min=0.25, help="Capacity of the DRAM [GB].")] = None
    gb_per_s: Annotated[float | None, typer.Option(min=1, help="Bandwidth of the DRAM [GB/s].")] = None
    bus_bits: Annotated[
        int | None,
        typer.Option(min=1, help="Width of the memory bus [bit], with --gbit-per-s in place of --gb-per-s."),
    ] = None
    gbit_per_s: Annotated[float | None, typer.Option(min=0.1, help="Data rate of a pin of the bus [Gbit/s].")] = None
    watts: Annotated[float | None, typer.Option(min=1, help="Power limit of the board [W].")] = None
    nvlink: Annotated[
        float | None,
        typer.Option(min=0, help="All NVLinks in both directions [GB/s]. Default: those of its base, if it has any."),
    ] = None
    fp16_tflops: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Dense FP16 peak of the Tensor Cores with FP32 accumulation [TFLOP/s]: tells boards of half the rate "
            "from the others of their architecture. Default: as on the most similar board.",
        ),
    ] = None
    source: Annotated[str, typer.Option(metavar="TEXT", help="Title and date of the datasheet.")] = SOURCE

    @property
    def empty(self) -> bool:
        """Whether none is given."""
        return self == DatasheetOptions()

    def sheet(self, name: str, *, identified: bool) -> Datasheet:
        """The datasheet of a GPU, after the questions that a terminal asks.

        Args:
            name: Of the GPU.
            identified: Whether another GPU says of which architecture it is.
        """
        from gpusim.specs.datasheet import Datasheet

        given = self._with_bandwidth()
        missing = [option for option in NEEDED if getattr(given, option) is None]
        if missing and sys.stdin.isatty():
            given = _answered(given, missing, identified=identified)
        elif missing:
            options = ", ".join(f"--{option.replace('_', '-')}" for option in missing)
            refuse(f"{options}: missing; state what the datasheet has, or name a GPU to begin with by --like alone")
        values = {item.name: getattr(given, item.name) for item in fields(given)}
        of_bus = self.bus_bits is not None and f"{self.bus_bits} bit / 8 x {self.gbit_per_s:g} Gbit/s"
        return Datasheet(
            name=name,
            sm_count=values["sms"],
            base_mhz=values["base_mhz"],
            boost_mhz=values["boost_mhz"],
            l2_mib=values["l2_mib"],
            dram_technology=values["dram"],
            dram_gb=values["gb"],
            dram_gb_per_s=values["gb_per_s"],
            board_limit_w=values["watts"],
            architecture=values["architecture"],
            compute_capability=values["compute_capability"],
            max_mhz=values["max_mhz"] or None,
            nvlink_gb_per_s=values["nvlink"] or None,
            fp16_tflops=values["fp16_tflops"] or None,
            source=values["source"],
            dram_rate=of_bus or "",
        )

    def _with_bandwidth(self) -> DatasheetOptions:
        """The options with the bandwidth that bus and data rate give."""
        if self.bus_bits is None and self.gbit_per_s is None:
            return self
        if self.bus_bits is None or self.gbit_per_s is None:
            refuse("--bus-bits and --gbit-per-s: need each other; or state --gb-per-s")
        if self.gb_per_s is not None:
            refuse("--gb-per-s: states again what --bus-bits and --gbit-per-s give; leave one out")
        return replace(self, gb_per_s=self.bus_bits / 8 * self.gbit_per_s)


def _answered(given: DatasheetOptions, missing: list[str], *, identified: bool) -> DatasheetOptions:
    """The options with what a terminal answers."""
    found = {}
    if not (identified or given.architecture or given.compute_capability):
        found["compute_capability"] = typer.prompt("CUDA compute capability, such as 8.6", err=True)
    found |= {option: typer.prompt(NEEDED[option][0], type=NEEDED[option][1], err=True) for option in missing}
    found |= {
        option: typer.prompt(question, type=float, default=0.0, err=True)
        for option, question in OPTIONAL.items()
        if getattr(given, option) is None
    }
    return replace(given, **found)
