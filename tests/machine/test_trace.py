"""`gpusim trace`: the timeline of a simulated SM, and that recording does not change a prediction."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from conftest import RunGpusim, refused
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

import gpusim as package
from gpusim.hardware.machine import Machine
from gpusim.lowering.gemm.lower import lower
from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.choose import candidates
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.report import trace_events
from gpusim.report.trace_events import THREADS_PER_PROCESS, timeline, write_timeline
from gpusim.sim.causes import Cause
from gpusim.sim.simulate import simulate
from gpusim.sim.trace import SLACK_SPANS, LaunchTrace, Place, Recorder
from gpusim.specs import load_spec
from gpusim.studies.timeline import MOST_EVENTS
from gpusim.workloads.gemm import Gemm

Event = dict[str, Any]

SMALL = Gemm(512, 512, 128, Dtype.FP16)
"""Its few iterations of the main loop are simulated without a jump."""
LARGE = Gemm(4096, 4096, 4096, Dtype.FP16)
HUGE = Gemm(65536, 65536, 65536, Dtype.FP16)
SPLIT = Gemm(64, 64, 65536, Dtype.FP16)
"""On a V100 the product is split along k, and a second kernel adds the parts."""


# The format of a file, after "Trace Event Format" (Duffy and others) and what Perfetto's importer reads.


class Strict(BaseModel):
    """Every key named, no other."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Name(Strict):
    name: str = Field(min_length=1)


class SortIndex(Strict):
    sort_index: int = Field(ge=0)


class ProcessName(Strict):
    ph: Literal["M"]
    name: Literal["process_name"]
    pid: int = Field(ge=1)
    args: Name


class ProcessSortIndex(Strict):
    ph: Literal["M"]
    name: Literal["process_sort_index"]
    pid: int = Field(ge=1)
    args: SortIndex


class ThreadName(Strict):
    ph: Literal["M"]
    name: Literal["thread_name"]
    pid: int = Field(ge=1)
    tid: int = Field(ge=1)
    args: Name


class ThreadSortIndex(Strict):
    ph: Literal["M"]
    name: Literal["thread_sort_index"]
    pid: int = Field(ge=1)
    tid: int = Field(ge=1)
    args: SortIndex


class WarpArguments(Strict):
    start_cycle: int = Field(ge=0)
    duration_cycles: int = Field(ge=1)
    cta: int = Field(ge=0)
    sub_partition: int = Field(ge=0, le=3)


class LinkArguments(Strict):
    start_cycle: float = Field(ge=0)
    duration_cycles: float = Field(ge=0)
    bytes: float = Field(ge=0)


class PipeArguments(Strict):
    start_cycle: float = Field(ge=0)
    duration_cycles: float = Field(ge=0)
    instructions: float = Field(ge=0)


class WarpEvent(Strict):
    ph: Literal["X"]
    cat: Literal["warp"]
    name: Literal[tuple(cause.value for cause in Cause)]  # type: ignore[valid-type]
    pid: int = Field(ge=1)
    tid: int = Field(ge=1)
    ts: float = Field(ge=0)
    dur: float = Field(ge=0)
    args: WarpArguments


class UnitEvent(Strict):
    ph: Literal["X"]
    cat: Literal["unit"]
    name: Literal["arithmetic", "shared memory", "L2 port", "L2", "DRAM"]
    pid: int = Field(ge=1)
    tid: int = Field(ge=1)
    ts: float = Field(ge=0)
    dur: float = Field(ge=0)
    args: LinkArguments | PipeArguments


class JumpArguments(Strict):
    skipped_cycles: int = Field(ge=1)
    at_cycle: int = Field(ge=0)


class JumpEvent(Strict):
    ph: Literal["i"]
    cat: Literal["extrapolation"]
    s: Literal["g"]
    name: str
    pid: int = Field(ge=1)
    tid: int = Field(ge=1)
    ts: float = Field(ge=0)
    args: JumpArguments


