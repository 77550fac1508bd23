"""Plots of an experiment: the keys of the YAML, and the names of the files."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from gpusim.files.checked_document import Part
from gpusim.numbers.formats import Dtype
from gpusim.record import AlsoWritten, Title
from gpusim.workloads.fields import Dtypes

PlotKind = Literal["time", "tflops_roofline", "speedup", "sparse_speedup", "stalls", "heat_map", "curves"]
Metric = Literal[
    "time_us", "tflops", "pct_of_peak", "l2_hit_fraction", "dram_bytes", "energy_mj", "power_w", "clock_mhz"
]
ADDITIVE = ("time_us", "dram_bytes", "energy_mj")
"""Metrics of which several GEMMs have a sum."""
FORMATS = ("png", "svg", "pdf")
MAX_LINES = 7
"""Dash patterns that can be distinguished."""
RATIO_RANGE = (1e-3, 1e4)
"""Range of a reference line."""


def parse_ratio(value: object) -> object:
    """A number, or a quotient written out: ``1555/900`` shows the origin of a ratio.

    >>> parse_ratio("3/2")
    1.5
    """
    if isinstance(value, str) and "/" in value:
        above, _, below = value.partition("/")
        try:
            return float(above) / float(below)
        except (ValueError, ArithmeticError):
            raise ValueError("expected a number or a quotient such as 1555/900") from None
    return value


Ratio = Annotated[
    float,
    BeforeValidator(parse_ratio),
    Field(ge=RATIO_RANGE[0], le=RATIO_RANGE[1], allow_inf_nan=False),
    AlsoWritten(str),
]


class ReferenceLine(Part):
    """A horizontal line of a speedup plot."""

    label: Title = Field(description="name in the legend")
    value: Ratio = Field(description="speedup of the line: a number, or a quotient such as 1555/900")
    dtypes: Dtypes | None = Field(default=None, description="only in the panels of these data types")


class PlotEntry(Part):
    """Entry of a plot."""

    kind: PlotKind = Field(description="what is drawn")
    file: str = Field(
        default="",
        pattern=r"^([\w-][\w.-]{0,99})?$",
        description="file name, the kind if empty; .png (the default), .svg or .pdf",
    )
    title: Title = Field(default="", description="the experiment's if empty")
    baseline: str = Field(default="", description="label of the GPU that speedups are relative to")
    baseline_dtype: Dtype | None = Field(
        default=None, description="data type that all speedups are relative to; each row's own if absent"
    )
    lines: tuple[ReferenceLine, ...] = Field(
        default=(), max_length=MAX_LINES, description="horizontal lines of a speedup plot"
    )
    x: str = Field(default="", description="heat_map, curves: key path of the spec's value along the horizontal axis")
    y: str = Field(default="", description="heat_map: key path of the spec's value along the vertical axis")
    series: str = Field(default="", description="curves: key path of the spec's value that has a curve each")
    metric: Metric = Field(default="time_us", description="heat_map, curves: column of the results")
    total: bool = Field(default=False, description="heat_map, curves: the sum over the GEMMs of each group")

    @field_validator("file")
    @classmethod
    def _ending_is_known(cls, file: str) -> str:
        ending = PurePath(file).suffix
        if ending and ending[1:].lower() not in FORMATS:
            raise ValueError(f"'{ending}' is not a plot format; use {', '.join('.' + one for one in FORMATS)}")
        return file

    @model_validator(mode="after")
    def _keys_suit_the_kind(self) -> PlotEntry:
        for key in ("baseline", "baseline_dtype", "lines"):
            if getattr(self, key) and self.kind != "speedup":
                raise ValueError(f"'{key}' belongs to a plot of kind speedup, this one is {self.kind}; remove it")
        if self.total and self.metric not in ADDITIVE:
            raise ValueError(f"GEMMs have no total {self.metric}; use one of {', '.join(ADDITIVE)}")
        return self

    @model_validator(mode="after")
    def _values_suit_the_kind(self) -> PlotEntry:
        takes = {"heat_map": ("x", "y", "metric", "total"), "curves": ("x", "series", "metric", "total")}
        for key in ("x", "y", "series", "metric", "total"):
            if key in self.model_fields_set and key not in takes.get(self.kind, ()):
                kinds = " or ".join(kind for kind, keys in takes.items() if key in keys)
                raise ValueError(f"'{key}' belongs to a plot of kind {kinds}, this one is {self.kind}; remove it")
        needed = [key for key in takes.get(self.kind, ())[:2] if key != "series" and not getattr(self, key)]
        if needed:
            raise ValueError(f"a plot of kind {self.kind} needs '{needed[0]}', the key path of a value that varies")
        return self

    def file_names(self, pages: int) -> tuple[str, ...]:
        """File names of this many pages.

        >>> PlotEntry(kind="stalls", file="ledger.svg").file_names(2)
        ('ledger.svg', 'ledger_2.svg')
        """
        path = PurePath(self.file or self.kind)
        ending = path.suffix or ".png"
        return tuple(f"{path.stem}{f'_{page}' if page > 1 else ''}{ending}" for page in range(1, pages + 1))

    @property
    def key_paths(self) -> tuple[str, ...]:
        """Values of the spec that a plot of kind heat_map or curves is over."""
        return tuple(key_path for key_path in (self.x, self.y, self.series) if key_path)

    @property
    def over(self) -> str:
        """Series that speedups are relative to."""
        return f"{self.baseline} {self.baseline_dtype.value}" if self.baseline_dtype else self.baseline
