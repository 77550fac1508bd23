"""What a step launches: calls and bytes as PyTorch's, operations as the graph's, types as the math-mode rules say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import golden_rows

from gpusim.hardware.gpu import Gpu
from gpusim.models.graph import Graph
from gpusim.models.layers.elementwise import Activation, Cast, Rope
from gpusim.models.layers.experts import Experts
from gpusim.models.layers.latent_attention import LatentAttention
from gpusim.models.layers.registry import LAYERS
from gpusim.models.loading import load_model, shipped_models
from gpusim.models.passes.footprint import memory_bytes
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Mode, Policy, PolicyError, Precision
from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.specs import load_spec
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Pointwise, RowReduction

A100, V100, T4 = "a100-sxm4-80gb", "v100-sxm2-16gb", "t4"
SMALL_BERT = {"batch": 2, "seq_len": 128, "layers": 2}


@cache
def gpu(name: str) -> Gpu:
    return load_spec(name).gpu


def graph_of(name: str, **sizes: int) -> Graph:
    return load_model(name).graph(sizes)


def products(tasks: Sequence[Task], phase: str) -> list[Gemm | Convolution]:
    return [task.operator for task in tasks if task.phase == phase and isinstance(task.operator, Gemm | Convolution)]


def _is_trained(name: str) -> bool:
    """Whether all layers of a model have a backward pass."""
    return not any(isinstance(node.layer, Experts | LatentAttention) for node in load_model(name).graph().nodes)


TRAINED = [name for name in sorted(shipped_models()) if _is_trained(name)]


def flops(tasks: Sequence[Task], phase: str) -> int:
    return sum(operator.flops for operator in products(tasks, phase))


def size_bytes(tasks: Sequence[Task]) -> float:
    return sum(task.operator.size_bytes for task in tasks)


# Operations and calls -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in TRAINED if not load_model(name).content.decoding])
def test_the_backward_pass_multiplies_twice_what_the_forward_pass_does(name: str) -> None:
    """But for frozen layers and those on inputs, which need no gradient, and for layers behind which no loss is."""
    graph = graph_of(name, batch=2)
    tasks = tasks_of(graph, Policy(), gpu(A100))
    assert flops(tasks, "forward") == graph.flops
    first = next(node for node in graph.nodes if node.multiply_adds)
    on_input = 2 * first.multiply_adds if first.inputs[0] in graph.inputs and not first.frozen else 0
    most = 2 * graph.flops - on_input - 4 * sum(node.multiply_adds for node in graph.nodes if node.frozen)
    detector = 0.25 * graph.flops if name.startswith("mask_rcnn") else 0
    assert most - detector <= flops(tasks, "backward") <= most


def golden() -> Iterator[tuple[str, str, str, str, int, str]]:
    for row in golden_rows("torch_calls.csv"):
        yield row["model"], row["sizes"], row["phase"], row["call"], int(row["count"]), row["bytes_mb"]


@cache
def calls_of(model: str, sizes: str) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Calls of a training step by phase and kind, and bytes of what they take and give, each tensor once a call."""
    given = {name: int(size) for name, size in (pair.split("=") for pair in sizes.split(","))}
    count: Counter[tuple[str, str]] = Counter()
    touched: Counter[tuple[str, str]] = Counter()
    known: dict[str, float] = {}
    written: set[str] = set()
    key = ("", "")
    for task in tasks_of(graph_of(model, **given), Policy(), gpu(A100)):
        if task.call:
            key, known, written = (task.phase, task.call), {}, set()
            count[key] += 1
        # What one kernel of a call writes for the next, the call does not give.
        touched[key] -= sum(int(known[tensor.name]) for tensor in task.reads if tensor.name in written)
        written |= {tensor.name for tensor in task.writes}
        for tensor in (*task.reads, *task.writes):
            touched[key] += max(0, int(tensor.size_bytes - known.get(tensor.name, 0)))
            known[tensor.name] = max(tensor.size_bytes, known.get(tensor.name, 0))
    return count, touched


