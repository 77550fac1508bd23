"""CSV files written again as Parquet, where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path


def can_write_parquet() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def write_parquet(table: Path, kinds: Mapping[str, type], path: Path) -> None:
    """Write the rows of a CSV file as Parquet, a part of the file at a time.

    Args:
        kinds: Of the columns. Integers, floats and truth values are null where the CSV has nothing; all others are text
            as in the CSV.
    """
    import pyarrow as pa  # noqa: PLC0415 -- an optional extra
    from pyarrow import csv, parquet  # noqa: PLC0415

    arrow = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    convert = csv.ConvertOptions(
        column_types={name: arrow.get(kind, pa.string()) for name, kind in kinds.items()},
        null_values=[""],
        true_values=["True"],
        false_values=["False"],
        strings_can_be_null=False,
    )
    parse = csv.ParseOptions(newlines_in_values=True)
    with (
        table.open("rb") as source,  # pyarrow itself opens no path that is not UTF-8
        path.open("wb") as target,
        csv.open_csv(source, parse_options=parse, convert_options=convert) as batches,
        parquet.ParquetWriter(target, batches.schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
