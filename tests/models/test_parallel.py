"""Steps on several GPUs: what is split, what is exchanged, what the backward pass hides of it."""

import json
from dataclasses import replace

import pytest

from gpusim.cli import run_cli
from gpusim.errors import InputError
from gpusim.models.decoding import token_graph
from gpusim.models.graph import Graph
from gpusim.models.loading import load_model
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Fusion, Policy, PolicyError
from gpusim.models.task import Task, Tensor
from gpusim.parallel.data import BUCKET_BYTES, FIRST_BUCKET_BYTES, buckets, data_parallel, fullest_pass
from gpusim.parallel.pipeline import Passes, makespan_us, stages
from gpusim.parallel.tensor import tensor_parallel, with_collectives
from gpusim.sim.simulate import simulate
from gpusim.specs import load_spec
from gpusim.specs.nodes import load_node
from gpusim.step.cuda_streams import TaskSpan
from gpusim.step.decoding import predict_generation
from gpusim.step.group import GpuGroup
from gpusim.step.kernels import Kernels
from gpusim.step.model import predict_model
from gpusim.step.options import StepOptions
from gpusim.step.pipeline import pipeline_memory_bytes
from gpusim.step.results import exposed_us
from gpusim.step.schedule import run
from gpusim.workloads.collective import Collective
from gpusim.workloads.memory_bound import Access, Pointwise

V100 = load_spec("v100-sxm2-16gb").system
H100 = load_spec("h100-sxm").system
TRAIN = Policy(precision="amp-fp16")
TRANSFORMERS = ["bert_large", "gpt2_large", "llama2_7b", "opt_1.3b"]


def graph_of(name: str, **sizes: int) -> Graph:
    return load_model(name).graph({"batch": 1, **sizes})


def group_of(node: str, gpus: int, parallel: str = "data") -> GpuGroup:
    spec = load_node(node)
    return GpuGroup(spec.node.record, spec.gpu, spec.nccl.record, gpus, parallel)  # type: ignore[arg-type]


def exchanges(tasks: tuple[Task, ...]) -> list[Task]:
    return [task for task in tasks if isinstance(task.operator, Collective)]


# --- data parallel ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert_large", "resnet50"])
def test_every_gradient_is_summed_once(name: str) -> None:
    graph = graph_of(name)
    found = buckets(tasks_of(graph, TRAIN, V100.gpu))
    names = [gradient.name for bucket in found for gradient in bucket.gradients]
    assert len(names) == len(set(names))
    assert sum(bucket.size_bytes for bucket in found) == 4 * graph.parameters


def test_buckets_are_full_at_one_and_then_at_25_mebibytes() -> None:
    *full, last = buckets(tasks_of(graph_of("resnet50"), TRAIN, V100.gpu))
    assert full[0].size_bytes >= FIRST_BUCKET_BYTES
    assert all(bucket.size_bytes >= BUCKET_BYTES for bucket in full[1:])
    for bucket in full[1:]:  # without its last gradient it was not
        assert bucket.size_bytes - bucket.gradients[-1].size_bytes < BUCKET_BYTES
    assert last.place == max(bucket.place for bucket in (*full, last))


def test_a_bucket_is_summed_right_after_its_last_gradient_and_copied_back_before_the_update() -> None:
    tasks = data_parallel(tasks_of(graph_of("resnet50"), TRAIN, V100.gpu), 8)
    summed = {task.reads[0].name: place for place, task in enumerate(tasks) if task.phase == "communication"}
    first_update = next(place for place, task in enumerate(tasks) if task.phase == "update")
    for name, place in summed.items():
        assert tasks[place - 1].writes[0].name == name
        assert any(name in {tensor.name for tensor in task.reads} for task in tasks[first_update:])
    assert max(summed.values()) < first_update


def test_one_gpu_and_inference_exchange_nothing() -> None:
    trained = tasks_of(graph_of("resnet50"), TRAIN, V100.gpu)
    assert data_parallel(trained, 1) == trained
    inferred = tasks_of(graph_of("resnet50"), Policy(mode="inference"), V100.gpu)
    assert data_parallel(inferred, 8) == inferred


