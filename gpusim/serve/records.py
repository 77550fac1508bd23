"""What requests and answers of the API hold. Sizes of all of it are bounded; no field is a path or a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpusim.confidence import Ratio
from gpusim.errors import did_you_mean, excerpt, shown
from gpusim.models.policy import AttentionKind, Fusion, Layout, Mode, Precision
from gpusim.studies.knobs import Knob
from gpusim.studies.what_if import BoardPrediction
from gpusim.workloads.conditions import L2State, Operands, checked_load

MOST_SIZE = 2**24
"""Largest size of an operator: the simulation of a larger one takes longer than a request may."""
MOST_MODEL_SIZE = 65_536
"""Largest size of a model, such as its batch."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
Multiple = Annotated[str, Field(pattern=r"^[0-9.]{1,12}x$")]
Number = bool | int | float


class _Part(BaseModel):
    """A frozen part of a request or an answer; unknown fields are refused, and so are infinity and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class BoardRequest(_Part):
    """A GPU, and what is changed of it."""

    gpu: Name
    """Name of a GPU, or another of its names (`GET /api/gpus`)."""
    knobs: Annotated[dict[Name, float], Field(max_length=32)] = {}
    """Values of knobs by name, in their units (`GET /api/knobs`)."""
    overrides: Annotated[
        dict[Name, Number | Multiple | Annotated[list[Number], Field(max_length=64)]], Field(max_length=256)
    ] = {}
    """Values of the spec by key path, as `--set` takes them: numbers, or multiples such as `1.5x`."""


class Conditions(_Part):
    """How an operator runs."""

    detail: Literal["bound", "estimate", "sampled"] = "sampled"
    """Closed-form bounds, closed-form estimates, or the simulation of a representative SM."""
    l2: L2State = "cold"
    """State of L2 at the start."""
    load: Annotated[str, BeforeValidator(checked_load)] = "sustained"
    """`sustained` until the power limit acts, a `burst` too short for it, `flushed`, or a number of calls."""
    operands: Operands = "random"
    """What the operands hold."""


class StepRequest(_Part):
    """How a model runs."""

    mode: Mode = "inference"
    """A training step, or an inference pass."""
    precision: Precision | Literal[""] = ""
    """That of the model's file if empty."""
    sizes: Annotated[dict[Name, Annotated[int, Field(ge=1, le=MOST_MODEL_SIZE)]], Field(max_length=32)] = {}
    """`batch` and other sizes of the model; the rest as its file states them."""
    fusion: Fusion = "none"
    """`engine`: as an inference engine fuses operators."""
    attention: AttentionKind | None = None
    """`null`: what the model and the framework have."""
    layout: Layout | None = None
    """Memory layout of images; the usual one of the precision if none."""
    graphs: bool = False
    """Whether a CUDA graph is replayed."""
    checkpointing: bool = False
    """Whether training keeps only the inputs of repeated blocks."""


class PredictRequest(BoardRequest):
    """A workload on a GPU, and on a second one where one is named."""

    workload: Name
    """An operator such as `gemm:4096x4096x4096:bf16`, or the name of a model (`GET /api/workloads`)."""
    conditions: Conditions = Conditions()
    """Conditions of an operator."""
    step: StepRequest = StepRequest()
    """Framework options of a model."""
    second: BoardRequest | None = None
    """A second board beside the first."""

    @property
    def boards(self) -> list[tuple[str, BoardRequest]]:
        """The boards, each with the prefix of its fields in messages."""
        return [("", self), *([("second.", self.second)] if self.second else [])]


class Speedup(_Part):
    """A ratio of two times with the interval that eight in ten measured ratios fall into."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, ratio: Ratio) -> Speedup:
        return cls(value=ratio.value, low=ratio.low, high=ratio.high)


class BoardAnswer(_Part):
    """A workload on a board as shipped, and on the board with its values."""

    label: str
    shipped: BoardPrediction
    changed: BoardPrediction
    """Equals `shipped` where no value is changed."""
    speedup: Speedup
    """Speedup of the changed board over the shipped one."""


class TableAnswer(_Part):
    """The values of the page's table as text."""

    columns: list[str]
    rows: list[list[str]]


class ChartAnswer(_Part):
    """The rows of a chart of the page."""

    rows: list[dict[str, Any]]
    height_px: float


class PredictAnswer(_Part):
    """What is predicted."""

    workload: str
    boards: list[BoardAnswer]
    speedup: Speedup | None
    """Speedup of the second board over the first, each with its values."""
    table: TableAnswer
    charts: dict[str, ChartAnswer]
    """Charts by name."""


class KnobsAnswer(_Part):
    """The knobs of a board."""

    gpu: str
    knobs: list[Knob]


class FieldAnswer(_Part):
    """A value of a workload that can be chosen."""

    name: str
    label: str
    default: int | str
    choices: list[str] = []
    """Empty of a number."""


class OperatorAnswer(_Part):
    """An operator: `name:MxNxK:dtype`, then `field=value` after colons."""

    name: str
    fields: list[FieldAnswer]


class ModelAnswer(_Part):
    """A model."""

    name: str
    title: str
    captured: bool
    """Whether it is one of `--models`, else it ships."""
    precision: str
    """Without another one."""
    sizes: dict[str, int | str]
    """Sizes with their defaults; an expression follows from others."""


class WorkloadsAnswer(_Part):
    """What can be predicted."""

    operators: list[OperatorAnswer]
    conditions: list[FieldAnswer]
    models: list[ModelAnswer]
    step: list[FieldAnswer]


class Refusal(BaseModel):
    """Why a request is not answered."""

    detail: str
    """One line that names the field and the remedy."""


def refusal_of(problems: Sequence[Any]) -> str:
    """The first problem of a request that its record refuses, in one line.

    Args:
        problems: as pydantic lists them.
    """
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    place = [str(part) for part in first["loc"] if part not in ("body", "query")]
    where, message = ".".join(place) or "body", str(first["msg"]).removeprefix("Value error, ")
    match first["type"]:
        case "json_invalid":
            return f"body: no valid JSON ({first['ctx']['error']}); send an object as /docs describes it"
        case "model_attributes_type" | "dict_type" if not place:
            return "body: expected a JSON object; set the header Content-Type: application/json"
        case "missing":
            return f"{where}: missing; add it"
        case "extra_forbidden":
            return f"{excerpt(where)}: unknown field{did_you_mean(place[-1], _fields_beside(place))}"
    if "overrides" in place[:-1]:
        key_path = ".".join(place[: place.index("overrides") + 2])
        return f"{excerpt(key_path)}: expected a number, a list of numbers, or a multiple such as '1.5x'; correct it"
    got = "" if isinstance(first["input"], dict | list) else f", got {shown(first['input'])}"
    return f"{excerpt(where)}: {message[:1].lower()}{message[1:]}{got}; correct it"


def _fields_beside(place: Sequence[str]) -> Sequence[str]:
    """Fields that the record at the place of an unknown one has."""
    parts: dict[str, type[BaseModel]] = {"conditions": Conditions, "step": StepRequest, "second": BoardRequest}
    record = parts.get(place[-2], PredictRequest) if len(place) > 1 else PredictRequest
    return list(record.model_fields)