@pytest.mark.parametrize(("model", "sizes", "phase", "call", "count", "bytes_mb"), list(golden()))
def test_calls_and_their_bytes_are_those_of_pytorch(
    model: str, sizes: str, phase: str, call: str, count: int, bytes_mb: str
) -> None:
    counted, touched = calls_of(model, sizes)
    assert counted[phase, call] == count
    if bytes_mb:
        assert touched[phase, call] / 1e6 == pytest.approx(float(bytes_mb), rel=0.02, abs=1)


@pytest.mark.parametrize(("name", "copies"), [("bert_base", 1), ("gpt2_large", 1), ("opt_1.3b", 4)])
def test_products_take_the_heads_of_one_sequence_as_they_lie_but_where_a_program_copies_them(
    name: str, copies: int
) -> None:
    sizes = {"seq_len": 128, "layers": 1}
    one, two = (
        Counter(
            task.phase
            for task in tasks_of(graph_of(name, batch=batch, **sizes), Policy(), gpu(A100))
            if task.call == "copy"
        )
        for batch in (1, 2)
    )
    assert (one["forward"], one["backward"]) == (copies, 3)
    assert (two["forward"], two["backward"]) == (4, 4)


def test_keys_are_copied_with_places_side_by_side_for_the_product_that_takes_them_transposed() -> None:
    def scores(name: str, batch: int) -> str:
        tasks = tasks_of(graph_of(name, batch=batch, seq_len=128, layers=1), Policy(), gpu(A100))
        return next(task.operator.layout for task in tasks if isinstance(task.operator, Gemm) and task.call == "matmul")

    assert [scores("bert_base", batch) for batch in (1, 2)] == ["tn", "nn"]
    assert [scores("opt_1.3b", batch) for batch in (1, 2)] == ["tn", "tn"]


def test_a_weight_that_is_stored_by_inputs_is_read_along_features() -> None:
    tasks = tasks_of(graph_of("gpt2_large", batch=1, seq_len=128, layers=1), Policy(), gpu(A100))
    wide = [task.operator for task in tasks if task.name == "decoder.wide" and isinstance(task.operator, Gemm)]
    assert [(one.layout, one.m, one.n) for one in wide] == [("nn", 128, 5120), ("tn", 128, 1280), ("nt", 1280, 5120)]


def test_gradients_of_slices_that_cover_a_tensor_are_joined_by_one_copy() -> None:
    tasks = tasks_of(graph_of("gpt2_large", batch=1, seq_len=128, layers=1), Policy(), gpu(A100))
    joined = [task for task in tasks if task.call == "concat"]
    assert [len(task.reads) for task in joined] == [3]


# Types --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "arch", "expected"),
    [
        ("fp32", A100, "fp32"),
        ("tf32", A100, "tf32"),
        ("amp-fp16", V100, "fp16"),
        ("amp-bf16", A100, "bf16"),
        ("fp16", T4, "fp16"),
        ("bf16", A100, "bf16"),
    ],
)
@pytest.mark.parametrize("model", ["bert_base", "resnet50"])
def test_products_multiply_in_the_type_that_the_rules_say(
    precision: Precision, arch: str, expected: str, model: str
) -> None:
    sizes = SMALL_BERT if model == "bert_base" else {"batch": 2}
    tasks = tasks_of(graph_of(model, **sizes), Policy(precision=precision), gpu(arch))
    for phase in ("forward", "backward"):
        assert {operator.dtype.value for operator in products(tasks, phase)} == {expected}


def test_autocast_casts_each_weight_once_and_keeps_softmax_norms_and_the_update_in_fp32() -> None:
    graph = graph_of("bert_base", **SMALL_BERT)
    tasks = tasks_of(graph, Policy(precision="amp-fp16"), gpu(V100))
    names = {f"{node.name}.weight" for node in graph.nodes if node.layer.op == "linear" and not node.shares}
    forward = Counter(task.reads[0].name for task in tasks if task.call == "cast" and task.phase == "forward")
    assert {name: forward[name] for name in names} == dict.fromkeys(names, 1)
    for task in tasks:
        if isinstance(task.operator, RowReduction) and task.operator.function in ("softmax", "layer_norm"):
            assert task.operator.dtype is Dtype.FP32
    update = [task for task in tasks if task.phase == "update"]
    assert "unscale" in {task.call for task in update}
    for task in update:
        operator = task.operator
        assert isinstance(operator, Pointwise | RowReduction)
        assert {access.dtype for access in (*operator.reads, *operator.writes)} == {Dtype.FP32}