def test_eight_gpus_do_nearly_eight_times_the_work_of_one() -> None:
    graph = graph_of("bert_base", batch=8, seq_len=128, layers=4, vocabulary=2048)
    options = StepOptions(graphs=True)  # else the host hides the exchange
    alone = predict_model(V100, graph, TRAIN, options)
    together = predict_model(V100, graph, TRAIN, options, group=group_of("DGX-1V", 8))
    assert 0.6 * 8 < together.throughput / alone.throughput < 8
    assert together.step.flops == alone.step.flops
    assert 0 < together.step.exposed_us < together.step.communication_us
    assert sum(together.step.time_shares().values()) == pytest.approx(1)


# --- the schedule -----------------------------------------------------------------------------------


def _task(name: str, phase: str, reads: tuple[Tensor, ...] = (), writes: tuple[Tensor, ...] = ()) -> Task:
    touched = (Access(1024, "fp32"),)  # type: ignore[arg-type]
    return Task(name, phase, Pointwise(("copy",), 1024, touched, touched), reads, writes, "")  # type: ignore[arg-type]


GRADIENT = Tensor("gradient", 4096.0)
SUMMED_BESIDE = [
    _task("last", "backward", writes=(GRADIENT,)),
    replace(_task("sum", "communication", (GRADIENT,), (GRADIENT,)), operator=Collective("all_reduce", 4096, 2)),
    _task("first", "backward"),
    _task("weights", "update", reads=(GRADIENT,)),
]
NO_GAP = V100.host.model_copy(update={"stream_gap_us": 0.0})


def test_an_exchange_runs_beside_the_kernels_that_do_not_need_it() -> None:
    found = run(NO_GAP, SUMMED_BESIDE, [10.0, 50.0, 30.0, 5.0], StepOptions())
    spans = {span.launch: pytest.approx((span.start_us, span.end_us)) for span in found.spans}
    assert spans == {0: (0.0, 10.0), 1: (10.0, 60.0), 2: (10.0, 40.0), 3: (60.0, 65.0)}
    assert found.step_us == pytest.approx(65)


def test_kernels_beside_an_exchange_go_slower_until_it_ends() -> None:
    found = run(NO_GAP, SUMMED_BESIDE, [10.0, 30.0, 40.0, 5.0], StepOptions(), overlapped_us=[15.0, 30.0, 60.0, 8.0])
    spans = {span.launch: pytest.approx((span.start_us, span.end_us)) for span in found.spans}
    # Half of the 60 us are done when the exchange ends; the rest takes half of 40.
    assert spans == {0: (0.0, 10.0), 1: (10.0, 40.0), 2: (10.0, 60.0), 3: (60.0, 65.0)}
    assert found.slowed_us == pytest.approx(10)
    alone = run(
        NO_GAP, SUMMED_BESIDE[:1] + SUMMED_BESIDE[2:], [10.0, 40.0, 5.0], StepOptions(), overlapped_us=[15.0, 60.0, 8.0]
    )
    assert alone.slowed_us == 0


def test_an_exchange_slows_kernels_by_its_sms_and_by_its_bandwidth() -> None:
    graph = graph_of("bert_base", batch=8, seq_len=128, layers=1, vocabulary=2048)
    group = group_of("DGX-1V", 8)
    tasks = group.tasks(graph, TRAIN)
    kernels = Kernels(V100, tasks, simulate, group.peers("train"))
    clock = V100.gpu.clock.max_mhz
    alone, beside = kernels.durations_us(clock), kernels.overlapped_us(clock)
    assert beside is not None
    ratios = [b / a for a, b, task in zip(alone, beside, tasks, strict=True) if task.phase != "communication"]
    assert min(ratios) == pytest.approx(80 / (80 - 12))
    assert 1.3 < max(ratios) < 3  # fused optimizers move bytes alone
    assert Kernels(V100, tasks_of(graph, TRAIN, V100.gpu), simulate).overlapped_us(clock) is None