Metadata = Annotated[ProcessName | ProcessSortIndex | ThreadName | ThreadSortIndex, Field(discriminator="name")]
Complete = Annotated[WarpEvent | UnitEvent, Field(discriminator="cat")]
AnyEvent = Annotated[Metadata | Complete | JumpEvent, Field(union_mode="left_to_right")]


class Document(Strict):
    displayTimeUnit: Literal["ns"]  # noqa: N815 - the format's spelling
    otherData: dict[str, Any]  # noqa: N815 - the format's spelling
    traceEvents: list[AnyEvent]  # noqa: N815 - the format's spelling


# Traces -----------------------------------------------------------------------------------------


class Trace:
    """A file as a viewer reads it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.document: dict[str, Any] = json.loads(text)
        self.about: dict[str, Any] = self.document["otherData"]
        self.events: list[Event] = self.document["traceEvents"]
        self.complete = [event for event in self.events if event["ph"] == "X"]
        self.flags = [event for event in self.events if event["ph"] == "i"]
        self.names = {e["tid"]: str(e["args"]["name"]) for e in self.events if e["name"] == "thread_name"}

    @property
    def tracks(self) -> dict[int, list[Event]]:
        """Complete events by thread, in the order of the file."""
        tracks: dict[int, list[Event]] = defaultdict(list)
        for event in self.complete:
            tracks[event["tid"]].append(event)
        return tracks

    def warps(self) -> Iterator[list[Event]]:
        """The life of each warp."""
        lives: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for event in self.complete:
            if event["cat"] == "warp":
                lives[event["tid"], event["args"]["cta"]].append(event)
        yield from lives.values()


def traced(gpu: str, gemm: Gemm, detail: str = "sampled", limit: int = MOST_EVENTS) -> tuple[Result, Trace, Recorder]:
    recorder = Recorder(limit)
    result = predict(load_spec(gpu).system, gemm, Options(detail=detail), recorder)
    return result, Trace("".join(timeline(result, recorder))), recorder


def chosen_plan(gpu: str, gemm: Gemm, kernel: str) -> GemmPlan:
    """The plan that a prediction chose."""
    arch = load_spec(gpu).system
    fitting = tuple(
        item
        for item in arch.library.kernels
        if item.family.instruction in arch.gpu.instructions and item.printed_name(gemm.layout, gemm.dtype) == kernel
    )
    return candidates(arch, gemm, fitting, warm=False, clock_mhz=arch.gpu.clock.boost_mhz)[0].plan


CASES = {
    "small": ("a100-sxm4-80gb", SMALL, "sampled"),
    "large": ("a100-sxm4-80gb", LARGE, "sampled"),
    "split": ("v100-sxm2-16gb", SPLIT, "sampled"),
    "fp32": ("t4", Gemm(512, 512, 512, Dtype.FP32), "sampled"),
    "gemv": ("rtx-3090", Gemm(1, 4096, 1024, Dtype.FP16), "sampled"),
    "full": ("t4", SMALL, "full"),
}


@pytest.fixture(scope="module", params=list(CASES))
def trace(request: pytest.FixtureRequest) -> Trace:
    gpu, gemm, detail = CASES[request.param]
    return traced(gpu, gemm, detail)[1]


def perfetto_ns(time_us: float) -> int:
    """Perfetto's importer keeps whole nanoseconds, start and duration each for itself."""
    return round(time_us * 1000)


# The file ---------------------------------------------------------------------------------------


def test_every_event_follows_the_format(trace: Trace) -> None:
    document = TypeAdapter(Document).validate_json(trace.text)
    assert len(document.traceEvents) == len(trace.events)


def test_numbers_are_written_without_exponents(trace: Trace) -> None:
    # Perfetto has read them as text, in parts before and after the point.
    for line in trace.text.splitlines():
        if '"ts":' in line:
            written = line.split('"ts":')[1].split(",")[0]
            assert written.replace(".", "").isdigit(), line