def test_a_model_in_fp16_updates_master_weights_in_fp32_and_copies_them() -> None:
    tasks = tasks_of(graph_of("resnet50", batch=2), Policy(precision="fp16"), gpu(V100))
    last = tasks[-1].operator
    assert isinstance(last, Pointwise)
    assert {access.dtype for access in last.writes} == {Dtype.FP32, Dtype.FP16}


def test_int8_quantises_layers_whose_sizes_allow_it_and_leaves_their_weights_alone() -> None:
    tasks = tasks_of(graph_of("bert_base", **SMALL_BERT), Policy(mode="inference", precision="int8"), gpu(T4))
    types = {(operator.op, operator.dtype.value) for operator in products(tasks, "forward")}
    assert types == {("linear", "int8"), ("bmm", "fp16"), ("linear", "fp16")}
    odd = {task.name for task in tasks if isinstance(task.operator, Gemm) and task.operator.n % 16}
    assert odd == {"next_sentence", "scores"}  # of 2 and 30,522 features
    assert not [task for task in tasks if task.call == "cast" and task.reads[0].name.endswith("weight")]


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(PolicyError, match="int8 is for inference"):
        Policy(precision="int8")
    with pytest.raises(PolicyError, match="models run as PyTorch"):
        Policy(framework="tensorflow")
    with pytest.raises(PolicyError, match="amp-bf16 on T4"):
        tasks_of(graph_of("resnet50"), Policy(precision="amp-bf16"), gpu(T4))


# Modes and memory ---------------------------------------------------------------------------------


def test_inference_has_neither_loss_nor_dropout_nor_a_backward_pass() -> None:
    tasks = tasks_of(graph_of("bert_base", **SMALL_BERT), Policy(mode="inference"), gpu(A100))
    assert {task.phase for task in tasks} == {"forward"}
    assert not {"dropout", "nll_loss", "log_softmax"} & {task.call for task in tasks}


def test_adam_reads_four_tensors_and_writes_three() -> None:
    graph = graph_of("gpt2_large", batch=1, seq_len=128, layers=2)
    tasks = tasks_of(graph, Policy(), gpu(A100))
    update = [task for task in tasks if task.phase == "update"]
    assert size_bytes(update) == pytest.approx(28 * graph.parameters, rel=0.01)
    loop = tasks_of(graph, Policy(fused_optimizer=False), gpu(A100))
    assert sum(task.phase == "update" for task in loop) > 20 * len(update)


def updates(policy: Policy, name: str, **sizes: int) -> tuple[int, list[Task]]:
    """How many parameters a model has, and the tasks of its update."""
    graph = graph_of(name, **sizes)
    parameters = sum(len(node.weights) for node in graph.nodes)
    return parameters, [task for task in tasks_of(graph, policy, gpu(A100)) if task.phase == "update"]


def test_a_loop_over_parameters_before_pytorch_2_clears_gradients_and_adds_to_zeros() -> None:
    loops = (Policy(fused_optimizer=False, version=version) for version in ("1.13", "2.1"))
    before, since = (tasks_of(graph_of("resnet50", batch=1), loop, gpu(A100)) for loop in loops)
    parameters = sum(len(node.weights) for node in graph_of("resnet50").nodes)
    added = Counter(task.call for task in before)["accumulate"], Counter(task.call for task in since)["accumulate"]
    assert added == (parameters, 0)
    assert len(before) - len(since) == 2 * parameters


