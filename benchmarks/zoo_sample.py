"""Write the rows of some of a table's networks, drawn at random, as a table of its own.

python benchmarks/zoo_sample.py TABLE -o SAMPLE.csv --networks N [--seed N] [--where COLUMN=VALUE,VALUE]...

Rows have one of the values in each column that is given, and can be captured: those of PaddleClas are of networks that
``paddleclas.yaml`` names. Networks are drawn among the names of those rows; all rows of a network that is drawn are
written, as they stand in the table.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from zoo import EQUALS, PADDLECLAS

Row = Mapping[str, str]


def sample(rows: Sequence[Row], networks: int, seed: int, wanted: Mapping[str, Collection[str]]) -> list[Row]:
    """The rows of a random sample of networks, in their order.

    Args:
        wanted: values that rows have, by column.
    """
    chosen = [
        row
        for row in rows
        if all(row[column] in values for column, values in wanted.items())
        and (row["framework"] != PADDLECLAS or row["model"] in EQUALS)
    ]
    names = sorted({row["model"] for row in chosen})
    drawn = set(random.Random(seed).sample(names, min(networks, len(names))))  # noqa: S311 -- no secret
    return [row for row in chosen if row["model"] in drawn]


def main() -> None:
    """Write the sample."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    parser.add_argument("--networks", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--where", action="append", default=[], metavar="COLUMN=VALUES", help="values of rows, by commas"
    )
    options = parser.parse_args()
    wanted = {column: values.split(",") for column, _, values in (one.partition("=") for one in options.where)}
    with options.table.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns, rows = list(reader.fieldnames or ()), list(reader)
    if unknown := sorted(wanted.keys() - set(columns)):
        parser.error(f"{options.table} has no column {', '.join(unknown)}")
    found = sample(rows, options.networks, options.seed, wanted)
    if not found:
        parser.error(f"{options.table} has no such rows")
    with options.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(found)
    print(f"{len(found)} rows of {len({row['model'] for row in found})} networks", file=sys.stderr)


if __name__ == "__main__":
    main()
