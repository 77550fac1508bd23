"""Boards with overridden values, for what-if questions."""

from __future__ import annotations

import difflib
import math
import re
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from gpusim.errors import excerpt, shown
from gpusim.files.yamlfile import SpecError, join
from gpusim.hardware.gpu import Gpu
from gpusim.host.host import Host
from gpusim.library.library import LibraryRecord
from gpusim.specs.catalogues import (
    catalogue_files,
    files_with_bases,
    load_attention_kernels,
    load_convolution_algorithms,
    load_convolution_kernels,
    load_convolution_transforms,
    load_kernels,
    load_older_kernels,
    load_vector_kernels,
)
from gpusim.specs.checks import Finding, contradictions
from gpusim.specs.document import problem_text
from gpusim.specs.folders import search_folders
from gpusim.specs.load import Spec, digest
from gpusim.specs.records import Provenance, R
from gpusim.system import System, value_at

CATALOGUES = "library.kernel_catalogues"
MULTIPLE = re.compile(r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)x")
"""A multiple of the shipped value: ``1.5x``."""
TURNED_MULTIPLE = re.compile(r"[x*] *([0-9.]{1,20})")
"""A multiple as it is written elsewhere: ``x1.5``."""
NUMBER_WITH_UNIT = re.compile(r"[0-9][0-9.]{0,20} *[A-Za-z%][A-Za-z/%]{0,20}")