def test_a_model_held_in_fp16_has_gradients_in_fp32_beside_its_master_weights() -> None:
    _, update = updates(Policy(precision="fp16"), "gpt2_large", batch=1, seq_len=128, layers=1)
    unscaled = [task for task in update if task.call == "unscale"]
    read, written = (
        sum(one.size_bytes for task in unscaled for one in getattr(task, at)) for at in ("reads", "writes")
    )
    assert written == 2 * read


def test_gradients_that_are_kept_lie_in_memory_once() -> None:
    graph = graph_of("bert_large", batch=1, seq_len=128, layers=4)
    kept, freed = (
        memory_bytes(tasks_of(graph, Policy(fused_optimizer=False, version=version), gpu(A100)))
        for version in ("1.13", "2.1")
    )
    assert kept - freed < 0.5 * 4 * graph.parameters


def test_bert_adam_clips_and_updates_each_parameter_by_calls_of_its_own() -> None:
    loop = Policy(precision="tf32", fused_optimizer=False)
    parameters, update = updates(loop, "bert_large_squad", batch=1, layers=1)
    clipped = sum(task.call == "read_norm" for task in update)
    kernels = len(update) / parameters
    assert clipped == 1  # of all gradients; those of each parameter are clipped without a look
    assert 18 < kernels < 20  # eight of clip_grad_norm_; ten of BertAdam, twelve where weight decays


def test_a_norm_is_read_before_pytorch_1_10_where_each_gradient_is_clipped() -> None:
    read = []
    for version in ("1.9", "1.11"):
        loop = Policy(fused_optimizer=False, version=version)
        parameters, update = updates(loop, "gnmt_v2", batch=8)
        assert sum(isinstance(task.operator, RowReduction) for task in update) == parameters + 1
        read.append(sum(task.call == "read_norm" for task in update))
    assert read == [1, 0]


def test_frozen_layers_at_the_bottom_launch_neither_gradients_nor_updates() -> None:
    tasks = tasks_of(graph_of("mask_rcnn", batch=1), Policy(), gpu(A100))
    frozen = [task for task in tasks if task.name.startswith(("stem", "stage1."))]
    assert {task.phase for task in frozen} == {"forward"}
    assert not any(task.call.startswith("batch_norm") for task in tasks)  # all are frozen: fixed numbers, no statistics
    trained = {task.name.split(".")[0] for task in tasks if task.call == "conv2d_backward"}
    assert {"stage2", "stage3", "stage4"} <= trained


def test_weights_that_are_frozen_among_trained_ones_pass_gradients_on(tmp_path: Path) -> None:
    path = tmp_path / "frozen.yaml"
    head = "title: one\nsource: a test\nitem: seq\noptimizer: sgd\nsizes: {batch: 4}\ninputs: {x: [batch, 16]}\n"
    layers = "".join(
        f"  - {{op: linear, name: {name}, features: 16, frozen: {frozen}}}\n"
        for name, frozen in (("first", "false"), ("second", "true"), ("third", "false"))
    )
    path.write_text(f"{head}layers:\n{layers}")
    tasks = tasks_of(load_model(str(path)).graph(), Policy(), gpu(A100))
    found = [(task.name, len(task.writes)) for task in tasks if task.call == "linear_backward"]
    assert found == [("third", 1), ("third", 1), ("second", 1), ("first", 1)]


def test_checkpointing_repeats_the_forward_pass_of_blocks_and_needs_less_memory() -> None:
    graph = graph_of("bert_large", batch=4, seq_len=512)
    whole, checkpointed = (tasks_of(graph, Policy(checkpointing=one), gpu(A100)) for one in (False, True))
    repeated = flops(checkpointed, "backward") - flops(whole, "backward")
    blocks = 2 * sum(node.multiply_adds for node in graph.nodes if node.name.startswith("encoder."))
    assert repeated == blocks
    assert memory_bytes(checkpointed) < 0.6 * memory_bytes(whole)


def test_memory_holds_weights_gradients_and_state_and_grows_with_the_batch() -> None:
    small, large = (memory_bytes(tasks_of(graph_of("resnet50", batch=batch), Policy(), gpu(A100))) for batch in (1, 65))
    parameters = graph_of("resnet50").parameters
    assert small > 3 * 4 * parameters
    # Activations that the backward pass needs: inputs of convolutions and norms, results of ReLU, 88 MB an image.
    assert (large - small) / 64 == pytest.approx(88e6, rel=0.1)


