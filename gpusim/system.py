"""A system: a GPU, the library that selects its kernels, and the host that launches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpusim.canonical_text import content_hash
from gpusim.confidence import CalibratedOn, Confidence, calibrated_on
from gpusim.hardware.gpu import Gpu
from gpusim.host.host import Host
from gpusim.library.library import HeuristicBias, Library, SplitKSearch


@dataclass(frozen=True, slots=True)
class System:
    """A GPU, the library that selects its kernels and the host that launches them, as ``load_system`` reads them.

    Each of the three has a hash of its content. ``confidence`` is what is known of the errors of predictions with them.
    """

    gpu: Gpu
    library: Library
    host: Host
    confidence: Confidence | None = None
    """None where no fit has tested these values. It decides no time."""
    overrides: tuple[tuple[str, Any], ...] = ()
    """Key paths and values that a user replaced in the spec, which results repeat. They decide no time."""

    @property
    def calibrated_on(self) -> CalibratedOn:
        """Whose measured runs the values were fitted to."""
        return calibrated_on(self.confidence, self.gpu.name)

    @property
    def content_hash(self) -> str:
        """SHA-256 of all that a result depends on."""
        return content_hash((self.gpu, self.library.content_hash, self.host, self.confidence))

    def values(self) -> dict[str, Any]:
        """Values as nested mappings: those of the GPU, and those of library and host below ``library`` and ``host``."""
        library = {
            "heuristic_bias": self.library.heuristic_bias.model_dump(),
            "split_k_search": self.library.split_k_search.model_dump(),
        }
        return {**self.gpu.model_dump(), "library": library, "host": self.host.model_dump()}

    def with_values(self, values: Iterable[tuple[str, object]]) -> System:
        """This system with other values, by key path, which no fit has tested; keys of tables may be new.

        Raises:
            ValueError: a value is out of its range.
        """
        values = list(values)
        if not values:
            return self
        changed = self.values()
        for key_path, value in values:
            *parents, last = key_path.split(".")
            value_at(changed, parents)[last] = value
        library, host = changed.pop("library"), changed.pop("host")
        selection = replace(
            self.library,
            heuristic_bias=HeuristicBias.model_validate(library["heuristic_bias"]),
            split_k_search=SplitKSearch.model_validate(library["split_k_search"]),
        )
        return System(Gpu.model_validate(changed), selection, Host.model_validate(host))


def value_at(values: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """The value at the keys of nested mappings.

    >>> value_at({"sm": {"count": 40}}, ["sm", "count"])
    40
    """
    part: Any = values
    for key in keys:
        part = part[key]
    return part