def test_a_summed_loss_is_divided_by_the_tokens_of_all_gpus() -> None:
    graph = graph_of("transformer_base", layers=1)
    alone = tasks_of(graph, TRAIN, V100.gpu)
    divided = [task for task in alone if task.phase == "update" and task.call == "optimizer" and len(task.reads) == 1]
    assert len(divided) == len({gradient.name for one in buckets(alone) for gradient in one.gradients})
    tasks = group_of("DGX-1V", 8).tasks(graph, TRAIN)
    gather = next(place for place, task in enumerate(tasks) if task.operator == Collective("all_gather", 8 * 16384, 8))
    assert all(place < gather for place, task in enumerate(tasks) if task.phase == "communication" and place != gather)
    assert [task.call for task in tasks[gather + 1 : gather + 25]] == ["item"] * 24
    assert tasks[gather + 25] == divided[0]


def test_gradients_are_summed_beside_the_backward_pass_or_all_at_once_after_it() -> None:
    graph = graph_of("transformer_base", layers=2)
    group = group_of("DGX-1V", 8)
    beside, after = (group.tasks(graph, TRAIN, StepOptions(delay_allreduce=one)) for one in (False, True))
    (summed,) = [task for task in after if isinstance(task.operator, Collective) and task.operator.op == "all_reduce"]
    parts = [task.operator for task in beside if isinstance(task.operator, Collective)]
    assert isinstance(summed.operator, Collective)
    assert summed.operator.size_bytes == sum(one.size_bytes for one in parts if one.op == "all_reduce")
    assert not any(task.phase == "backward" for task in after[after.index(summed) :])


def test_sums_of_gradients_are_divided_in_one_more_pass_over_them() -> None:
    graph = graph_of("transformer_base", layers=2)
    group = group_of("DGX-1V", 8)
    fused, apart = (group.tasks(graph, TRAIN, StepOptions(postdivide_gradients=one)) for one in (False, True))
    copied, added = (
        [task for task in apart if task not in fused and task.phase == one] for one in ("backward", "update")
    )
    sizes_bytes = [2 * one.size_bytes for one in buckets(tasks_of(graph, TRAIN, V100.gpu))]
    for chosen, function in ((copied, "copy"), (added, "scale")):
        operators = [task.operator for task in chosen]
        assert [one.functions for one in operators if isinstance(one, Pointwise)] == [(function,)] * len(sizes_bytes)
        assert [one.size_bytes for one in operators] == sizes_bytes
    assert all(apart[apart.index(task) + 1].reads == task.writes for task in added)  # the copy out of the bucket


def test_gradients_are_exchanged_in_the_last_pass_alone_or_in_each() -> None:
    gradient = Tensor("gradient", 4096.0)
    exchange = Collective("all_reduce", 4096, 2)
    tasks = [
        _task("layer", "backward", writes=(gradient,)),
        replace(_task("sum", "communication", (gradient,), (gradient,)), operator=exchange),
        _task("weights", "update", reads=(gradient,)),
    ]
    host = V100.host.model_copy(update={"stream_gap_us": 0.0})
    found = run(host, tasks, [10.0, 50.0, 5.0], StepOptions(accumulation=4))
    assert found.step_us == pytest.approx(4 * 10 + 50 + 5)
    assert found.pass_us == pytest.approx(10)
    each = run(host, tasks, [10.0, 50.0, 5.0], StepOptions(accumulation=4, allreduce_per_microbatch=True))
    assert each.step_us == pytest.approx(4 * (10 + 50) + 5)
    assert each.pass_us == pytest.approx(60)


def test_exposed_is_what_no_kernel_hides() -> None:
    def span(start_us: float, end_us: float) -> TaskSpan:
        return TaskSpan(0, "", 0.0, start_us, end_us)

    kernels = [span(0, 10), span(20, 30), span(40, 50)]
    assert exposed_us([span(5, 25)], kernels) == 10
    assert exposed_us([span(2, 8)], kernels) == 0
    assert exposed_us([span(25, 45), span(48, 60)], kernels) == 10 + 10
    assert exposed_us([span(60, 70)], kernels) == 10


