"""Generating text: a step for the prompt, then one for each token.

All that a token's step launches but attention takes the same time for every token, and attention that of the keys that
are kept. The mean of all tokens is that of Simpson's rule over the first, the middle and the last one: exact where
time is a cubic of the length, and within 1 % of the mean of every token's step (tests/models/test_generation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpusim.cache_key import CacheKey
from gpusim.models.aten.file import CapturedModel
from gpusim.models.aten.program import Program
from gpusim.models.decoding import cache_bytes, token_graph, token_graphs
from gpusim.models.graph import Graph
from gpusim.models.loading import Model
from gpusim.models.policy import Policy
from gpusim.prediction.results import json_ready
from gpusim.prediction.timing import Simulate
from gpusim.sim.simulate import simulate
from gpusim.step.group import GpuGroup
from gpusim.step.interval import step_interval
from gpusim.step.model import Footprint, ModelResult, model_footprint, predict_model
from gpusim.step.options import StepOptions
from gpusim.step.results import added
from gpusim.system import System
from gpusim.units import GIB

SIMPSON = (1 / 6, 4 / 6, 1 / 6)
"""Weights of the first, the middle and the last token in the mean of all: exact where time is a cubic of the length."""
MOST_BATCH = 1 << 20
"""Largest batch that is looked for."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The prediction for a prompt and the tokens that follow it."""

    prompt: ModelResult
    tokens: tuple[ModelResult, ModelResult, ModelResult]
    """The steps of the first, the middle and the last token."""
    count: int
    """Tokens that each sequence gets."""
    cache_gib: float
    """Keys and values that a GPU keeps when the last token is computed."""
    largest_batch: int | None
    """Sequences whose prompt and tokens fit into the memory; 0: not one. None of a captured model."""

    def _mean(self, of: Callable[[ModelResult], float]) -> float:
        return sum(weight * of(step) for weight, step in zip(SIMPSON, self.tokens, strict=True))

    @property
    def token_ms(self) -> float:
        """Mean time of a token of all sequences at once: time per output token."""
        return self._mean(lambda step: step.step_ms)

    @property
    def total_ms(self) -> float:
        """Time of the prompt and all tokens [ms]; the prompt's step gives the first of them."""
        return self.prompt.step_ms + (self.count - 1) * self.token_ms

    @property
    def sequences(self) -> int:
        """Sequences of all GPUs."""
        return self.prompt.graph.sizes["batch"] * self.prompt.replicas

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all sequences, over the whole time."""
        return 1e3 * self.count * self.sequences / self.total_ms

    @property
    def tokens_per_s_of_gpu(self) -> float:
        """Tokens per second, over the GPUs that share the work."""
        return self.tokens_per_s / self.prompt.gpus

    @property
    def energy_per_token_j(self) -> float:
        """Energy of all GPUs for a generated token, that of the prompt included [J]."""
        tokens_j = (self.count - 1) * self._mean(lambda step: step.step.energy_j)
        return self.prompt.gpus * (self.prompt.step.energy_j + tokens_j) / (self.count * self.sequences)

    @property
    def memory_gib(self) -> float:
        """The most that a GPU needs, for the prompt or for the last token."""
        return max(self.prompt.memory_gib, self.tokens[-1].memory_gib)

    @property
    def fits(self) -> bool:
        return self.prompt.fits and self.tokens[-1].fits

    def dollars_per_million(self, per_hour: float) -> float:
        """Price of a million generated tokens, that of their prompts included.

        Args:
            per_hour: price of a GPU for an hour.
        """
        return per_hour * self.prompt.gpus / 3600 / self.tokens_per_s * 1e6

    def whole(self, system: System) -> ModelResult:
        """The prompt and all tokens as one step, such as one is compared or explained."""
        later = self.count - 1
        steps = [(1.0, self.prompt.step)]
        if later:
            steps += [(later * weight, one.step) for weight, one in zip(SIMPSON, self.tokens, strict=True)]
        step = added(steps)
        sizes = {**self.prompt.graph.sizes, "generated": self.count}
        graph = replace(self.prompt.graph, sizes=sizes)
        low_us, high_us = step_interval(system, step, self.prompt.options.framework)
        graphs_us = [one.as_graph_us for one in (self.prompt, *self.tokens)]
        return replace(
            self.prompt,
            graph=graph,
            step=step,
            step_us_p10=low_us,
            step_us_p90=high_us,
            memory_gib=self.memory_gib,
            fits=self.fits,
            as_graph_us=sum(
                times * (graph_us or one.step_us) for (times, one), graph_us in zip(steps, graphs_us, strict=False)
            )
            if any(graphs_us)
            else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object: the middle token's step, and what the generation takes."""
        mean_of_ends = [
            self._mean(lambda step, name=name: getattr(step, name)) * 1e-3  # type: ignore[misc]
            for name in ("step_us_p10", "step_us_p90")
        ]
        found = {
            "prompt_len": self.prompt.graph.sizes["seq_len"],
            "generated": self.count,
            "prompt_ms": self.prompt.step_ms,
            "token_ms": self.token_ms,
            "total_ms": self.total_ms,
            "tokens_per_s": self.tokens_per_s,
            "time_to_first_token_ms": self.prompt.step_ms,
            "time_to_first_token_ms_p10": self.prompt.step_us_p10 * 1e-3,
            "time_to_first_token_ms_p90": self.prompt.step_us_p90 * 1e-3,
            "time_per_output_token_ms": self.token_ms,
            "time_per_output_token_ms_p10": mean_of_ends[0],
            "time_per_output_token_ms_p90": mean_of_ends[1],
            "tokens_per_s_of_gpu": self.tokens_per_s_of_gpu,
            "energy_per_token_j": self.energy_per_token_j,
            "memory_gib": self.memory_gib,
            "fits": self.fits,
            "cache_gib": self.cache_gib,
            "prompt_memory_gib": self.prompt.memory_gib,
            "largest_batch": self.largest_batch,
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
    group: GpuGroup | None = None,
    *,
    limits_of_each: bool = False,
) -> Generation:
    """Predict a prompt of ``seq_len`` tokens and so many generated ones.

    Args:
        limits_of_each: whether to find what would help the first and the last token, too, as a sum of all needs.

    Raises:
        DecodingError: the model does not write one token after the other.
        UnsupportedError: the GPU has no path for an operator.
    """
    waiting = replace(options, synchronised=True)  # the next token is chosen on the host
    alone = replace(waiting, limits=waiting.limits and limits_of_each)
    graph = model.graph(sizes)
    first, last = _kept(graph, count)
    prompt = predict_model(system, graph, policy, waiting, simulate, group=group)
    # What would help is asked of the token that stands for all.
    tokens = token_graphs(model, sizes, (first, (first + last) // 2, last))
    steps = [
        predict_model(system, token, policy, how, simulate, group=group)
        for token, how in zip(tokens, (alone, waiting, alone), strict=True)
    ]
    kept_bytes = cache_bytes(group.part(tokens[-1]) if group else tokens[-1], policy, system.gpu)
    largest = largest_batch(system, model, sizes, count, policy, group) if isinstance(model, Model) else None
    return Generation(prompt, (steps[0], steps[1], steps[2]), count, kept_bytes / GIB, largest)


def generation_footprint(
    system: System,
    model: Model | CapturedModel,
    sizes: Mapping[str, int],
    count: int,
    policy: Policy,
    group: GpuGroup | None = None,
) -> Footprint:
    """The most memory that the prompt or the last token needs, which keeps keys and values of all others.

    Raises:
        DecodingError: the model does not write one token after the other.
    """
    graph = model.graph(sizes)
    _, last = _kept(graph, count)
    steps: Sequence[Graph | Program] = (graph, token_graph(model, sizes, last))
    needs = [model_footprint(system, step, policy, group=group) for step in steps]
    return max(needs, key=lambda one: one.needed_bytes)


def largest_batch(
    system: System,
    model: Model,
    sizes: Mapping[str, int],
    count: int,
    policy: Policy,
    group: GpuGroup | None = None,
) -> int:
    """The most sequences of a GPU whose prompt and tokens fit into its memory; 0 where one does not.

    Memory grows with the batch, nearly as a straight line: the next guess is on the line through the last two.
    """
    others = tuple(sorted((name, size) for name, size in sizes.items() if name != "batch"))
    question = (CacheKey(system), model.name, others, count, policy, group and (group.gpus, group.parallel))
    if question in _LARGEST:
        return _LARGEST[question]

    def need(batch: int) -> float:
        return generation_footprint(system, model, {**sizes, "batch": batch}, count, policy, group).needed_bytes

    capacity = system.gpu.dram.visible_gib * GIB
    low, low_need, high = 1, need(1), MOST_BATCH
    guess, known = 2, {1: low_need}
    if low_need > capacity:
        low, high = 0, 1
    while high - low > 1:
        guess = min(max(guess, low + 1), high - 1)
        known[guess] = need(guess)
        if known[guess] <= capacity:
            low = guess
        else:
            high = guess
        slope = (known[guess] - low_need) / (guess - 1)
        guess = 1 + int((capacity - low_need) / slope) if slope > 0 else high - 1
        if guess in known:
            guess = low + 1 if guess == low else high - 1
    _LARGEST[question] = low
    return low


_LARGEST: dict[Hashable, int] = {}
"""Largest batches of this process: each batch of a range asks for the same."""


def _kept(prompt: Graph | Program, count: int) -> tuple[int, int]:
    """Tokens that the first and the last generated one find before them; the prompt's step gives the first of all."""
    first = prompt.sizes.get("seq_len", 0)
    return first, first + max(0, count - 2)
