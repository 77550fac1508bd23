"""Boards with overridden values, for what-if questions."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from gpusim.errors import did_you_mean, excerpt
from gpusim.files.yamlfile import SpecError, join, read_yaml
from gpusim.hardware.gpu import Gpu
from gpusim.host.host import Host
from gpusim.library.library import LibraryRecord
from gpusim.specs.catalogues import catalogue_files, load_kernels, load_vector_kernels
from gpusim.specs.checks import Finding, contradictions
from gpusim.specs.document import problem_text
from gpusim.specs.folders import search_folders
from gpusim.specs.load import Spec, digest
from gpusim.specs.records import Provenance, R
from gpusim.system import System

CATALOGUES = "library.kernel_catalogues"


def with_overrides(spec: Spec, overrides: Mapping[str, object]) -> Spec:
    """The same board with some values replaced: ``{"dram.peak_bandwidth_gb_per_s": 3000.0}``.

    Replaced values are of kind ``assumed``, source ``override``. They pass the ranges and cross-checks of spec files;
    only the vendor's stated peaks are not compared: an overridden board is a question, not a product. The heuristic of
    its library stays tuned for the board as shipped.

    Raises:
        SpecError: there is no such value, or it is out of range or contradicts another; one line each.
    """
    gpu, library, host = _replaced(Records(spec.gpu, spec.library_record, spec.system.host), overrides)
    wrong = [*contradictions(gpu), *_boost_beyond_reach(gpu, spec.gpu)]
    if wrong:
        raise _refusal(wrong)
    shipped = spec.system.library
    found = replace(
        shipped,
        heuristic_bias=library.heuristic_bias,
        split_k_search=library.split_k_search,
        tuned_for=shipped.tuned_for or (None if gpu == spec.gpu else spec.gpu),
    )
    decided_by = spec.decided_by
    if CATALOGUES in overrides:
        try:
            catalogues = catalogue_files(library.kernel_catalogues, search_folders(()), spec.files[0].parent)
        except SpecError as error:
            raise _refusal([Finding(CATALOGUES, str(error))]) from None
        found = replace(found, kernels=load_kernels(catalogues), vector_kernels=load_vector_kernels(catalogues))
        decided_by = (*decided_by, *((path, read_yaml(path).sha256) for path in catalogues))
    return replace(
        spec,
        system=System(gpu, found, host),
        library_record=library,
        provenance=types.MappingProxyType({**spec.provenance, **_origins(overrides)}),
        decided_by=decided_by,
        sha256=digest(decided_by, overrides),
    )


class Records(NamedTuple):
    """The records of a board that hold values."""

    gpu: Gpu
    library: LibraryRecord
    host: Host


def _replaced(records: Records, values: Mapping[str, object]) -> Records:
    numbers = {**records.gpu.model_dump(), "library": records.library.model_dump(), "host": records.host.model_dump()}
    known = list(_key_paths(numbers))
    for key_path, value in values.items():
        if key_path not in known:
            raise SpecError(f"override: {excerpt(key_path)}: no such value{did_you_mean(key_path, known)}")
        *parents, last = key_path.split(".")
        part: Any = numbers
        for parent in parents:
            part = part[parent]
        part[last] = value
    library, host = numbers.pop("library"), numbers.pop("host")
    return Records(
        _validated(Gpu, numbers), _validated(LibraryRecord, library, "library"), _validated(Host, host, "host")
    )


def _validated(record: type[R], numbers: Mapping[str, Any], above: str = "") -> R:
    try:
        return record.model_validate(numbers)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise _refusal(
            Finding(join(above, ".".join(map(str, one["loc"]))), problem_text(one)) for one in problems
        ) from None


def _refusal(findings: Iterable[Finding]) -> SpecError:
    return SpecError(*(" ".join(f"override: {key}: {problem}".split()) for key, problem in findings))


def _origins(overrides: Mapping[str, object]) -> dict[str, Provenance]:
    return {key_path: Provenance(value, "assumed", "override", None, 0) for key_path, value in overrides.items()}


def _boost_beyond_reach(gpu: Gpu, shipped: Gpu) -> Iterator[Finding]:
    """A vendor may state a boost clock above the one that a board reaches, which decides its time; a question may not.

    Both clocks may change together.
    """
    stated = max(1.0, shipped.clock.boost_mhz / shipped.clock.max_mhz)
    if gpu.clock.boost_mhz > shipped.clock.boost_mhz and gpu.clock.boost_mhz > stated * gpu.clock.max_mhz:
        yield Finding(
            "clock.boost_mhz",
            f"{gpu.clock.boost_mhz:g} exceeds max_mhz {gpu.clock.max_mhz:g}, the highest clock that the board runs"
            " at; set clock.max_mhz as well",
        )


def _key_paths(numbers: Mapping[str, Any], key_path: str = "") -> Iterator[str]:
    for key, value in numbers.items():
        below = join(key_path, key)
        if isinstance(value, dict):
            yield from _key_paths(value, below)
        else:
            yield below
