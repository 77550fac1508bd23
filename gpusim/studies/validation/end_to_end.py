"""Predictions of measured steps of whole models: what each row of a table stands for, and what it is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusim.evidence.boards import board_of
from gpusim.evidence.end_to_end import StepRow, read_step_tables
from gpusim.execution.service import Service
from gpusim.models.policy import PRECISIONS, Fusion, Policy, default_layout
from gpusim.progress import Progress, no_progress
from gpusim.specs import UnknownGpuError
from gpusim.step.options import StepOptions
from gpusim.studies.models import ModelCase, predict_models
from gpusim.studies.validation.step_report import STEP_TIMES, EndToEndReport, ScoredStep


@dataclass(frozen=True, slots=True)
class _Known:
    """A model of the tables by the shipped one that it is."""

    model: str
    sizes: tuple[tuple[str, int], ...] = ()
    fusion: Fusion = "none"
    tokens_of_item: int = 1
    """Tokens that one item of ``batch`` stands for, where a table counts its batch in tokens."""
    mean_lengths: tuple[tuple[int, int], ...] = ()
    """Mean length of the sequences that a stated longest one stands for, padding within a batch included."""
    inference: str = ""
    """The shipped model of its inference, where that is another."""
    fused_in: tuple[str, ...] = PRECISIONS
    """Precisions that its script takes a fused optimizer in."""


MODELS: Mapping[str, _Known] = {
    "resnet50v1.5": _Known("resnet50"),
    "se-resnext101-32x4d": _Known("se_resnext101_32x4d"),
    "ssd300-r50": _Known("ssd300"),
    "maskrcnn-r50-fpn": _Known("mask_rcnn", inference="mask_rcnn_inference"),
    "transformer-big": _Known("transformer_big", tokens_of_item=28),
    "gnmt-v2": _Known("gnmt_v2"),
    "bert-large-pretrain": _Known("bert_large_masked", fusion="elementwise", mean_lengths=((512, 288),)),
    "bert-large-squad": _Known("bert_large_squad", fused_in=("amp-fp16",)),
    "bert_large": _Known("bert_large"),
    "gpt2_large": _Known("gpt2_large"),
    "gpt3_27": _Known("gpt3_2.7b"),
    "gpt3_xl": _Known("gpt3_xl"),
    "opt_13": _Known("opt_1.3b"),
    "switchxl4": _Known("switch_xl4"),
}
"""By the names that the tables give them. Of NVIDIA's BERT: pre-training runs in TorchScript, which fuses. Its loader
(LDDL) puts sequences of like length together, in bins of 64 tokens; in Wikipedia half of the tokens of 512 are padding
otherwise (Krell et al., arXiv:2107.02027, figure 1), which leaves a mean of 256, and half a bin. ``run_squad.py`` takes
apex's FusedAdam in FP16 and ``BertAdam`` else, whose calls update one parameter after the other."""
DECODES = ("transformer-big", "gnmt-v2")
"""Models whose inference writes one token after the other."""
VERSIONS = {
    "pytorch-20.06": "1.7",
    "pytorch-21.03": "1.9",
    "pytorch-21.11": "1.11",
    "pytorch-21.12": "1.11",
    "pytorch-22.06": "1.13",
    "pytorch-22.10": "1.13",
    "pytorch-2.1": "2.1",
}
"""Version of PyTorch by how the name of a container begins (docs.nvidia.com, PyTorch release notes). That of 20.06 is a
1.6 with the TF32 of 1.7."""


def validate_steps(
    paths: Sequence[Path | str],
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> EndToEndReport:
    """Predict every row of tables of whole models.

    Raises:
        MeasuredError: a file breaks the schema.
        SpecError: a spec is wrong.
    """
    rows = read_step_tables(paths)
    cases: dict[int, ModelCase] = {}
    reasons: dict[int, str] = {}
    for index, row in enumerate(rows):
        if reason := _unpredicted(row, arch_path):
            reasons[index] = reason
        else:
            cases[index] = case_of(row)
    outcomes = dict(zip(cases, predict_models(list(cases.values()), service, arch_path, progress), strict=True))
    reasons |= {index: outcome.reason for index, outcome in outcomes.items() if outcome.result is None}
    scored = [ScoredStep(rows[index], outcome.result) for index, outcome in outcomes.items() if outcome.result]
    skipped = [(rows[index], reasons[index]) for index in sorted(reasons)]
    hashes = {str(path): hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
    return EndToEndReport(tuple(scored), tuple(skipped), hashes)


def case_of(row: StepRow) -> ModelCase:
    """The prediction that a row is compared with."""
    known = MODELS[row.model]
    model = (known.inference if row.mode == "inference" else "") or known.model
    sizes = dict(known.sizes) | {"batch": max(1, row.batch // known.tokens_of_item)}
    length = dict(known.mean_lengths).get(row.seq_len or 0, row.seq_len)
    sizes |= {name: size for name, size in (("seq_len", length), ("image_size", row.image_size)) if size}
    fused = known.fusion == "elementwise" or row.extra.get("variant") == "fusion"
    policy = Policy(
        mode=row.mode,
        precision=row.precision,
        version=next((version for name, version in VERSIONS.items() if row.framework.startswith(name)), "2.1"),
        layout=default_layout(row.precision),
        fusion="elementwise" if fused else "none",
        fused_optimizer=row.precision in known.fused_in,
        accumulates=row.accumulation > 1,
    )
    options = StepOptions(row.accumulation, synchronised=row.mode == "inference", framework=row.framework)
    without = ("update",) if row.unit == STEP_TIMES else ()
    return ModelCase(model, row.gpu, policy, options, sizes, without, row.gpus)


def _unpredicted(row: StepRow, arch_path: Iterable[Path]) -> str:
    """Why a row has no prediction; empty where it may have one."""
    try:
        _ = board_of(row.gpu, arch_path)
    except UnknownGpuError as error:
        return str(error)
    if row.model not in MODELS:
        return f"model '{row.model}' is not known"
    if row.mode == "inference" and row.model in DECODES:
        return "decoding one token after the other is not predicted"
    return ""
