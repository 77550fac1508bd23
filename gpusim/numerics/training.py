"""Mixed-precision training of a small network in numpy: the losses of FP16 and BF16, and the remedies.

A multilayer perceptron learns a fixed teacher by gradient descent with momentum. Tensors are rounded where
PyTorch's autocast would pass them in the low type: the weights before use, every activation and every
gradient of one. Matrix products accumulate in FP32, the loss and its derivative are FP32
(https://docs.pytorch.org/docs/stable/amp.html, op-specific behaviour). The optimizer works in FP32 and keeps
its weights in FP32 (master weights: Micikevicius et al., "Mixed Precision Training", ICLR 2018, arXiv:1710.03740)
or, for comparison, in the low type. Equal settings give equal losses on every processor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, model_validator

from gpusim.numbers.formats import FORMATS
from gpusim.numerics.rounding import round_to_fp16, storage
from gpusim.progress import Progress, no_progress
from gpusim.record import AlsoWritten, Title

Float32Array = NDArray[np.float32]
LowType = Literal["fp32", "fp16", "bf16"]
SMALLEST_SCALE = 2.0**-126
"""FP32's smallest normal number: lower bound of the scale, reached when no gradients are finite."""
LARGEST_SCALE = float(np.finfo(np.float32).max)
"""A scale does not grow beyond it (PyTorch, aten/src/ATen/native/cuda/AmpKernels.cu, amp_update_scale)."""
MOST_NUMBERS = 2**24
"""Limit for activations, and for weights, in a step: each needs some 100 bytes, a gigabyte and more in all."""
MOST_STEPS = 10_000_000
MOST_WORKERS = 2**31 - 1
LARGEST_SEED = 2**64 - 1