# Fusion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2_large", "llama2_7b", "resnet50"])
def test_fusion_keeps_the_arithmetic_and_saves_bytes(name: str) -> None:
    graph = graph_of(name, batch=1)
    plain, fused = (tasks_of(graph, Policy(fusion=one), gpu(A100)) for one in ("none", "elementwise"))
    assert sum(task.operator.flops for task in fused) == sum(task.operator.flops for task in plain)
    assert len(fused) < len(plain)
    assert size_bytes(fused) < size_bytes(plain)


@pytest.mark.parametrize("name", ["bert_large", "gpt2_large", "llama2_7b"])
def test_fused_attention_is_one_kernel_in_either_pass_with_the_same_operations(name: str) -> None:
    graph = graph_of(name, batch=1, seq_len=128, layers=2)
    tasks = tasks_of(graph, Policy(attention="fused"), gpu(A100))
    for phase, kind in (("forward", "attention_fwd"), ("backward", "attention_bwd")):
        attended = [task.operator for task in tasks if task.phase == phase and isinstance(task.operator, Attention)]
        assert [one.op for one in attended] == 2 * [kind]
    whole = [replace(one, causal=False) for one in (task.operator for task in tasks) if isinstance(one, Attention)]
    forward = sum(one.flops for one in whole if not one.backward)
    assert flops(tasks, "forward") + forward == graph.flops


def test_calls_of_pytorchs_attention_are_fused_by_version(tmp_path: Path) -> None:
    (tmp_path / "call.yaml").write_text(
        "title: a call\nsource: made up\nitem: seq\noptimizer: adam\n"
        "sizes: {batch: 2, seq_len: 128, heads: 4, features: 64}\ninputs:\n  x: [batch, heads, seq_len, features]\n"
        "layers:\n  - {op: attention, inputs: [x, x, x], heads: heads}\n",
        encoding="utf-8",
    )
    called, spelled_out = load_model(str(tmp_path / "call.yaml")).graph({}), graph_of("bert_large", batch=1, layers=2)

    def fuses(graph: Graph, name: str = A100, **chosen: Any) -> bool:
        tasks = tasks_of(graph, Policy("inference", **chosen), gpu(name))
        return any(isinstance(task.operator, Attention) for task in tasks)

    assert fuses(called, version="2.0")
    assert not fuses(called, version="1.13")
    assert not fuses(called, version="2.0", attention="eager")
    assert not fuses(spelled_out, version="2.1")
    assert not fuses(called, "v100-sxm2-16gb", precision="bf16")  # no kernel for the type below 8.0


def test_fused_attention_keeps_no_scores_in_memory() -> None:
    graph = graph_of("bert_large", batch=4, seq_len=512)
    eager, fused = (memory_bytes(tasks_of(graph, Policy(attention=kind), gpu(A100))) for kind in ("eager", "fused"))
    scores_bytes = 24 * 4 * 16 * 512 * 512 * 4
    assert eager - fused > 2 * scores_bytes


def test_a_bias_that_differs_by_query_leaves_attention_eager() -> None:
    tasks = tasks_of(graph_of("switch_xl4", batch=1, seq_len=64), Policy(attention="fused"), gpu(A100))
    assert not any(isinstance(task.operator, Attention) for task in tasks)


def test_a_framework_without_fused_attention_refuses_it() -> None:
    with pytest.raises(PolicyError, match=r"^attention: PyTorch fuses it since 2\.0, got version 1\.13$"):
        Policy(attention="fused", version="1.13")


@pytest.mark.parametrize("name", TRAINED)
def test_fusion_leaves_every_tensor_that_is_read_later(name: str) -> None:
    graph = graph_of(name, batch=1)
    plain, fused = (read_unwritten(tasks_of(graph, Policy(fusion=one), gpu(A100))) for one in ("none", "elementwise"))
    assert fused <= plain


