"""Generating text: a step for the prompt, then one for each token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpusim.models.aten.file import CapturedModel
from gpusim.models.aten.program import Program
from gpusim.models.decoding import token_graph
from gpusim.models.graph import Graph
from gpusim.models.loading import Model
from gpusim.models.policy import Policy
from gpusim.prediction.results import json_ready
from gpusim.prediction.timing import Simulate
from gpusim.sim.simulate import simulate
from gpusim.step.model import Footprint, ModelResult, model_footprint, predict_model
from gpusim.step.options import StepOptions
from gpusim.system import System

SIMPSON = (1 / 6, 4 / 6, 1 / 6)
"""Weights of the first, the middle and the last token in the mean of all: exact where time is a cubic of the length."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The prediction for a prompt and the tokens that follow it."""

    prompt: ModelResult
    tokens: tuple[ModelResult, ModelResult, ModelResult]
    """The steps of the first, the middle and the last token."""
    count: int
    """Tokens that each sequence gets."""

    @property
    def token_ms(self) -> float:
        """Mean time of a token of all sequences at once."""
        return sum(weight * step.step_ms for weight, step in zip(SIMPSON, self.tokens, strict=True))

    @property
    def total_ms(self) -> float:
        """Time of the prompt and all tokens [ms]; the prompt's step gives the first of them."""
        return self.prompt.step_ms + (self.count - 1) * self.token_ms

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all sequences, over the whole time."""
        return 1e3 * self.count * self.prompt.graph.sizes["batch"] / self.total_ms

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object: the middle token's step, and what the generation takes."""
        found = {
            "prompt_len": self.prompt.graph.sizes["seq_len"],
            "generated": self.count,
            "prompt_ms": self.prompt.step_ms,
            "token_ms": self.token_ms,
            "total_ms": self.total_ms,
            "tokens_per_s": self.tokens_per_s,
        }
        return {**self.tokens[1].as_dict(), **{name: json_ready(value) for name, value in found.items()}}


def predict_generation(
    system: System,
    model: Model | CapturedModel,
    sizes: Mapping[str, int],
    count: int,
    policy: Policy,
    options: StepOptions = StepOptions(),
    simulate: Simulate = simulate,
) -> Generation:
    """Predict a prompt of ``seq_len`` tokens and so many generated ones.

    Raises:
        DecodingError: the model does not write one token after the other.
        UnsupportedError: the GPU has no path for an operator.
    """
    waiting = replace(options, synchronised=True)  # the next token is chosen on the host
    graph = model.graph(sizes)
    first, last = _kept(graph, count)
    tokens = [token_graph(model, sizes, kept) for kept in (first, (first + last) // 2, last)]
    prompt, *steps = (predict_model(system, one, policy, waiting, simulate) for one in (graph, *tokens))
    return Generation(prompt, (steps[0], steps[1], steps[2]), count)


def generation_footprint(
    system: System, model: Model | CapturedModel, sizes: Mapping[str, int], count: int, policy: Policy
) -> Footprint:
    """The memory that the last token needs, which keeps keys and values of all others, without a prediction.

    Raises:
        DecodingError: the model does not write one token after the other.
    """
    _, last = _kept(model.graph(sizes), count)
    return model_footprint(system, token_graph(model, sizes, last), policy)


def _kept(prompt: Graph | Program, count: int) -> tuple[int, int]:
    """Tokens that the first and the last generated one find before them; the prompt's step gives the first of all."""
    first = prompt.sizes.get("seq_len", 0)
    return first, first + max(0, count - 2)
