"""Prices of boards, out of a CSV or YAML file: by the hour, or to buy.

A CSV has the columns ``gpu`` and either ``per_hour`` or ``to_buy``; others are ignored. A YAML file has one of these
words as its only key, above the prices by board:

    per_hour:
      a100-sxm4-80gb: 3.2
      t4: 0.53

All prices of a file are of one kind and in one currency, which is called dollar. Boards go by any of their names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from gpusim.evidence.boards import board_of
from gpusim.evidence.fields import csv_fields, header_with, read_text
from gpusim.files.yamlfile import SpecError, YamlFile, read_yaml
from gpusim.specs import UnknownGpuError

Kind = Literal["per_hour", "to_buy"]
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
        InputError: it cannot be read, or a line is wrong; one line with file, line and remedy.
    """
    if path.suffix.lower() in {".yaml", ".yml"}:
        return _of_yaml(read_yaml(path), arch_path)
    return _of_csv(path, arch_path)


def _of_csv(path: Path, arch_path: Sequence[Path]) -> Prices:
    kinds: list[Kind] = []

    def checked_header(where: str, names: list[str]) -> list[str]:
        names = header_with(("gpu",), where, names)
        kinds.extend(kind for kind in KINDS if kind in names)
        if len(kinds) != 1:
            which = "both per_hour and to_buy" if kinds else "no prices"
            raise SpecError(f"{where}: {which}; have one column, per_hour or to_buy")
        return names

    found: dict[str, float] = {}
    for _, fields in csv_fields(str(path), read_text(path), checked_header):
        name = fields.text("gpu", "name the GPU, as in 'a100-sxm4-80gb'")
        try:
            board = board_of(name, arch_path).gpu.name
        except UnknownGpuError as error:
            raise SpecError(f"{fields.where}: gpu: {error}") from None
        price = fields.quantity(kinds[0], MOST)
        if not price:
            raise fields.refuse(kinds[0], "no price above 0", "state it, or remove the line")
        if board in found:
            raise fields.refuse("gpu", f"{board} is given twice", "keep one line")
        found[board] = price
    return Prices(kinds[0], found)


def _of_yaml(file: YamlFile, arch_path: Sequence[Path]) -> Prices:
    data: Any = file.data
    if not isinstance(data, dict) or len(data) != 1 or next(iter(data)) not in KINDS:
        raise file.error("", "expected one key, per_hour or to_buy, above prices by GPU")
    kind: Kind = next(iter(data))
    if not isinstance(data[kind], dict) or not data[kind]:
        raise file.error(kind, "expected prices by GPU, such as 't4: 0.53'")
    return Prices(kind, dict(_boards(file, kind, data[kind], arch_path)))


def _boards(
    file: YamlFile, kind: Kind, stated: dict[str, Any], arch_path: Sequence[Path]
) -> Iterator[tuple[str, float]]:
    seen: set[str] = set()
    for name, price in stated.items():
        key_path = f"{kind}.{name}"
        try:
            board = board_of(name, arch_path).gpu.name
        except UnknownGpuError as error:
            raise file.error(key_path, str(error)) from None
        if board in seen:
            raise file.error(key_path, f"{board} is given twice; keep one")
        number = isinstance(price, int | float) and not isinstance(price, bool)
        if not number or not math.isfinite(price) or not 0 < price <= MOST:
            raise file.error(key_path, f"expected a price above 0, got {price!r}; correct or remove it")
        seen.add(board)
        yield board, float(price)