def test_sums_into_a_table_stand_alone() -> None:
    # Gradients of positions fill their table where sequences are as long as it is.
    graph = graph_of("bert_large_masked", batch=2, seq_len=512, layers=1)
    tasks = tasks_of(graph, Policy(fusion="elementwise", accumulates=True), gpu(A100))
    kernels = [task for task in tasks if any(tensor.name == "d.position.weight" for tensor in task.writes)]
    assert [task.operator.functions for task in kernels if isinstance(task.operator, Pointwise)][-1] == ("add",)


def read_unwritten(tasks: Sequence[Task]) -> set[str]:
    """Tensors that a step reads before it writes them."""
    written: set[str] = set()
    found: set[str] = set()
    for task in tasks:
        found |= {tensor.name for tensor in task.reads} - written
        written |= {tensor.name for tensor in task.writes}
    return found


def test_gradients_of_micro_batches_are_added_to_those_before() -> None:
    graph = graph_of("resnet50", batch=1)
    once, again = (tasks_of(graph, Policy(accumulates=one), gpu(A100)) for one in (False, True))
    assert size_bytes(again) - size_bytes(once) == 12 * graph.parameters
    assert memory_bytes(again) > memory_bytes(once)


def test_scale_mask_and_softmax_are_one_kernel_and_residual_and_norm_another() -> None:
    tasks = tasks_of(graph_of("bert_base", **SMALL_BERT), Policy(mode="inference", fusion="elementwise"), gpu(A100))
    chains = Counter(
        (task.operator.function, task.operator.fused) for task in tasks if isinstance(task.operator, RowReduction)
    )
    assert chains["softmax", ("scale", "add")] == SMALL_BERT["layers"]
    assert chains["layer_norm", ("add",)] == 2 * SMALL_BERT["layers"]


# Views --------------------------------------------------------------------------------------------


def test_the_bias_of_scores_is_read_from_where_a_permutation_leaves_it() -> None:
    """T5's bias by distance is ``[query, key, head]`` in memory: neighbours along keys lie apart."""
    tasks = tasks_of(graph_of("switch_xl4", batch=1, pairs=1), Policy(mode="inference"), gpu(A100))
    added = [task for task in tasks if task.call == "add" and "places" in task.reads[-1].name]
    assert len(added) == 4  # attention to the memory has none
    for task in added:
        assert isinstance(task.operator, Pointwise)
        assert [access.run for access in task.operator.reads] == [None, 1]


@pytest.mark.parametrize("busy", [1, 4])
def test_the_host_waits_for_the_rows_that_an_expert_takes_or_does_not(busy: int) -> None:
    tasks = tasks_of(graph_of("switch_xl4", batch=1, pairs=1, busy=busy), Policy(mode="inference"), gpu(A100))
    assert sum(task.call == "nonzero" for task in tasks) == 2 * 2 * 4  # into and out of four experts, twice
    assert sum(task.call == "gather" for task in tasks) == 2 * busy


def test_the_bias_of_a_linear_layer_is_a_call_of_its_own_where_pytorch_does_not_fuse_it() -> None:
    graph = graph_of("bert_base", **SMALL_BERT)
    old, new = (tasks_of(graph, Policy("inference", version=version), gpu(A100)) for version in ("1.11", "1.12"))
    of_rows = sum(node.layer.op == "linear" and len(node.result) == 3 for node in graph.nodes)
    assert sum(task.call == "add" for task in old) - sum(task.call == "add" for task in new) == of_rows
    assert sum(isinstance(task.operator, Gemm) and task.operator.bias for task in old) == 2  # of the first token


def test_a_detector_waits_class_by_class_in_inference_and_for_each_polygon_in_training() -> None:
    graph = graph_of("mask_rcnn", batch=1)
    train, inference = (
        Counter(task.name for task in tasks_of(graph, Policy(mode), gpu(A100)) if task.call == "nonzero")
        for mode in ("train", "inference")
    )
    assert (train["suppressed"], inference["suppressed"]) == (0, 160)
    assert (train["polygons"], inference["polygons"]) == (2 * graph.sizes["objects"], 0)