# --- tensor parallel --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_four_gpus_hold_a_quarter_of_the_blocks_and_of_their_arithmetic(name: str) -> None:
    graph = graph_of(name)
    part = tensor_parallel(graph, 4).graph
    assert part.flops == pytest.approx(graph.flops / 4, rel=0.01)
    assert graph.parameters / 4 <= part.parameters < 0.3 * graph.parameters
    assert [node.result for node in part.nodes][-1] == [node.result for node in graph.nodes][-1]


def test_a_block_sums_twice_in_each_pass() -> None:
    graph = graph_of("opt_1.3b")
    split = tensor_parallel(graph, 4)
    found = exchanges(with_collectives(split, tasks_of(split.graph, TRAIN, V100.gpu)))
    layers = graph.sizes["layers"]
    hidden_bytes = 2 * graph.sizes["seq_len"] * graph.sizes["hidden"]
    blocks = [task for task in found if task.name.startswith("decoder.")]
    assert [task.phase for task in blocks].count("forward") == 2 * layers
    assert [task.phase for task in blocks].count("backward") == 2 * layers
    assert {task.operator.size_bytes for task in blocks} == {hidden_bytes}
    # beside them: the embedding, the loss, and what flows back from the scores
    assert {task.name for task in found} - {task.name for task in blocks} == {"words", "loss", "scores"}


def test_tensor_parallel_shortens_a_step_but_less_than_the_arithmetic() -> None:
    graph = graph_of("gpt2_large")
    a100 = load_spec("a100-sxm4-40gb").system
    policy = Policy(mode="inference", precision="fp16")
    options = StepOptions(graphs=True)  # else the host takes as long as before
    alone = predict_model(a100, graph, policy, options)
    together = predict_model(a100, graph, policy, options, group=group_of("DGX-A100", 4, "tensor"))
    assert 1 < alone.step_ms / together.step_ms < 4
    assert together.memory_gib < 0.5 * alone.memory_gib
    assert together.throughput == pytest.approx(1e3 / together.step_ms)


def test_heads_that_do_not_divide_are_refused_with_the_layer() -> None:
    with pytest.raises(InputError, match=r"decoder\.0\.attention: 20 heads do not divide among 8 GPUs"):
        tensor_parallel(graph_of("gpt2_large"), 8)


def test_tensor_parallel_with_checkpointing_is_refused() -> None:
    with pytest.raises(PolicyError, match="tensor: not with checkpointing"):
        group_of("DGX-A100", 4, "tensor").tasks(graph_of("bert_base"), replace(TRAIN, checkpointing=True))


def test_a_model_without_pairs_of_linear_layers_is_refused() -> None:
    with pytest.raises(InputError, match="resnet50: has no pairs of linear layers to split"):
        tensor_parallel(graph_of("resnet50"), 4)


# --- pipeline parallel ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4, 8, 32])
def test_equal_stages_idle_for_as_many_passes_as_others_go_before(count: int) -> None:
    """The bubble of Narayanan et al.: stages less one."""
    assert makespan_us([Passes(1, 2, 0)] * 4, count) == (count + 3) * 3


def test_messages_are_on_the_way_once_in_each_direction() -> None:
    assert makespan_us([Passes(1, 2, 0.5)] * 4, 1) == 4 * 3 + 2 * 3 * 0.5


def test_the_slowest_stage_decides() -> None:
    assert makespan_us([Passes(1, 2, 0), Passes(2, 4, 0), Passes(1, 2, 0)], 100) == pytest.approx(100 * 6, rel=0.02)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_stages_run_every_pass_once_between_them(name: str) -> None:
    graph = graph_of(name)
    found = stages(graph, TRAIN, V100.gpu, 4)
    whole = [task for task in tasks_of(graph, TRAIN, V100.gpu) if task.phase != "update"]
    parts = [task for stage in found for task in stage.tasks if task.phase != "update"]
    assert sorted(map(str, parts)) == sorted(map(str, whole))
    assert [stage.sent_bytes > 0 for stage in found] == [True, True, True, False]