Amount = Annotated[int, Field(ge=1, le=MOST_NUMBERS)]
Step = Annotated[int, Field(ge=1, le=MOST_STEPS)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TrainingTask(_Settings):
    """The network, its data and its optimizer."""

    layers: tuple[Amount, ...] = Field(min_length=2, description="widths from input to output")
    samples: Amount = Field(description="samples per worker, all of them in every step")
    workers: int = Field(
        ge=1,
        le=MOST_WORKERS,
        description="workers that share a step: the loss is the mean over their samples, and their gradients, assumed "
        "equal, are added in FP32",
    )
    learning_rate: PositiveFloat = Field(description="of gradient descent")
    momentum: float = Field(ge=0, lt=1, description="of gradient descent")
    steps: Step = Field(description="steps of a run")
    log_every: Step = Field(description="steps between two values of the loss that are kept")
    gradients_at: Step = Field(description="step at which the gradients are counted by magnitude")
    seed: int = Field(ge=0, le=LARGEST_SEED, description="of data and weights")

    @model_validator(mode="after")
    def _fits_into_memory(self) -> TrainingTask:
        activations = self.samples * sum(self.layers)
        weights = sum(wide * narrow for wide, narrow in pairwise(self.layers))
        for what, count in (("samples x layers", activations), ("layers", weights)):
            if count > MOST_NUMBERS:
                raise ValueError(f"{what}: a step has {count} numbers, more than the limit of {MOST_NUMBERS}")
        return self


class Scaler(_Settings):
    """Dynamic loss scaling with the defaults of ``torch.amp.GradScaler`` (torch/amp/grad_scaler.py)."""

    initial: float = Field(default=65536.0, ge=SMALLEST_SCALE, le=LARGEST_SCALE, description="scale at the start")
    growth_factor: float = Field(default=2.0, gt=1, le=LARGEST_SCALE, description="by which it grows")
    backoff_factor: float = Field(default=0.5, gt=0, lt=1, description="by which it falls after an overflow")
    growth_interval: Step = Field(default=2000, description="steps without overflow before it grows")


def _dynamic(value: object) -> object:
    """Accept ``dynamic`` for the defaults."""
    return Scaler() if value == "dynamic" else value


class TrainingRun(_Settings):
    """Settings of a training run."""

    label: Title = Field(description="name in the plot")
    dtype: LowType = Field(description="data type of weights, activations and gradients in products")
    weights: LowType = Field(default="fp32", description="data type of the optimizer's weights")
    loss_scale: Annotated[Scaler | None, BeforeValidator(_dynamic), AlsoWritten(Literal["dynamic"])] = Field(
        default=None, description="none, 'dynamic', or other values of dynamic scaling"
    )


@dataclass(slots=True)
class LossScale:
    """The loss scale during a run; constant 1 without a scaler."""

    scaler: Scaler | None
    value: float = 1.0
    good_steps: int = 0

    def __post_init__(self) -> None:
        if self.scaler is not None:
            self.value = self.scaler.initial

    def accept(self, *, finite: bool) -> bool:
        """Whether to take the step; updates the scale for the next one.

        Non-finite gradients skip the step and reduce the scale; ``growth_interval`` consecutive steps
        increase it.
        """
        if self.scaler is None:
            return True
        if not finite:
            self.value = max(self.value * self.scaler.backoff_factor, SMALLEST_SCALE)
            self.good_steps = 0
            return False
        self.good_steps += 1
        if self.good_steps == self.scaler.growth_interval:
            grown = self.value * self.scaler.growth_factor
            self.value = grown if grown <= LARGEST_SCALE else self.value
            self.good_steps = 0
        return True


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """State of a run at one step; every skipped step is logged."""

    step: int
    loss: float | None
    """Mean squared error, relative to the targets' mean square of 1; None once the run has diverged."""
    loss_scale: float
    skipped_steps: int
    """Up to and including this step."""
    vanished_fraction: float
    """Share of the non-zero activation gradients that rounding makes zero."""
    lost_update_fraction: float
    """Share of the weights with a non-zero update that do not change."""


@dataclass(slots=True)
class Training:
    """Result of a run: its log, and its gradients by magnitude."""

    run: TrainingRun
    steps: list[LoggedStep] = field(default_factory=list)
    gradients: dict[int, int] = field(default_factory=dict)
    """Binary exponent -> activation gradients of that magnitude at ``gradients_at``, before they are rounded."""


def train(task: TrainingTask, run: TrainingRun, progress: Progress = no_progress) -> Training:
    """Train from the same initial weights on the same data as every other run of the task."""
    inputs, targets, weights = _start(task)
    weights = [_round(weight, run.weights) for weight in weights]
    velocity = [np.zeros_like(weight) for weight in weights]
    scale = LossScale(run.loss_scale)
    done, skipped = Training(run), 0
    with np.errstate(all="ignore"):
        for step in range(task.steps):
            used = scale.value
            passed = _gradients(weights, inputs, targets, run.dtype, used / task.workers)
            gradients = [np.float32(task.workers / used) * gradient for gradient in passed.weights]
            finite = all(bool(np.isfinite(gradient).all()) for gradient in gradients)
            taken = scale.accept(finite=finite)
            lost = _update(weights, velocity, gradients, task, run.weights) if taken else 0.0
            skipped += not taken
            if step % task.log_every == 0 or step == task.steps - 1 or not taken:
                loss = passed.loss if math.isfinite(passed.loss) else None
                done.steps.append(LoggedStep(step, loss, used, skipped, passed.vanished_fraction, lost))
                progress(step, task.steps)
            if step == task.gradients_at:
                done.gradients = _by_exponent(passed.activations)
    return done


def _start(task: TrainingTask) -> tuple[Float32Array, Float32Array, list[Float32Array]]:
    """Inputs, targets of mean square 1, and initial weights of variance 1 / fan-in."""
    generator = np.random.default_rng(task.seed)
    inputs = generator.standard_normal((task.samples, task.layers[0])).astype(np.float32)
    teacher, weights = (
        [
            (generator.standard_normal((wide, narrow)) / np.sqrt(wide)).astype(np.float32)
            for wide, narrow in zip(task.layers, task.layers[1:], strict=False)
        ]
        for _ in range(2)
    )
    targets = _forward(teacher, inputs, "fp32")[-1]
    return inputs, targets / np.sqrt(np.mean(targets**2)), weights


def _round(values: Float32Array, dtype: LowType) -> Float32Array:
    """Values rounded to the low type, stored in FP32."""
    match dtype:
        case "fp32":
            return values
        case "fp16":
            return round_to_fp16(values)
        case "bf16":
            return values.astype(storage(FORMATS["bf16"])).astype(np.float32)


def _product(left: Float32Array, right: Float32Array) -> Float32Array:
    """A matrix product whose terms are added in FP32 in the order of k.

    A BLAS chooses the order by processor and number of threads, and rounding to FP16 makes curves of its last bits.
    """
    product: Float32Array = np.einsum("mk,kn->mn", left, right)
    return product


def _forward(weights: Sequence[Float32Array], inputs: Float32Array, dtype: LowType) -> list[Float32Array]:
    """Each layer's activations, the inputs first; tanh between layers."""
    activations = [_round(inputs, dtype)]
    for index, weight in enumerate(weights):
        outputs = _round(_product(activations[-1], weight), dtype)
        last = index == len(weights) - 1
        activations.append(outputs if last else _round(np.tanh(outputs), dtype))
    return activations


@dataclass(frozen=True, slots=True)
class _Passed:
    """Results of a forward and a backward pass; gradients are scaled."""

    loss: float
    weights: list[Float32Array]
    activations: list[Float32Array]
    """Before rounding."""
    vanished_fraction: float


def _gradients(
    weights: Sequence[Float32Array], inputs: Float32Array, targets: Float32Array, dtype: LowType, scale: float
) -> _Passed:
    """Mean squared error, and its gradients times ``scale`` with respect to weights and activations."""
    low = [_round(weight, dtype) for weight in weights]
    activations = _forward(low, inputs, dtype)
    residual = activations[-1] - targets
    incoming = residual * np.float32(2 * scale / residual.size)
    exact, of_weights = [incoming], []
    for index in reversed(range(len(low))):
        gradient = _round(incoming, dtype)
        of_weights.append(_round(_product(activations[index].T, gradient), dtype))
        if index:
            exact.append(_product(gradient, low[index].T))
            incoming = _round(exact[-1], dtype) * (1 - activations[index] ** 2)
            exact.append(incoming)
    there = sum(int(np.count_nonzero(one)) for one in exact)
    left = sum(int(np.count_nonzero(_round(one, dtype))) for one in exact)
    vanished = (there - left) / there if there else 0.0
    return _Passed(float(np.mean(residual**2)), of_weights[::-1], exact, vanished)


def _update(
    weights: list[Float32Array],
    velocity: list[Float32Array],
    gradients: Sequence[Float32Array],
    task: TrainingTask,
    kept: LowType,
) -> float:
    """One step of gradient descent with momentum; the share of non-zero updates that change nothing."""
    wanted = lost = 0
    for index, gradient in enumerate(gradients):
        velocity[index] = np.float32(task.momentum) * velocity[index] + gradient
        update = np.float32(task.learning_rate) * velocity[index]
        moved = _round(weights[index] - update, kept)
        wanted += int(np.count_nonzero(update))
        lost += int(np.count_nonzero((moved == weights[index]) & (update != 0)))
        weights[index] = moved
    return lost / wanted if wanted else 0.0


def _by_exponent(gradients: Sequence[Float32Array]) -> dict[int, int]:
    """Number of gradients in each binade, without zeros and non-finite ones."""
    values: NDArray[Any] = np.concatenate([np.abs(one[np.isfinite(one) & (one != 0)]) for one in gradients])
    exponents, counts = np.unique(np.floor(np.log2(values.astype(np.float64))).astype(int), return_counts=True)
    return {int(exponent): int(count) for exponent, count in zip(exponents, counts, strict=True)}