@pytest.mark.parametrize("op", sorted(op for op, layer in LAYERS.items() if layer in (Activation, Cast, Rope)))
def test_every_activation_trains_under_autocast(op: str, tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    layers = f"[{{op: linear, features: 64}}, {{op: {op}}}, {{op: linear, features: 8}}]"
    head = "title: one\nsource: a test\nitem: seq\noptimizer: sgd\nsizes: {batch: 4}\n"
    path.write_text(f"{head}inputs: {{x: [batch, 32]}}\nlayers: {layers}\n", "utf-8")
    tasks = tasks_of(load_model(str(path)).graph(), Policy(precision="amp-fp16"), gpu(V100))
    assert flops(tasks, "backward") == 2 * (2 * 4 * 32 * 64 + 2 * 4 * 64 * 8) - 2 * 4 * 32 * 64  # none of the input


def test_an_engine_runs_a_resnet_as_convolutions_and_residual_sums() -> None:
    graph = graph_of("resnet50", batch=32)
    policy = Policy("inference", "int8", layout="nhwc", fusion="engine")
    tasks = tasks_of(graph, policy, gpu(T4))
    calls = Counter(task.call for task in tasks)
    assert calls["conv2d"] == 53
    assert calls["add"] == 16
    assert not {"batch_norm", "relu"} & set(calls)
    assert size_bytes(tasks) < 0.3 * size_bytes(tasks_of(graph, Policy("inference", "int8"), gpu(T4)))
    with pytest.raises(PolicyError, match="engine is for inference"):
        Policy(fusion="engine")


def test_training_without_an_update_clears_gradients_alone() -> None:
    graph = graph_of("resnet50", batch=8)
    policy = Policy(version="1.7", fused_optimizer=False, updates=False)
    tasks = tasks_of(graph, policy, gpu(V100))
    cleared = [task for task in tasks if task.phase == "update"]
    assert len(cleared) == len([task for task in tasks if task.call == "accumulate"]) == 161
    assert all(task.reads == () for task in cleared)
    freed = tasks_of(graph, replace(policy, version="2.1"), gpu(V100))
    assert not [task for task in freed if task.phase == "update"]


def test_an_older_engine_convolves_one_group_after_the_other() -> None:
    graph = graph_of("se_resnext101_32x4d", batch=8)
    policy = Policy("inference", "fp16", fusion="engine")
    whole, apart = (tasks_of(graph, replace(policy, loops_groups=loops), gpu(T4)) for loops in (False, True))
    convolutions = [[task for task in tasks if isinstance(task.operator, Convolution)] for tasks in (whole, apart)]
    grouped = [task for task in convolutions[0] if task.operator.shape.groups > 1]  # type: ignore[union-attr]
    assert grouped
    assert len(convolutions[1]) == len(convolutions[0]) + 31 * len(grouped)
    assert all(task.operator.shape.groups == 1 for task in convolutions[1])  # type: ignore[union-attr]
    assert flops(apart, "forward") == flops(whole, "forward")
    assert size_bytes(apart) == pytest.approx(size_bytes(whole))


def test_tasks_depend_on_nothing_of_a_gpu_but_its_arithmetic() -> None:
    whole = gpu(A100)
    named = {name: getattr(whole, name) for name in ("name", "compute_capability", "instructions")}
    bare = Gpu.model_construct(**named)  # all else is missing
    assert bare.arithmetic == whole.arithmetic
    steps: tuple[tuple[str, Mode, Precision], ...] = (
        ("bert_large", "train", "amp-fp16"),
        ("resnet50", "train", "tf32"),
        ("llama3_8b", "inference", "fp16"),
        ("switch_xl4", "inference", "bf16"),
    )
    for model, mode, precision in steps:
        policy = Policy(mode=mode, precision=precision)
        alone, of_board = (tasks_of(load_model(model).graph({"batch": 3}), policy, one) for one in (bare, whole))
        assert alone is of_board
