"""Measured steps of whole models: rows of one CSV schema, as NVIDIA's and others' tables of throughput have them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.models.policy import PRECISIONS, Precision

REQUIRED = ("id", "gpu", "gpus", "model", "mode", "precision", "batch_per_gpu", "value", "unit")
OPTIONAL = ("framework", "container", "seq_len", "image_size", "accumulation_steps", "latency_ms", "notes", "source")
KNOWN_BY = frozenset({"unit", "value", "model", "mode"})
"""Columns that tell such a table from others."""
UNITS = ("img/s", "seq/s", "tok/s", "ms/step")
MODES = ("train", "inference")
MOST = 1e9
"""Largest throughput or time."""

DECODES_JPEG = ("resnet50v1.5", "se-resnext101-32x4d", "resnext101-32x4d")
"""Models whose runs read ImageNet as JPEG files, which the CPUs decode."""
GPUS_THAT_OUTRUN_CPUS = 8


@dataclass(frozen=True, slots=True)
class StepRow:
    """One measured throughput or step time. Texts are empty and numbers None where the table does not state them."""

    file: str
    line: int
    id: str
    gpu: str
    gpus: int
    model: str
    """Name of the model in the table."""
    mode: Literal["train", "inference"]
    precision: Precision
    batch: int
    """Items of one GPU in one pass."""
    value: float
    """Throughput of all GPUs together, in ``unit``."""
    unit: str
    framework: str = ""
    """Container or version, such as ``pytorch-21.03-py3``."""
    seq_len: int | None = None
    image_size: int | None = None
    accumulation: int = 1
    notes: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Columns outside the schema, as text."""

    @property
    def input_bound(self) -> bool:
        """Whether the input is taken to limit the run, by a rule that was set before any prediction was made.

        Training of an image classifier from JPEG files in half precision on eight GPUs or more: then the CPUs of one
        server decode and crop what all of its GPUs take at their highest rate.
        """
        half = self.precision in ("amp-fp16", "amp-bf16", "fp16", "bf16")
        return self.mode == "train" and half and self.gpus >= GPUS_THAT_OUTRUN_CPUS and self.model in DECODES_JPEG


def read_steps(path: Path | str) -> list[StepRow]:
    """The rows of a table.

    Raises:
        MeasuredError: the file breaks the schema; one line with file, line, column and remedy.
    """
    name = str(path)
    rows = csv_fields(name, read_text(path), lambda where, names: header_with(REQUIRED, where, names))
    return [_row(fields, name, line) for line, fields in rows]


def _row(fields: Fields, file: str, line: int) -> StepRow:
    """The checked row of one line."""
    value = fields.quantity("value", MOST)
    if not value:
        raise fields.refuse("value", "expected a positive number", "correct or remove the row")
    size = fields.get("image_size")
    return StepRow(
        file=file,
        line=line,
        id=fields.get("id"),
        gpu=fields.text("gpu", "name the GPU, as in 'a100-sxm4-80gb'"),
        gpus=fields.number("gpus"),
        model=fields.text("model", "name the model"),
        mode="train" if fields.one_of("mode", MODES) == "train" else "inference",
        precision=_precision(fields),
        batch=fields.number("batch_per_gpu"),
        value=value,
        unit=fields.one_of("unit", UNITS),
        framework=fields.get("container") or fields.get("framework"),
        seq_len=fields.whole("seq_len"),
        # Some tables describe a range of sizes; then the model's own stands.
        image_size=int(size) if re.fullmatch(r"[0-9]{1,5}", size) else None,
        accumulation=fields.whole("accumulation_steps") or 1,
        notes=fields.get("notes"),
        extra={name: text for name, text in fields.values.items() if name not in (*REQUIRED, *OPTIONAL)},
    )


def _precision(fields: Fields) -> Precision:
    named = fields.one_of("precision", PRECISIONS)
    return next(known for known in PRECISIONS if known == named)