def test_a_pipeline_of_four_is_between_one_and_four_times_as_fast_as_one() -> None:
    graph = graph_of("bert_base", seq_len=128, layers=4, vocabulary=2048)
    options = StepOptions(accumulation=16, graphs=True)
    alone = predict_model(V100, graph, TRAIN, options)
    together = predict_model(V100, graph, TRAIN, options, group=group_of("DGX-1V", 4, "pipeline"))
    assert 2 < alone.step_ms / together.step_ms < 4
    # 3 messages of 128 x 768 numbers in each direction and pass; the first and the last are waited for
    step = together.step
    assert 0 < step.exposed_us < step.communication_us
    assert step.communication_us > 16 * 2 * 3 * 128 * 768 * 2 / 150e3
    assert step.time_shares()["communication"] == pytest.approx(step.exposed_us / step.step_us)
    assert sum(step.time_shares().values()) == pytest.approx(1)
    assert together.items == alone.items
    assert together.memory_gib < alone.memory_gib


def test_a_pipeline_needs_a_block_for_each_stage() -> None:
    with pytest.raises(InputError, match="bert_base: repeats 12 blocks, 16 stages asked for"):
        stages(graph_of("bert_base"), TRAIN, V100.gpu, 16)


@pytest.mark.parametrize("fusion", ["none", "serving"])
def test_stages_of_inference_launch_what_one_gpu_does(fusion: Fusion) -> None:
    policy = Policy("inference", "fp16", fusion=fusion)
    graph = load_model("llama2_7b").graph({"batch": 1, "seq_len": 64, "layers": 4})
    found = stages(graph, policy, H100.gpu, 4)
    assert [task for stage in found for task in stage.tasks] == list(tasks_of(graph, policy, H100.gpu))
    *sending, last = (stage.sent_bytes for stage in found)
    assert all(one >= 64 * 4096 * 2 for one in sending)
    assert last == 0


def test_a_pipeline_of_inference_has_a_batch_in_each_stage() -> None:
    model, sizes = load_model("llama2_7b"), {"batch": 4, "seq_len": 256, "layers": 8, "vocabulary": 1024}
    policy, options = Policy("inference", "fp16", fusion="serving"), StepOptions(graphs=True)
    alone = predict_generation(H100, model, sizes, 16, policy, options)
    together = predict_generation(H100, model, sizes, 16, policy, options, group=group_of("DGX-H100", 4, "pipeline"))
    assert together.sequences == 4 * alone.sequences
    # A batch passes all layers one after the other, with messages between.
    for one, other in ((alone.prompt, together.prompt), (alone.tokens[1], together.tokens[1])):
        assert 1.0 < other.step_ms / one.step_ms < 1.3
        assert 0 <= other.step.exposed_us < other.step.communication_us
        assert other.step.flops == pytest.approx(one.step.flops, rel=0.05)
    assert 1 / 4 < together.memory_gib / alone.memory_gib < 1 / 2
    assert together.largest_batch is not None
    assert 4 * together.largest_batch > (alone.largest_batch or 0)  # in all stages


def test_keys_and_values_of_all_batches_take_memory_in_each_stage() -> None:
    policy = Policy("inference", "fp16", fusion="serving")
    graph = token_graph(load_model("llama2_7b"), {"batch": 8, "seq_len": 1024, "layers": 4}, 1024)
    assert isinstance(graph, Graph)
    found = stages(graph, policy, H100.gpu, 4)
    of_layer = 2 * 8 * 1025 * 4096 * 2
    assert [stage.kept_bytes for stage in found] == [of_layer] * 4
    few, many = (pipeline_memory_bytes(found, passes) for passes in (1, 4))
    assert many - few == 3 * of_layer


def test_replicas_that_only_infer_do_not_wait_for_each_other() -> None:
    group = group_of("DGX-1V", 8)
    assert group.peers("inference").slowest == 1 < group.peers("train").slowest
    assert group_of("DGX-1V", 8, "tensor").peers("inference").slowest > 1