def test_events_of_a_track_are_in_order_and_never_overlap(trace: Trace) -> None:
    assert trace.tracks
    for events in trace.tracks.values():
        for before, after in pairwise(events):
            assert perfetto_ns(before["ts"]) + perfetto_ns(before["dur"]) <= perfetto_ns(after["ts"])
            ended = before["args"]["start_cycle"] + before["args"]["duration_cycles"]
            # Cycles are written to three decimals.
            assert ended <= after["args"]["start_cycle"] + 0.002


def test_each_track_has_a_name_of_its_own_and_a_place(trace: Trace) -> None:
    named = [event for event in trace.events if event["name"] == "thread_name"]
    placed = {e["tid"]: e["args"]["sort_index"] for e in trace.events if e["name"] == "thread_sort_index"}
    assert {event["tid"] for event in named} == set(trace.tracks) == set(placed)
    assert len({(event["pid"], event["args"]["name"]) for event in named}) == len(named)
    assert len(set(placed.values())) == len(placed)


def test_pipes_come_first_then_memory_then_warps_in_order(trace: Trace) -> None:
    order = [name for tid, name in sorted(trace.names.items()) if tid // THREADS_PER_PROCESS == 1]
    kinds = ["sub-partition", "shared", "L2 port", "L2 (", "DRAM", "CTA slot"]
    ranks = [next(rank for rank, kind in enumerate(kinds) if name.startswith(kind)) for name in order]
    assert ranks == sorted(ranks)
    warps = [(int(words[2]), int(words[4])) for words in (name.split() for name in order) if words[0] == "CTA"]
    assert warps == sorted(warps)
    assert len(warps) > 1


def test_every_unit_of_the_sm_and_every_warp_has_a_track() -> None:
    _, trace, _ = traced("a100-sxm4-80gb", LARGE)
    units = {name for name in trace.names.values() if not name.startswith("CTA")}
    assert units == {
        *(f"sub-partition {part} {pipe}" for part in range(4) for pipe in ("Tensor Core", "FMA pipe", "ALU")),
        "shared-memory port",
        "L2 port",
        "L2 (this SM's share)",
        "DRAM (this SM's share)",
    }
    _, trace, _ = traced("v100-sxm2-16gb", Gemm(512, 512, 256, Dtype.FP32), "full")
    units = {name for name in trace.names.values() if not name.startswith("CTA")}
    assert units >= {"sub-partition 0 FMA pipe", "L2 (all SMs)", "DRAM (all SMs)"}


def test_times_are_cycles_over_the_clock(trace: Trace) -> None:
    clock_mhz = trace.about["clock_mhz"]
    offsets = {launch["pid"]: launch["start_us"] for launch in trace.about["launches"]}
    for event in trace.complete:
        start, duration = event["args"]["start_cycle"], event["args"]["duration_cycles"]
        # Viewers keep whole nanoseconds: a time is off by half of one, a duration by that at both ends;
        # beyond that, by the third decimal of the cycles.
        assert event["ts"] - offsets[event["pid"]] == pytest.approx(start / clock_mhz, abs=0.5001e-3 + 1e-6)
        assert event["dur"] == pytest.approx(duration / clock_mhz, abs=1.0001e-3 + 1e-6)


def test_neighbours_in_a_warps_life_have_different_causes(trace: Trace) -> None:
    for life in trace.warps():
        for before, after in pairwise(life):
            assert before["name"] != after["name"]


def test_the_file_says_what_it_is(trace: Trace) -> None:
    about = trace.about
    assert about["program"] == f"gpusim {package.__version__}"
    assert set(about) >= {"arch", "kernel", "clock_mhz", "detail", "m", "n", "k", "dtype", "dropped_events"}
    assert about["events"] == len(trace.complete)
    processes = {e["pid"]: e["args"]["name"] for e in trace.events if e["name"] == "process_name"}
    for launch in about["launches"]:
        assert processes[launch["pid"]].startswith(about["arch"] + " SM")
        assert launch["kernel"] in processes[launch["pid"]]


def test_a_file_with_as_many_events_as_fit_is_below_20_mb(trace: Trace) -> None:
    lines = [line for line in trace.text.splitlines() if '"ph":"X"' in line]
    # Later times have more digits than these: at most six more each for start and cycle.
    assert MOST_EVENTS * (sum(len(line) + 1 for line in lines) / len(lines) + 12) < 20e6


# What is in it ----------------------------------------------------------------------------------


def test_a_warps_events_fill_its_life_without_a_hole(trace: Trace) -> None:
    for life in trace.warps():
        for before, after in pairwise(life):
            assert before["args"]["start_cycle"] + before["args"]["duration_cycles"] == after["args"]["start_cycle"]
        assert life[0]["name"] == "launch"
        assert life[0]["args"]["sub_partition"] == life[-1]["args"]["sub_partition"]


@pytest.mark.parametrize("gpu", ["v100-sxm2-16gb", "t4", "a100-sxm4-80gb", "h200-sxm-141gb"])
def test_durations_by_cause_add_up_to_the_ledger(gpu: str) -> None:
    result, trace, _ = traced(gpu, SMALL)
    assert trace.about["launches"][0]["skipped_cycles"] == 0
    cycles = dict.fromkeys(result.counters.stall_cycles, 0)
    for event in trace.complete:
        if event["cat"] == "warp":
            cycles[event["name"]] += event["args"]["duration_cycles"]
    assert cycles == result.counters.stall_cycles


def test_a_warps_events_add_up_to_its_lifetime_beside_jumps() -> None:
    result, trace, _ = traced("a100-sxm4-80gb", LARGE)
    lives = list(trace.warps())
    booked = sum(event["args"]["duration_cycles"] for life in lives for event in life)
    lived = sum(
        life[-1]["args"]["start_cycle"] + life[-1]["args"]["duration_cycles"] - life[0]["args"]["start_cycle"]
        for life in lives
    )
    assert booked == lived < result.counters.warp_cycles


def test_multiplies_on_the_pipes_are_those_of_the_sms_warps() -> None:
    arch = load_spec("t4").system
    result, trace, _ = traced("t4", SMALL)
    main = chosen_plan("t4", SMALL, result.kernel).main
    on_tensor_cores = [event for event in trace.complete if trace.names[event["tid"]].endswith("Tensor Core")]
    heard = sum(event["args"]["instructions"] for event in on_tensor_cores)
    used = main.kernel
    assert heard == main.ctas_on_busiest_sm(arch.gpu) * used.math_warps * main.steps * used.loop.mma_instructions


def test_a_huge_product_is_traced_by_playing_what_repeats_once() -> None:
    result, trace, recorder = traced("a100-sxm4-80gb", HUGE)
    (launch,) = trace.about["launches"]
    assert launch["simulated_cycles"] + launch["skipped_cycles"] == result.timing.cycles
    # 2.6 billion cycles would take hours to play.
    assert launch["simulated_cycles"] < result.timing.cycles / 1000
    assert recorder.dropped == 0


def test_each_jump_is_flagged_where_it_was_made() -> None:
    _, trace, _ = traced("a100-sxm4-80gb", LARGE)
    (launch,) = trace.about["launches"]
    flagged = [{"at_cycle": e["args"]["at_cycle"], "cycles": e["args"]["skipped_cycles"]} for e in trace.flags]
    assert flagged == launch["skipped"] != []
    assert sum(jump["cycles"] for jump in launch["skipped"]) == launch["skipped_cycles"]
    for flag in trace.flags:
        assert flag["ts"] == pytest.approx(flag["args"]["at_cycle"] / trace.about["clock_mhz"], abs=0.5001e-3)
        assert str(flag["args"]["skipped_cycles"]) in flag["name"]


def test_the_reduction_of_a_split_product_follows_as_a_second_process() -> None:
    result, trace, _ = traced("v100-sxm2-16gb", SPLIT)
    assert result.launch.split_k > 1
    product, reduction = trace.about["launches"]
    assert reduction["kernel"] == "splitKreduce_kernel"
    ended = {pid: max(event["ts"] + event["dur"] for event in trace.complete if event["pid"] == pid) for pid in (1, 2)}
    began = min(event["ts"] for event in trace.complete if event["pid"] == 2)
    assert began == reduction["start_us"] < ended[2]
    assert began == pytest.approx(
        product["shown_cycles"] / result.timing.clock_mhz + result.timing.launch_overhead_us, abs=1.0001e-3
    )
    assert ended[1] <= began


def test_warps_of_different_ctas_never_share_an_event() -> None:
    # The next CTA of a slot may begin with the cause, and in the cycle, with which the last one ended.
    recorded = LaunchTrace("kernel", limit=10)
    track = recorded.track("CTA slot 0 warp 0", joins=True)
    first, second = Place(0, 0), Place(1, 0)
    for place, start in ((first, 0), (first, 10), (second, 20), (second, 30)):
        recorded.add(track, "issue", start, start + 10, 0.0, place)
    assert [(span.start, span.end, span.place) for span in track.spans] == [(0, 20, first), (20, 40, second)]


# Its bound --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 40, 999, 3000])
@pytest.mark.parametrize(("gpu", "gemm", "detail"), [CASES["large"], CASES["full"]], ids=["large", "full"])
def test_a_cut_trace_is_the_beginning_of_the_whole_one(gpu: str, gemm: Gemm, detail: str, limit: int) -> None:
    _, whole, _ = traced(gpu, gemm, detail)
    _, cut, recorder = traced(gpu, gemm, detail, limit)
    assert len(cut.complete) <= limit
    assert cut.about["dropped_events"] == len(whole.complete) - len(cut.complete) == recorder.dropped
    (launch,) = cut.about["launches"]
    horizon = launch["shown_cycles"]
    kept = [event for event in whole.complete if event["args"]["start_cycle"] < horizon]
    assert [(e["tid"], e["ts"], e["name"]) for e in cut.complete] == [(e["tid"], e["ts"], e["name"]) for e in kept]
    if recorder.dropped == 0:
        return
    for short, long in zip(cut.complete, kept, strict=True):
        start, duration = long["args"]["start_cycle"], long["args"]["duration_cycles"]
        # Whatever went on at the horizon ends there.
        assert short["args"]["duration_cycles"] == pytest.approx(min(duration, horizon - start), abs=0.002)
    assert [e["args"]["at_cycle"] for e in cut.flags] == [
        e["args"]["at_cycle"] for e in whole.flags if e["args"]["at_cycle"] < horizon
    ]


def test_an_amount_that_is_cut_is_what_passed_until_then() -> None:
    recorded = LaunchTrace("kernel", limit=1)
    track = recorded.track("DRAM", "bytes")
    recorded.add(track, "DRAM", 0.0, 100.0, 3200.0, None)
    recorded.add(track, "DRAM", 100.0, 200.0, 3200.0, None)
    other = recorded.track("L2", "bytes")
    recorded.add(other, "L2", 25.0, 50.0, 10.0, None)
    recorded.finish(200)
    assert (recorded.kept, recorded.dropped, recorded.shown_cycles) == (1, 2, 25)
    assert [(span.start, span.end, span.amount) for span in track.spans] == [(0.0, 25.0, 800.0)]
    assert other.spans == []


def test_memory_stays_bounded_while_a_long_run_is_heard() -> None:
    recorded = LaunchTrace("kernel", limit=100)
    tracks = [recorded.track(f"track {number}", "bytes") for number in range(10)]
    heard = 30_000
    for index in range(heard):
        recorded.add(tracks[index % 10], "name", float(index), index + 0.5, 1.0, None)
        assert recorded.kept <= 100 + SLACK_SPANS
        if index % 1000 == 0:
            assert recorded.kept == sum(len(track.spans) for track in tracks)
    recorded.finish(heard)
    assert recorded.kept == sum(len(track.spans) for track in tracks) == 100
    assert recorded.dropped == heard - 100


def test_what_is_heard_late_still_has_its_place_before_the_horizon() -> None:
    # A wait is booked when it ends, long after others that began later.
    recorded = LaunchTrace("kernel", limit=SLACK_SPANS)
    busy, waiting = recorded.track("busy"), recorded.track("waiting")
    for index in range(3 * SLACK_SPANS):
        recorded.add(busy, str(index), index, index + 1, 0.0, None)
    recorded.add(waiting, "barrier", 7, 3 * SLACK_SPANS, 0.0, None)
    recorded.finish(3 * SLACK_SPANS)
    (barrier,) = waiting.spans
    assert (barrier.start, barrier.end) == (7, recorded.horizon)
    assert busy.spans[-1].end == recorded.horizon
    assert recorded.kept <= recorded.limit


def test_a_cut_product_drops_its_reduction_whole() -> None:
    _, trace, recorder = traced("v100-sxm2-16gb", SPLIT, limit=200)
    assert {event["pid"] for event in trace.events} == {1}
    assert trace.about["launches"][1]["events"] == 0
    assert recorder.dropped > trace.about["launches"][1]["dropped_events"] > 0


# Recording changes no prediction -----------------------------------------------------------------


@pytest.mark.parametrize("case", ["large", "split", "full"])
def test_tracing_does_not_change_the_prediction(case: str) -> None:
    gpu, gemm, detail = CASES[case]
    silent = predict(load_spec(gpu).system, gemm, Options(detail=detail))
    heard, _, _ = traced(gpu, gemm, detail)
    assert heard == silent


@pytest.mark.parametrize("detail", ["sampled", "full"])
@pytest.mark.parametrize("limit", [10, MOST_EVENTS])
def test_tracing_does_not_change_the_simulation(detail: str, limit: int) -> None:
    arch = load_spec("t4").system
    machine = Machine.of(arch.gpu, 1000.0)
    launch = lower(chosen_plan("t4", SMALL, predict(arch, SMALL).kernel))[0]
    silent = simulate(machine, launch, detail)
    assert simulate(machine, launch, detail, recorder=Recorder(limit)) == silent


def test_the_same_question_gets_the_same_bytes(gpusim: RunGpusim, tmp_path: Path) -> None:
    question = ("trace", "--arch", "t4", "-m", "512", "-n", "512", "-k", "512", "-o")
    assert gpusim(*question, "first.json").returncode == 0
    assert gpusim(*question, "second.json").returncode == 0
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()


# The command ------------------------------------------------------------------------------------


ASK = ("trace", "--arch", "v100-sxm2-16gb", "-m", "2048", "-n", "2048", "-k", "2048")


def test_the_file_lies_where_it_was_asked_for(command: RunGpusim, tmp_path: Path) -> None:
    done = command(*ASK, "-o", "t.json")
    assert (done.returncode, done.stdout) == (0, "")
    trace = Trace((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert f"wrote t.json: {len(trace.complete)} events" in done.stderr
    share = trace.about["launches"][0]["skipped_cycles"] / trace.about["predicted_cycles"]
    assert f"{100 * share:.0f} % of cycles extrapolated" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


CONVOLUTION = "n_img=2:in_channels=64:height=28:width=28:out_channels=64:filter_h=3:filter_w=3:pad_h=1:pad_w=1"


@pytest.mark.parametrize(
    "workload",
    [
        f"conv_fwd:fp16:{CONVOLUTION}:stride_h=1:stride_w=1",
        "attention_fwd:256x256x64:fp16:heads=4",
        "softmax:1024x1024:fp32",
        "gelu:1024x1024:fp16",
        "gemm:512x512x512:fp16:layout=nn",
    ],
)
def test_every_operator_has_a_timeline(workload: str, command: RunGpusim, tmp_path: Path) -> None:
    done = command("trace", workload, "--arch", "a100-sxm4-80gb", "-o", "t.json", "--limit", "2000")
    assert done.returncode == 0, done.stderr
    trace = Trace((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert len(trace.complete) > 100
    assert trace.about["dtype"] in workload


def test_a_trace_is_of_one_operator(command: RunGpusim) -> None:
    assert "give -m, -n and -k, or an operator" in refused(command("trace", "--arch", "t4", "-o", "t.json"))
    both = ("trace", "softmax:8x8:fp32", "--arch", "t4", "-m", "8", "-o", "t.json")
    assert "m: given beside softmax:8x8:fp32" in refused(command(*both))


def test_a_cut_trace_states_what_was_dropped(command: RunGpusim, tmp_path: Path) -> None:
    done = command(*ASK, "-o", "t.json", "--limit", "300")
    trace = Trace((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert 0 < len(trace.complete) <= 300
    assert f"dropped {trace.about['dropped_events']} later events" in done.stderr


def test_options_reach_the_trace(command: RunGpusim, tmp_path: Path) -> None:
    options = (
        "--dtype",
        "fp32",
        "--l2",
        "warm",
        "--load",
        "burst",
        "--layout",
        "nn",
        "--set",
        "sm.count=40",
        "--detail",
        "full",
    )
    assert (
        command("trace", "--arch", "t4", "-m", "256", "-n", "128", "-k", "64", *options, "-o", "t.json").returncode == 0
    )
    about = Trace((tmp_path / "t.json").read_text(encoding="utf-8")).about
    asked = {
        "arch": "T4",
        "m": 256,
        "n": 128,
        "k": 64,
        "dtype": "fp32",
        "l2": "warm",
        "load": "burst",
        "layout": "nn",
        "detail": "full",
    }
    assert {name: about[name] for name in asked} == asked


def test_wrong_input_is_one_line_and_leaves_what_was_there(command: RunGpusim, tmp_path: Path) -> None:
    kept = tmp_path / "t.json"
    kept.write_text("kept")
    small = ("-m", "64", "-n", "64", "-k", "64")
    assert "Missing option" in refused(command("trace", "--arch", "t4", *small))
    assert "unknown GPU" in refused(command("trace", "--arch", "t44", *small, "-o", kept))
    assert "takes one GPU" in refused(command("trace", "--arch", "t4", "--arch", "v100", *small, "-o", kept))
    assert "unknown data type" in refused(command("trace", "--arch", "t4", *small, "--dtype", "fp61", "-o", kept))
    for detail in ("bound", "estimate"):
        assert f"detail: '{detail}'" in refused(
            command("trace", "--arch", "t4", *small, "--detail", detail, "-o", kept)
        )
    assert "'--limit'" in refused(command("trace", "--arch", "t4", *small, "--limit", "0", "-o", kept))
    assert "no kernel" in refused(command("trace", "--arch", "t4", *small, "--kernel", "sgemm", "-o", kept))
    assert "no folder" in refused(command("trace", "--arch", "t4", *small, "-o", tmp_path / "none" / "t.json"))
    assert "name a file" in refused(command("trace", "--arch", "t4", *small, "-o", tmp_path))
    assert "name a file" in refused(command("trace", "--arch", "t4", *small, "-o", "/dev/null"))
    assert kept.read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_a_file_that_cannot_be_finished_does_not_replace_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(result: Result, recorder: Recorder) -> Iterator[str]:
        yield next(timeline(result, recorder))
        raise OSError("No space left on device")

    kept = tmp_path / "t.json"
    kept.write_text("kept")
    recorder = Recorder(100)
    result = predict(load_spec("t4").system, SMALL, Options(), recorder)
    monkeypatch.setattr(trace_events, "timeline", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_timeline(kept, result, recorder)
    assert kept.read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_an_old_file_is_replaced_also_through_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    recorder = Recorder(100)
    result = predict(load_spec("t4").system, SMALL, Options(), recorder)
    write_timeline(link, result, recorder)
    assert link.is_symlink()
    assert Trace(target.read_text(encoding="utf-8")).about["arch"] == "T4"
