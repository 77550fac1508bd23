"""The catalogue of library kernels: tiles, warps, stages and registers, as data per compute capability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from gpusim.specfile import SpecError, load_yaml_with_lines, spec_folders
from gpusim.workload import Dtype

Staging = Literal["registers", "async", "direct"]
"""How operands travel: through registers into shared memory, by cp.async, or straight to registers."""


NAME_FIELDS = frozenset({"tile_m", "tile_n", "tile_k", "stages", "layout", "dtype", "suffix"})
"""What a family's name may be formatted with."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KernelEntry(_Entry):
    """One tile of a family. ``tile`` is [m, n, k] of a CTA, ``warps`` its warps along [m, n, k]."""

    tile: tuple[PositiveInt, PositiveInt, PositiveInt]
    warps: tuple[PositiveInt, PositiveInt, PositiveInt]
    stages: PositiveInt
    registers: PositiveInt = Field(description="per thread, as profilers report")
    suffix: str = ""

    @field_validator("warps")
    @classmethod
    def _warps_share_the_tile(cls, warps: tuple[int, int, int], info: ValidationInfo) -> tuple[int, int, int]:
        tile = info.data.get("tile", warps)
        if any(extent % count for extent, count in zip(tile, warps, strict=True)):
            raise ValueError(f"{list(warps)} do not divide the tile {list(tile)} evenly")
        return warps


class Family(_Entry):
    """Kernels that differ in their tile only."""

    name: str = Field(description="format string: {tile_m} {tile_n} {tile_k} {stages} {layout} {dtype} {suffix}")
    source: str
    instruction: str
    inputs: tuple[Dtype, ...]
    staging: Staging
    load_bytes: PositiveInt = Field(description="widest global load of a thread [B]")
    setup_instructions: NonNegativeInt = Field(description="dependent, before the first load")
    step_instructions: NonNegativeInt = Field(description="per warp and step: loop, addresses, predicates")
    pipelined: bool = Field(description="fetches the next slice's operands while one multiplies")
    stores_result: bool
    split_k: tuple[Literal["in_kernel", "reduce"], ...]
    raster_width: NonNegativeInt = Field(description="x tiles of a raster stripe, 0: plain order")
    max_n: PositiveInt | None = Field(default=None, description="largest n (vectors) it serves")
    kernels: tuple[KernelEntry, ...]

    @field_validator("name")
    @classmethod
    def _name_uses_known_fields(cls, name: str) -> str:
        unknown = {field for _, field, _, _ in Formatter().parse(name) if field} - NAME_FIELDS
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(NAME_FIELDS))}")
        return name


class Catalogue(_Entry):
    """One file of ``arch_specs/kernels``."""

    families: tuple[Family, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one family, ready to be planned."""

    family: Family
    tile_m: int
    tile_n: int
    tile_k: int
    warps_m: int
    warps_n: int
    warps_k: int
    stages: int
    registers: int
    suffix: str

    @property
    def warps(self) -> int:
        return self.warps_m * self.warps_n * self.warps_k

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def shared_bytes(self, element_bits: int) -> int:
        """Shared memory of a CTA: all stages of both operand tiles [B]."""
        if self.family.staging == "direct":
            return 0
        return self.stages * (self.tile_m + self.tile_n) * self.tile_k * element_bits // 8

    def printed_name(self, layout: str, dtype: Dtype) -> str:
        """The name a profiler would show."""
        return self.family.name.format(
            tile_m=self.tile_m,
            tile_n=self.tile_n,
            tile_k=self.tile_k,
            stages=self.stages,
            layout=layout,
            dtype=dtype.value,
            suffix=self.suffix,
        )


def kernels_of(catalogue: Catalogue) -> tuple[Kernel, ...]:
    """All kernels of a catalogue, flat."""
    return tuple(
        Kernel(family, *entry.tile, *entry.warps, entry.stages, entry.registers, entry.suffix)
        for family in catalogue.families
        for entry in family.kernels
    )


def load_kernels(names: tuple[str, ...]) -> tuple[Kernel, ...]:
    """Kernels of the named catalogues, from ``kernels/`` beside the specs (the user's folders first).

    Raises:
        SpecError: a catalogue is missing or malformed; one line with file and line.
    """
    return tuple(kernel for name in names for kernel in _load_catalogue(_find(name)))


def _find(name: str) -> Path:
    if name.endswith(".yaml"):
        return Path(name)
    paths = [folder / "kernels" / f"{name}.yaml" for folder in spec_folders()]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise SpecError(f"kernel_catalogues: no catalogue '{name}'; expected a file like {paths[-1]}")
    return path


def _load_catalogue(path: Path) -> tuple[Kernel, ...]:
    file = load_yaml_with_lines(path)
    return _kernels_of_file(path, file.sha256)


@lru_cache(maxsize=64)
def _kernels_of_file(path: Path, sha256: str) -> tuple[Kernel, ...]:
    del sha256  # only keys the cache
    file = load_yaml_with_lines(path)
    try:
        return kernels_of(Catalogue.model_validate(file.data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = first["msg"].removeprefix("Value error, ")
        raise file.error(".".join(str(key) for key in first["loc"]), f"{problem}; correct it") from None
