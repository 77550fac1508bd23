"""Measured steps of whole models: rows of one CSV schema, as NVIDIA's and others' tables of throughput have them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from packaging.version import InvalidVersion, Version

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.models.policy import PRECISIONS, AttentionKind, Layout, Precision

Parallel = Literal["data", "tensor", "pipeline"]
Unpredicted = Literal["fp64"]
UNPREDICTED: tuple[Unpredicted, ...] = get_args(Unpredicted)
"""Precisions of tables that no model is predicted in: their rows are skipped."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ATTENTION: tuple[AttentionKind, ...] = get_args(AttentionKind)
REQUIRED = ("id", "gpu", "gpus", "model", "mode", "precision", "batch_per_gpu", "value", "unit")
OPTIONAL = (
    *("framework", "container", "seq_len", "image_size", "accumulation_steps", "latency_ms", "notes", "source"),
    *("layout", "parallel", "attention", "compiled", "clock_mhz", "torch", "cuda", "variant"),
    *("next_batch", "next_why"),
)
KNOWN_BY = frozenset({"unit", "value", "model", "mode"})
"""Columns that tell such a table from others."""
UNITS = ("img/s", "seq/s", "tok/s", "ms/step")
MODES = ("train", "training", "inference")
TRUTH = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False, "": False}
PARALLEL = {"data": "data", "dp": "data", "tensor": "tensor", "tp": "tensor", "pipeline": "pipeline", "pp": "pipeline"}
_SHARED = re.compile(r"(?P<how>[a-z]+)[ :]?(?P<degree>\d{1,4})?(?:_(?P<passes>\d{1,4}))?", re.ASCII)
"""``tensor``, ``tensor:4``, and as NeuSight has them ``dp4``, ``tp4``, and ``pp4_2``: four stages, two passes."""
_STATED = re.compile(r"\b(torch|cuda)-(\d[\w.]*)", re.ASCII)
"""Versions that stand in the place of a container: ``torch-1.4 cuda-10.0 cudnn-7.6.0``."""
_NVIDIA_CONTAINER = re.compile(r"nvcr\.io/nvidia/", re.ASCII)
"""Beginning of a container whose versions may stand beside it."""
COMPILED = "fusion"
"""NeuSight's variant that torch.compile made."""
MOST_MHZ = 10_000.0
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
    precision: Precision | Unpredicted
    batch: int
    """Items of one GPU in one pass."""
    value: float
    """Throughput of all GPUs together, in ``unit``."""
    unit: str
    framework: str = ""
    """Container or version, such as ``pytorch-21.03-py3``."""
    library: str = ""
    """Library or program that ran the model, such as ``timm``."""
    seq_len: int | None = None
    image_size: int | None = None
    accumulation: int = 1
    layout: Layout | None = None
    """Layout of images; None: as the script has it."""
    parallel: Parallel = "data"
    """How the GPUs share the work. ``batch`` counts items of one pass: of all GPUs but where each has its own."""
    attention: AttentionKind | None = None
    compiled: bool = False
    """Whether torch.compile made the step."""
    clock_mhz: float | None = None
    """SM clock that the GPU was locked to [MHz]."""
    torch: str | None = None
    """Version of PyTorch; None: that of the container."""
    cuda: int | None = None
    """Major version of CUDA whose libraries ran."""
    failed_batch: int | None = None
    """Smallest batch of those tried that ran out of memory."""
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
    size = fields.get("image_size").removesuffix(".0")
    parallel, passes = _parallel(fields)
    container = fields.get("container")
    stated = dict(_STATED.findall(container))
    names_versions = bool(stated) and not _NVIDIA_CONTAINER.match(container)  # in place of a container
    return StepRow(
        file=file,
        line=line,
        id=fields.get("id"),
        gpu=fields.text("gpu", "name the GPU, as in 'a100-sxm4-80gb'"),
        gpus=fields.number("gpus"),
        model=fields.text("model", "name the model"),
        mode="inference" if fields.one_of("mode", MODES) == "inference" else "train",
        precision=_precision(fields),
        batch=fields.number("batch_per_gpu"),
        value=value,
        unit=fields.one_of("unit", UNITS),
        framework=container.split()[0] if container and not names_versions else fields.get("framework"),
        library=fields.get("framework"),
        seq_len=fields.whole("seq_len"),
        # Some tables describe a range of sizes; then the model's own stands.
        image_size=int(size) if re.fullmatch(r"[0-9]{1,5}", size) else None,
        accumulation=fields.whole("accumulation_steps") or passes,
        layout=next((one for one in LAYOUTS if one == fields.one_of("layout", LAYOUTS, unknown=("",))), None),
        parallel=parallel,
        attention=next((one for one in ATTENTION if one == fields.one_of("attention", ATTENTION, unknown=("",))), None),
        compiled=TRUTH[fields.one_of("compiled", tuple(TRUTH))] or fields.get("variant") == COMPILED,
        clock_mhz=fields.quantity("clock_mhz", MOST_MHZ) or None,
        torch=_torch(fields, stated.get("torch", "")),
        cuda=_cuda(fields, stated.get("cuda", "")),
        failed_batch=None if fields.get("next_why") else fields.whole("next_batch"),
        notes=fields.get("notes"),
        extra={name: text for name, text in fields.values.items() if name not in (*REQUIRED, *OPTIONAL)},
    )


def _parallel(fields: Fields) -> tuple[Parallel, int]:
    """How GPUs share the work, and the passes of an update that stand beside it."""
    column = "parallel" if fields.get("parallel") else "variant"
    text = fields.get(column).lower()
    if not text or (column == "variant" and text == COMPILED):
        return "data", 1
    found = _SHARED.fullmatch(text)
    if found is None or found["how"] not in PARALLEL:
        known = "data, tensor or pipeline, with the number of GPUs as in tensor:4"
        raise fields.refuse(column, f"expected {known}, got '{excerpt(text)}'", "correct or empty it")
    gpus = fields.number("gpus")
    if found["degree"] and int(found["degree"]) != gpus:
        problem = f"{text} is of {found['degree']} GPUs, and the column gpus says {gpus}"
        raise fields.refuse(column, problem, "correct one; combinations are not predicted")
    how = PARALLEL[found["how"]]
    return next(one for one in get_args(Parallel) if one == how), int(found["passes"] or 1)


def _torch(fields: Fields, beside: str) -> str | None:
    """A version of PyTorch, or the one that the container states; a build such as ``2.1.0+cu121`` is its release."""
    text = fields.get("torch").partition("+")[0] or beside
    try:
        return ".".join(map(str, Version(text).release[:2])) if text else None
    except InvalidVersion:
        raise fields.refuse("torch", f"expected a version such as 2.1, got '{excerpt(text)}'", "correct it") from None


def _cuda(fields: Fields, beside: str) -> int | None:
    """The major version of CUDA, or the one that the container states; ``12.4`` is 12."""
    version = fields.quantity("cuda", 1_000) or float(beside or 0)
    return int(version) or None if version else None


def _precision(fields: Fields) -> Precision | Unpredicted:
    named = fields.one_of("precision", (*PRECISIONS, *UNPREDICTED))
    return next(known for known in (*PRECISIONS, *UNPREDICTED) if known == named)
