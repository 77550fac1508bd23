"""Kernels of recorded calls against those of the same models written as layers: the same, or a listed difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("torchvision")

from gpusim.capture.sources import source_of  # noqa: E402 -- PyTorch may be absent
from gpusim.capture.tracing import Source, traced  # noqa: E402
from gpusim.models.arithmetic import Arithmetic  # noqa: E402
from gpusim.models.aten.launches import launched  # noqa: E402
from gpusim.models.aten.program import Variant  # noqa: E402
from gpusim.models.loading import load_model  # noqa: E402
from gpusim.models.passes.step import tasks_of  # noqa: E402
from gpusim.models.policy import Policy  # noqa: E402
from gpusim.models.task import Task  # noqa: E402
from gpusim.sim.simulate import simulate  # noqa: E402
from gpusim.specs import load_spec  # noqa: E402
from gpusim.step.kernels import Kernels  # noqa: E402
from gpusim.workloads.memory_bound import ColumnReduction, Pointwise, RowReduction  # noqa: E402

A100 = load_spec("a100-sxm4-80gb").system
VERSION = "2.2"
SMALL_KERNEL_ELEMENTS = 16384
"""Most elements of a kernel that computes masks or places, which models of layers take as given."""


_LOSS = frozenset({"log_softmax", "log_softmax_backward", "sum"})


class Model(NamedTuple):
    """A model in both forms."""

    source: Source
    layers: str
    sizes: Mapping[str, int]
    attention: str
    differs: Mapping[str, frozenset[str]]
    """What kernels compute of which there are others, by precision."""

    def differing(self, mode: str, precision: str) -> frozenset[str]:
        """What such kernels compute in a mode: programs that are given labels compute a loss in inference, too."""
        return self.differs[precision] | (_LOSS | {"copy"} if mode == "inference" else frozenset())


def _bert() -> Model:
    config = transformers.BertConfig(num_hidden_layers=2, attn_implementation="eager")
    point = {"batch": 4, "seq_len": 128}

    def inputs(sizes: Mapping[str, int]) -> dict[str, Any]:
        shape = (sizes["batch"], sizes["seq_len"])
        names = ("input_ids", "token_type_ids", "attention_mask", "labels")
        tokens = {name: torch.empty(shape, dtype=torch.long) for name in names}
        return {**tokens, "next_sentence_label": torch.empty(shape[0], dtype=torch.long)}

    source = Source("bert", "", lambda _: transformers.BertForPreTraining(config), inputs, point)
    # A mask has all pairs of places; without autocast's own function losses are in the type of the scores. The gradient
    # of softmax is multiplied with its result by a kernel of its own.
    masked = frozenset({"add", "mask", "mul"})
    sizes = {**point, "layers": 2}
    return Model(source, "bert_base", sizes, "eager", {"fp32": masked, "amp-fp16": masked | _LOSS})


def _gpt2() -> Model:
    config = transformers.GPT2Config(n_layer=2, attn_implementation="eager")
    point = {"batch": 4, "seq_len": 128}

    def inputs(sizes: Mapping[str, int]) -> dict[str, Any]:
        tokens = torch.empty((sizes["batch"], sizes["seq_len"]), dtype=torch.long)
        return {"input_ids": tokens, "labels": tokens}

    source = Source("gpt2", "", lambda _: transformers.GPT2LMHeadModel(config), inputs, point)
    # A mask in FP32 is added to scores, whose softmax is in FP32 then; dropout follows a cast to the type of values.
    # A cache holds keys as heads, so that products take them transposed.
    masked = frozenset({"mask", "mul", "add", "dropout", "dropout_backward", "copy", "scale", "gemm"})
    sizes = {**point, "layers": 2, "hidden": 768, "heads": 12}
    return Model(source, "gpt2_large", sizes, "eager", {"fp32": masked, "amp-fp16": masked})


def _resnet() -> Model:
    source = source_of("torchvision:resnet50", {"batch": 8})
    # The gradient of the mean over pixels comes in NCHW; losses as of BERT.
    lowered = _LOSS | {"relu_backward", "copy"}
    return Model(source, "resnet50", {"batch": 8}, "fused", {"fp32": frozenset(), "amp-fp16": lowered})


MODELS = {"resnet50": _resnet, "bert": _bert, "gpt2": _gpt2}


@cache
def both(name: str, mode: str, precision: str) -> tuple[tuple[Task, ...], tuple[Task, ...], Model]:
    model = MODELS[name]()
    layout = "nhwc" if name == "resnet50" and precision != "fp32" else "nchw"
    policy = Policy(mode=mode, precision=precision, layout=layout, version=VERSION)  # type: ignore[arg-type]
    variant = Variant(policy.mode, precision, layout, model.attention)
    calls = traced(model.source, variant, dict(model.source.sizes)).trace.calls
    recorded = launched(calls, Arithmetic(policy, A100.gpu))
    assert not recorded.unknown
    graph = load_model(model.layers).graph(model.sizes)
    layers = tuple(task for task in tasks_of(graph, policy, A100.gpu) if task.phase != "update")
    return recorded.tasks, layers, model


def function_of(task: Task) -> str:
    operator = task.operator
    if isinstance(operator, Pointwise | RowReduction | ColumnReduction):
        return operator.function
    return "gemm" if operator.op in ("linear", "bmm") else operator.op


def large(tasks: Iterable[Task]) -> list[Task]:
    """Tasks but for those of masks and places."""
    found = []
    for task in tasks:
        operator = task.operator
        small = isinstance(operator, Pointwise) and operator.elements <= SMALL_KERNEL_ELEMENTS
        integers = isinstance(operator, Pointwise) and operator.dtype.value in ("fp64", "int8")
        if not small and not integers:
            found.append(task)
    return found


def counted(tasks: Sequence[Task]) -> Counter[tuple[Any, ...]]:
    """Kernels by what they compute, on how much, and how much of it they move."""
    found: Counter[tuple[Any, ...]] = Counter()
    for task in tasks:
        operator = task.operator
        if isinstance(operator, Pointwise | RowReduction | ColumnReduction):
            found[function_of(task), operator.extents, operator.operand_bytes, operator.result_bytes] += 1
        else:
            found[function_of(task), str(operator)] += 1
    return found


PASSES = [(mode, precision) for mode in ("train", "inference") for precision in ("fp32", "amp-fp16")]


@pytest.mark.parametrize(("mode", "precision"), PASSES)
@pytest.mark.parametrize("name", MODELS)
def test_recorded_calls_launch_what_layers_launch(name: str, mode: str, precision: str) -> None:
    recorded, layers, model = both(name, mode, precision)
    first, second = counted(large(recorded)), counted(large(layers))
    differing = {key[0] for key in first | second if first[key] != second[key]}
    assert differing <= model.differing(mode, precision)


@pytest.mark.parametrize(("mode", "precision"), PASSES)
@pytest.mark.parametrize("name", MODELS)
def test_kernels_that_do_not_differ_take_as_long(name: str, mode: str, precision: str) -> None:
    """Within 2 %: what L2 holds follows from tensors, which have other names and parts."""
    recorded, layers, model = both(name, mode, precision)
    totals = []
    for tasks in (recorded, layers):
        alike = [task for task in large(tasks) if function_of(task) not in model.differing(mode, precision)]
        times = Kernels(A100, alike, simulate, torch=VERSION).durations_us(A100.gpu.clock.boost_mhz)
        totals.append(sum(times))
    assert totals[0] == pytest.approx(totals[1], rel=0.02)