class OverrideError(SpecError):
    """Replaced values that cannot be, each with its key path."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__(*(" ".join(f"override: {one.key_path}: {one.problem}".split()) for one in findings))
        self.findings = findings


def with_overrides(spec: Spec, overrides: Mapping[str, object], *, retuned: bool = False) -> Spec:
    """A board with some values replaced: ``{"dram.peak_bandwidth_gb_per_s": 3000.0, "l2.capacity_mib": "2x"}``.

    A text such as ``1.5x`` is a multiple of the shipped value, rounded where the value is an integer. Replaced values
    are of kind ``assumed``, source ``override``. They pass the ranges and cross-checks of spec files; only the vendor's
    stated peaks are not compared: an overridden board is a question, not a product. The heuristic of its library stays
    tuned for the board as shipped, unless it is ``retuned`` for the changed one, as the vendor's would be in time.

    Raises:
        OverrideError: there is no such value, or it is out of range or contradicts another; one line each.
    """
    shipped_values = values_of(spec)
    overrides = {key_path: resolved(shipped_values, key_path, value) for key_path, value in overrides.items()}
    gpu, library, host = _replaced(spec, overrides)
    wrong = [*contradictions(gpu), *_boost_beyond_reach(gpu, spec.gpu)]
    if wrong:
        raise OverrideError(*wrong)
    shipped = spec.system.library
    found = replace(
        shipped,
        heuristic_bias=library.heuristic_bias,
        split_k_search=library.split_k_search,
        tuned_for=None if retuned or gpu == spec.gpu else shipped.tuned_for or spec.gpu,
    )
    confidence = spec.system.confidence
    if confidence and gpu != spec.gpu:
        confidence = confidence.model_copy(update={"variant": True})
    decided_by = spec.decided_by
    if CATALOGUES in overrides:
        try:
            catalogues = catalogue_files(library.kernel_catalogues, search_folders(()), spec.files[0].parent)
        except SpecError as error:
            raise OverrideError(Finding(CATALOGUES, str(error))) from None
        found = replace(
            found,
            kernels=load_kernels(catalogues, library.last_cuda),
            convolution_kernels=load_convolution_kernels(catalogues, library.last_cuda),
            convolution_algorithms=load_convolution_algorithms(catalogues, library.last_cuda),
            convolution_transforms=load_convolution_transforms(catalogues, library.last_cuda),
            vector_kernels=load_vector_kernels(catalogues),
            attention_kernels=load_attention_kernels(catalogues),
            older_kernels=load_older_kernels(catalogues) if library.last_cuda is None else (),
        )
        decided_by = (*decided_by, *files_with_bases(catalogues))
    return replace(
        spec,
        system=System(
            gpu,
            found,
            host,
            confidence,
            tuple({**dict(spec.system.overrides), **overrides}.items()),
        ),
        library_record=library,
        provenance=types.MappingProxyType({**spec.provenance, **_origins(overrides)}),
        decided_by=decided_by,
        sha256=digest(
            decided_by,
            {
                **overrides,
                **({"retuned": True} if retuned else {}),
                **({"cuda": library.last_cuda} if library.last_cuda else {}),
            },
        ),
    )


def values_of(spec: Spec) -> dict[str, Any]:
    """Every value of a board that can be replaced, its library's and its host's too, by key path."""
    return dict(_leaves(_numbers(spec)))


def resolved(shipped_values: Mapping[str, Any], key_path: str, value: object) -> object:
    """A value to replace a shipped one with: a multiple such as ``1.5x`` as the number that it stands for.

    Raises:
        OverrideError: there is no value to replace, or none to multiply; or a unit is given.
    """
    if key_path not in shipped_values:
        raise OverrideError(Finding(excerpt(key_path), f"no such value; {_nearest(shipped_values, key_path)}"))
    shipped = shipped_values[key_path]
    if not isinstance(value, str) or isinstance(shipped, str):
        return value
    if turned := TURNED_MULTIPLE.fullmatch(value):
        raise OverrideError(Finding(key_path, f"{shown(value)}: write a multiple as {turned[1]}x"))
    if not (multiple := MULTIPLE.fullmatch(value)):
        if NUMBER_WITH_UNIT.fullmatch(value):
            problem = f"{shown(value)}: its unit is that of the key; write the number alone, or a multiple such as 1.5x"
            raise OverrideError(Finding(key_path, problem))
        return value
    if not is_number(shipped):
        problem = f"{shown(value)} is a multiple of {shown(shipped)}, which is not a number; write the value itself"
        raise OverrideError(Finding(key_path, problem))
    return number_like(shipped, float(multiple[1]) * shipped)


def _nearest(shipped_values: Collection[str], key_path: str) -> str:
    """What may have been meant by a key path that does not exist: a close one, or all values of its section."""
    longer = [known for known in shipped_values if known.startswith(f"{key_path}_")]
    if near := longer or difflib.get_close_matches(key_path[:100], shipped_values, n=1, cutoff=0.7):
        return f"did you mean {near[0]}?"
    for section in (key_path, key_path.rpartition(".")[0]):
        below = [known.removeprefix(f"{section}.") for known in shipped_values if known.startswith(f"{section}.")]
        if below:
            return f"{section} has {', '.join(dict.fromkeys(known.partition('.')[0] for known in below))}"
    return "'gpusim archs show' lists them"


def number_like(shipped: float, value: float) -> float:
    """A number as a value of the type of the shipped one: whole where that is, else with 12 digits.

    >>> number_like(108, 162.4), number_like(40.0, 1.1 * 40.0)
    (162, 44.0)
    """
    return round(value) if isinstance(shipped, int) and math.isfinite(value) else float(f"{value:.12g}")


def is_number(value: object) -> bool:
    """Whether a value is a number, which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class Records(NamedTuple):
    """The records of a board that hold values."""

    gpu: Gpu
    library: LibraryRecord
    host: Host


def _numbers(spec: Spec) -> dict[str, Any]:
    """Values of a spec as nested mappings."""
    library, host = spec.library_record, spec.system.host
    return {**spec.gpu.model_dump(), "library": library.model_dump(), "host": host.model_dump()}


def _replaced(spec: Spec, values: Mapping[str, object]) -> Records:
    numbers = _numbers(spec)
    for key_path, value in values.items():
        *parents, last = key_path.split(".")
        value_at(numbers, parents)[last] = value
    library, host = numbers.pop("library"), numbers.pop("host")
    return Records(
        _validated(Gpu, numbers), _validated(LibraryRecord, library, "library"), _validated(Host, host, "host")
    )


def _validated(record: type[R], numbers: Mapping[str, Any], above: str = "") -> R:
    try:
        return record.model_validate(numbers)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise OverrideError(
            *(Finding(join(above, ".".join(map(str, one["loc"]))), problem_text(one)) for one in problems)
        ) from None


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


def _leaves(numbers: Mapping[str, Any], key_path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in numbers.items():
        below = join(key_path, key)
        if isinstance(value, dict):
            yield from _leaves(value, below)
        else:
            yield below, value
