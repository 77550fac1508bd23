"""Boards with some values replaced: what-if questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from gpusim.files.inputs import did_you_mean, excerpt
from gpusim.files.yamlfile import SpecError, join
from gpusim.hardware.gpu import Gpu
from gpusim.specs.checks import Finding, contradictions
from gpusim.specs.document import problem_text
from gpusim.specs.load import Provenance, Spec, assembled


def with_overrides(spec: Spec, overrides: Mapping[str, object]) -> Spec:
    """The same board with some values replaced: ``{"dram.peak_bandwidth_gb_per_s": 3000.0}``.

    Replaced values are of kind ``assumed``, source ``override``. They pass the ranges and cross-checks of spec files;
    only the vendor's stated peaks are not compared: an overridden board is a question, not a product. Its
    library is that of the board as shipped (:attr:`gpusim.hardware.gpu.Gpu.library_board`).

    Raises:
        SpecError: there is no such value, or it is out of range or contradicts another; one line each.
    """
    numbers = spec.gpu.model_dump()
    provenance = dict(spec.provenance)
    known = list(_key_paths(numbers))
    for key_path, value in overrides.items():
        if key_path not in known:
            raise SpecError(f"override: {excerpt(key_path)}: no such value{did_you_mean(key_path, known)}")
        *parents, last = key_path.split(".")
        part = numbers
        for parent in parents:
            part = part[parent]
        part[last] = value
        provenance[key_path] = Provenance(value, "assumed", "override", None, 0)
    gpu = _validated(numbers, spec.gpu)
    return assembled(gpu.with_library_of(spec.gpu.library_board), provenance, spec.files, overrides)


def _validated(numbers: Mapping[str, Any], shipped: Gpu) -> Gpu:
    try:
        gpu = Gpu.model_validate(numbers)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise _refusal(Finding(".".join(map(str, one["loc"])), problem_text(one)) for one in problems) from None
    wrong = [*contradictions(gpu), *_boost_beyond_reach(gpu, shipped)]
    if wrong:
        raise _refusal(iter(wrong))
    return gpu


def _refusal(findings: Iterator[Finding]) -> SpecError:
    return SpecError(*(" ".join(f"override: {key}: {problem}".split()) for key, problem in findings))


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
