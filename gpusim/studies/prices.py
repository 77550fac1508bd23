"""Prices of boards, out of a CSV or YAML file: by the hour, or to buy.

A CSV has the columns ``gpu`` and either ``per_hour`` or ``to_buy``; others are ignored. A YAML file has one of these
words as its only key, above the prices by board:

    per_hour:
      a100-sxm4-80gb: 3.2
      t4: 0.53

All prices of a file are of one kind and in one currency, which is called dollar. Boards go by any of their names. A
price that cannot be read, or of a board that is not known, is left out with a warning; the others hold.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from gpusim.errors import InputError
from gpusim.evidence.boards import board_of
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.files.yamlfile import SpecError, YamlFile, read_yaml
from gpusim.specs import UnknownGpuError

Kind = Literal["per_hour", "to_buy"]
_LOG = logging.getLogger(__name__)
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST = 1e9
"""More than any board costs."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of GPUs by their names."""

    kind: Kind
    of_board: dict[str, float]

    def of(self, arch: str) -> float | None:
        """The price of a board by its name; None where none is stated."""
        return self.of_board.get(arch)


def read_prices(path: Path, arch_path: Sequence[Path] = ()) -> Prices:
    """The prices in a file.

    Raises:
        InputError: the file or none of its prices can be read, or a board has two; one line with file, line and remedy.
    """
    kind, entries = _of_yaml(read_yaml(path)) if path.suffix.lower() in {".yaml", ".yml"} else _of_csv(path)
    found: dict[str, float] = {}
    wrong: list[InputError] = []
    for entry in entries:
        try:
            price, board = entry.price(), board_of(entry.gpu, arch_path).gpu.name
        except UnknownGpuError as error:
            wrong.append(entry.error(str(error)))
        except InputError as error:
            wrong.append(error)
        else:
            if board in found:
                raise entry.error(f"{board} is given twice; keep one")
            found[board] = price
    if not found:
        raise wrong[0]
    for one in wrong:
        _LOG.warning("%s; this price is left out", one)
    return Prices(kind, found)


class _Entry(NamedTuple):
    """A price of a file that is still to check."""

    gpu: str
    price: Callable[[], float]
    """The price; raises InputError."""
    error: Callable[[str], InputError]
    """Error with the file and line of the board's name."""


def _of_csv(path: Path) -> tuple[Kind, list[_Entry]]:
    kinds: list[Kind] = []

    def checked_header(where: str, names: list[str]) -> list[str]:
        names = header_with(("gpu",), where, names)
        kinds.extend(kind for kind in KINDS if kind in names)
        if len(kinds) != 1:
            which = "both per_hour and to_buy" if kinds else "no prices"
            raise SpecError(f"{where}: {which}; have one column, per_hour or to_buy")
        return names

    entries = [
        _Entry(
            fields.text("gpu", "name the GPU, as in 'a100-sxm4-80gb'"),
            partial(_price_in, fields, kinds[0]),
            partial(_error_at, f"{fields.where}: gpu"),
        )
        for _, fields in csv_fields(str(path), read_text(path), checked_header)
    ]
    return kinds[0], entries


def _error_at(where: str, problem: str) -> SpecError:
    return SpecError(f"{where}: {problem}")


def _price_in(fields: Fields, kind: Kind) -> float:
    if price := fields.quantity(kind, MOST):
        return price
    raise fields.refuse(kind, "no price above 0", "state it, or remove the line")


def _of_yaml(file: YamlFile) -> tuple[Kind, list[_Entry]]:
    data: Any = file.data
    if not isinstance(data, dict) or len(data) != 1 or next(iter(data)) not in KINDS:
        raise file.error("", "expected one key, per_hour or to_buy, above prices by GPU")
    kind: Kind = next(iter(data))
    if not isinstance(data[kind], dict) or not data[kind]:
        raise file.error(kind, "expected prices by GPU, such as 't4: 0.53'")
    return kind, [
        _Entry(name, partial(_price_at, file, f"{kind}.{name}", price), partial(file.error, f"{kind}.{name}"))
        for name, price in data[kind].items()
    ]


def _price_at(file: YamlFile, key_path: str, price: Any) -> float:
    number = isinstance(price, int | float) and not isinstance(price, bool)
    if not number or not math.isfinite(price) or not 0 < price <= MOST:
        raise file.error(key_path, f"expected a price above 0, got {price!r}; correct or remove it")
    return float(price)
