"""What requests may choose by name: GPUs, operators, models. Nothing in a request names a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from gpusim.errors import InputError, did_you_mean, excerpt
from gpusim.execution.cases import OperatorWorkload
from gpusim.execution.models import model_step
from gpusim.models.loading import open_model, shipped_models
from gpusim.models.policy import ATTENTION_KINDS, LAYOUTS, MODES, PRECISIONS, Fusion
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.report.gpu_tables import gpu_summary
from gpusim.serve.records import (
    MOST_SIZE,
    BoardRequest,
    Conditions,
    FieldAnswer,
    ModelAnswer,
    OperatorAnswer,
    PredictRequest,
    StepRequest,
    WorkloadsAnswer,
)
from gpusim.specs import with_overrides
from gpusim.specs.overrides import is_number, values_of
from gpusim.specs.registry import normalised
from gpusim.studies.knobs import overrides_of_knobs
from gpusim.studies.workload import GpuVariant, Workload, powered_boards
from gpusim.workloads import gemm
from gpusim.workloads.attention import ATTENTION_OPS
from gpusim.workloads.conditions import L2_STATES, OPERANDS
from gpusim.workloads.convolution import CONVOLUTION_OPS
from gpusim.workloads.operators import OPS
from gpusim.workloads.short_form import is_operator, operator_of
from gpusim.workloads.vector import VECTOR_OPS

SUFFIXES = (".yaml", ".yaml.gz")


@dataclass(frozen=True)
class Choices:
    """GPUs and models by name."""

    boards: tuple[str, ...]
    captured: Mapping[str, Path] = field(default_factory=dict)
    """Models of the folder that the command names."""

    @cached_property
    def _by_name(self) -> Mapping[str, str]:
        """Boards by all of their names, as they are compared."""
        found: dict[str, str] = {}
        for name in self.boards:
            gpu = GpuVariant(name).spec.gpu
            for one in (*gpu.short_names, *gpu.aliases, name):
                found[normalised(one)] = name
        return found

    def board(self, place: str, name: str) -> str:
        """The name of a board.

        Raises:
            InputError: there is none.
        """
        found = self._by_name.get(normalised(name))
        if found is None:
            raise InputError(f"{place}: unknown GPU '{excerpt(name)}'{did_you_mean(name, self.boards)}")
        return found

    def variant(self, board: BoardRequest, place: str = "") -> GpuVariant:
        """A board with its values.

        Args:
            place: prefix of the fields in messages.

        Raises:
            InputError: there is no such board, knob or value, or values contradict each other.
        """
        name = self.board(f"{place}gpu", board.gpu)
        spec = GpuVariant(name).spec
        try:
            turned = overrides_of_knobs(spec, board.knobs)
        except InputError as error:
            raise InputError(f"{place}{error}") from None
        known = values_of(spec)
        for key_path in board.overrides:
            # Of the library and the host a spec file names others, and texts may name files.
            if key_path in known and (key_path.startswith(("library.", "host.")) or not _is_numeric(known[key_path])):
                raise InputError(f"{place}overrides: {key_path} is not a number of the GPU; leave it out")
        overrides = {**turned, **board.overrides}
        if overrides:
            changed = dict(with_overrides(spec, overrides).system.overrides)
            overrides = {key: value for key, value in changed.items() if _as_list(known[key]) != _as_list(value)}
        return GpuVariant(name, overrides)

    def workload(self, request: PredictRequest) -> Workload:
        """What is predicted.

        Raises:
            InputError: there is no such operator or model, or its values cannot be so.
        """
        text = request.workload
        if is_operator(text):
            if given := request.step.model_fields_set:
                raise InputError(f"step.{min(given)}: of a model, but {excerpt(text)} is an operator; leave it out")
            return _operator(text, request.conditions)
        if given := request.conditions.model_fields_set:
            raise InputError(f"conditions.{min(given)}: of an operator, but {excerpt(text)} is none; leave it out")
        return self._model(text, request.step)

    def _model(self, name: str, how: StepRequest) -> Workload:
        if name not in self._models:
            known = (*self._models, *OPS)
            raise InputError(f"workload: unknown model or operator '{excerpt(name)}'{did_you_mean(name, known)}")
        try:
            workload = model_step(self._models[name], **dict(how))
            open_model(workload.model).check_sizes(workload.sizes)
        except InputError as error:
            raise InputError(f"step: {error}") from None
        return workload

    @cached_property
    def _models(self) -> Mapping[str, str]:
        """Names or files of models, as :func:`open_model` takes them, by name."""
        return {
            **{name: name for name in shipped_models()},
            **{name: str(path) for name, path in self.captured.items()},
        }

    @cached_property
    def gpus(self) -> list[dict[str, Any]]:
        """The boards in short."""
        return [gpu_summary(GpuVariant(name).spec) for name in self.boards]

    @cached_property
    def workloads(self) -> WorkloadsAnswer:
        """What can be predicted, with the fields of each."""
        return WorkloadsAnswer(
            operators=_operators(),
            conditions=[
                FieldAnswer(name="l2", label="L2 at the start", default="cold", choices=list(L2_STATES)),
                FieldAnswer(name="load", label="load", default="sustained", choices=["sustained", "burst", "flushed"]),
                FieldAnswer(name="operands", label="operands", default="random", choices=list(OPERANDS)),
            ],
            models=[self._described(name) for name in self._models],
            step=[
                FieldAnswer(name="mode", label="mode", default="inference", choices=list(MODES)),
                FieldAnswer(name="precision", label="precision", default="", choices=["", *PRECISIONS]),
                FieldAnswer(name="fusion", label="fusion", default="none", choices=list(get_args(Fusion))),
                FieldAnswer(name="attention", label="attention", default="", choices=["", *ATTENTION_KINDS]),
                FieldAnswer(name="layout", label="image layout", default="", choices=["", *LAYOUTS]),
                FieldAnswer(name="graphs", label="CUDA graph", default="no", choices=["no", "yes"]),
                FieldAnswer(name="checkpointing", label="checkpointing", default="no", choices=["no", "yes"]),
            ],
        )

    def _described(self, name: str) -> ModelAnswer:
        content = open_model(self._models[name]).content
        return ModelAnswer(
            name=name,
            title=content.title,
            captured=name in self.captured,
            precision=content.precision,
            sizes=dict(content.sizes),
        )


def choices_of(models: Path | None = None) -> Choices:
    """All boards and shipped models, and the models in a folder.

    Raises:
        InputError: there is no such folder, or a model of it goes by the name of another.
    """
    captured: dict[str, Path] = {}
    if models is not None:
        if not models.is_dir():
            raise InputError(f"{models}: no such folder of models; correct the path")
        for path in sorted(models.iterdir()):
            suffix = next((one for one in SUFFIXES if path.name.endswith(one)), "")
            if not suffix or not path.is_file():
                continue
            name = path.name.removesuffix(suffix)
            if name in captured or name in shipped_models() or is_operator(name):
                raise InputError(f"{path}: another model or operator is called {name}; rename the file")
            captured[name] = path
    return Choices(tuple(powered_boards()), captured)


def _operator(text: str, conditions: Conditions) -> OperatorWorkload:
    # Looked for in the text, before a list of elements is made of it.
    for digits in re.findall(r"[0-9]+", text):
        if len(digits.lstrip("0")) > len(str(MOST_SIZE)) or int(digits) > MOST_SIZE:
            raise InputError(f"workload: {excerpt(digits)} exceeds {MOST_SIZE}; choose a smaller size")
    try:
        return OperatorWorkload(operator_of(text), Options(**dict(conditions), limits=True))
    except ValueError as error:
        raise InputError(f"workload: {error}") from None


def _is_numeric(value: object) -> bool:
    return all(isinstance(one, bool) or is_number(one) for one in _as_list(value)) if value is not None else True


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _operators() -> list[OperatorAnswer]:
    """Operators with their fields; those that state each of their accesses are for programs alone."""
    dtype = FieldAnswer(name="dtype", label="data type", default="fp16", choices=[one.value for one in Dtype])
    truth = {"default": "no", "choices": ["no", "yes"]}

    def sizes(**defaults: int) -> list[FieldAnswer]:
        return [FieldAnswer(name=name, label=name.replace("_", " "), default=size) for name, size in defaults.items()]

    of_gemm = [
        *sizes(m=4096, n=4096, k=4096),
        dtype,
        *sizes(batch=1),
        FieldAnswer(name="layout", label="layout", default="tn", choices=list(gemm.LAYOUTS)),
        FieldAnswer(name="sparsity", label="sparsity of A", default="dense", choices=list(gemm.SPARSITIES)),
    ]
    of_convolution = [
        dtype,
        *sizes(n_img=32, in_channels=256, height=56, width=56, out_channels=256, filter_h=3, filter_w=3),
        *sizes(pad_h=1, pad_w=1, stride_h=1, stride_w=1),
        FieldAnswer(name="layout", label="layout", default="nhwc", choices=list(LAYOUTS)),
    ]
    of_attention = [
        *sizes(m=2048, n=2048, k=128),
        dtype,
        *sizes(batch=8, heads=16),
        FieldAnswer(name="causal", label="causal", **truth),
    ]
    of_rows = [*sizes(m=8192, n=4096), dtype]
    return [
        OperatorAnswer(name=name, fields=fields)
        for names, fields in (
            (gemm.GEMM_OPS, of_gemm),
            (CONVOLUTION_OPS, of_convolution),
            (ATTENTION_OPS, of_attention),
            (VECTOR_OPS, of_rows),
        )
        for name in names
    ]
