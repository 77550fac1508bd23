"""The catalogue of library kernels: tiles, warps, stages and registers, as data per compute capability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from gpusim.specfile import SpecError, load_yaml_with_lines, spec_folders
from gpusim.workload import Dtype

Staging = Literal["registers", "async", "direct"]
"""How operands travel: through registers into shared memory, by cp.async, or straight to registers."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KernelEntry(_Entry):
    """One tile of a family. ``tile`` is [m, n, k] of a CTA, ``warps`` its warps along [m, n, k]."""

    tile: tuple[PositiveInt, PositiveInt, PositiveInt]
    warps: tuple[PositiveInt, PositiveInt, PositiveInt]
    stages: PositiveInt
    registers: PositiveInt = Field(description="per thread, as profilers report")
    suffix: str = ""


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


@lru_cache(maxsize=64)
def load_kernels(names: tuple[str, ...]) -> tuple[Kernel, ...]:
    """Kernels of the named catalogues, from ``kernels/`` beside the specs (the user's folders first).

    Raises:
        SpecError: a catalogue is missing or malformed; one line with file and line.
    """
    return tuple(kernel for name in names for kernel in kernels_of(_load_catalogue(name)))


def _load_catalogue(name: str) -> Catalogue:
    paths = [folder / "kernels" / f"{name}.yaml" for folder in spec_folders()]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise SpecError(f"kernel_catalogues: no catalogue '{name}'; expected a file like {paths[-1]}")
    file = load_yaml_with_lines(path)
    try:
        return Catalogue.model_validate(file.data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise file.error(".".join(str(key) for key in first["loc"]), f"{first['msg']}; correct it") from None