def test_replicas_with_sentences_of_other_lengths_wait_for_the_fullest_batch() -> None:
    group = group_of("DGX-1V", 8, "data")
    assert group.peers("train").fullest == 1 == group.peers("inference", 0.116).fullest
    assert group.peers("train", 0.116).fullest == fullest_pass(0.116, 8) == pytest.approx(1.084, abs=0.001)
    assert group_of("DGX-1V", 8, "tensor").peers("train", 0.116).fullest == 1
    assert load_model("transformer_big").graph().uneven > load_model("gnmt_v2").graph().uneven == 0


def test_a_fuller_pass_and_a_slower_board_need_more_energy_so_that_their_clock_is_that_of_one_gpu() -> None:
    tasks = tasks_of(graph_of("bert_base", batch=32, seq_len=128), TRAIN, V100.gpu)
    peers = group_of("DGX-1V", 8).peers("train")
    alone, slower, fuller = (
        Kernels(V100, tasks, simulate, one)
        for one in (None, replace(peers, slowest=1.1), replace(peers, slowest=1.0, fullest=1.1))
    )
    clock = V100.gpu.clock.boost_mhz
    times = [kernels.durations_us(clock) for kernels in (alone, slower, fuller)]
    for task, once, on_a_slow_board, of_a_full_pass in zip(tasks, *times, strict=True):
        assert on_a_slow_board == pytest.approx(1.1 * once)
        assert of_a_full_pass == pytest.approx(once if task.phase == "update" else 1.1 * once), "updates know no items"
    counts = [1] * len(tasks)
    assert slower.energy(counts).core_j == pytest.approx(1.1 * alone.energy(counts).core_j)
    assert alone.energy(counts).dram_j < fuller.energy(counts).dram_j < slower.energy(counts).dram_j
    group = group_of("DGX-1V", 8)
    graph = graph_of("transformer_big", batch=184, layers=2, hidden=2048, vocabulary=4096)
    one, eight = (predict_model(V100, replace(graph, uneven=0.3), TRAIN, group=at).step for at in (None, group))
    assert one.clock_mhz < V100.gpu.clock.boost_mhz, "held down by the board limit"
    assert eight.clock_mhz / one.clock_mhz < 1.03, "no more than the update and what is exchanged leave it"


def test_a_group_waits_for_its_slowest_board() -> None:
    # the largest of eight normal deviates is 1.42 in the mean, of two 0.56
    node = load_node("DGX-1V").node.record
    assert node.slowest(8) == pytest.approx(1 + 0.0148 * 1.42, abs=0.001)
    assert node.slowest(2) == pytest.approx(1 + 0.0148 * 0.56, abs=0.001)
    assert node.slowest(1) == 1


def test_several_nodes_share_items_but_no_layers() -> None:
    graph = graph_of("bert_base", batch=4, seq_len=64)
    alone, eight, sixteen = (
        predict_model(V100, graph, TRAIN, group=group_of("DGX-1V", gpus)).throughput for gpus in (1, 8, 16)
    )
    assert alone < eight < sixteen < 2 * eight
    with pytest.raises(InputError, match="tensor: within one node; DGX-1V has 8 GPUs"):
        _ = group_of("DGX-1V", 16, "tensor")


# --- the command ------------------------------------------------------------------------------------


def test_the_command_predicts_several_gpus_of_the_node_that_comes_with_the_board(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["model", "bert_base", "--arch", "v100-sxm2-32gb", "--batch", "4", "--seq-len", "64", "--gpus", "2"]
    assert run_cli([*arguments, "--no-cache", "--jobs", "1", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gpus"] == 2
    assert found["communication_us"] > 0
    assert 0 <= found["exposed_communication_pct"] < 100
    assert run_cli([*arguments, "--node", "DGX-3", "--no-cache", "--jobs", "1"]) == 2
    assert "DGX-3: unknown node; did you mean DGX-" in capsys.readouterr().err
