"""A small operator drawn as warps over cycles, beside the same one on the other cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpusim.execution.cases import OperatorCase
from gpusim.figures.stalls import LOOKS, is_light
from gpusim.numbers.formats import Dtype
from gpusim.pages import charts
from gpusim.pages.page import Chart, Column, Section, Table
from gpusim.prediction.results import Result
from gpusim.report.stall_reasons import STALL_REASONS
from gpusim.report.warp_spans import shows_every_warp, sum_text, warp_spans
from gpusim.sim.causes import Cause
from gpusim.sim.trace import Recorder
from gpusim.workloads.gemm import Gemm

LANE_PX = 22
LEAST_LABELLED = 0.03
"""Share of the axis from which a span has its cycles written in it."""


@dataclass(frozen=True, slots=True)
class RecordedOperator:
    """A prediction and the recording of one SM."""

    result: Result
    recorder: Recorder

    @property
    def title(self) -> str:
        """The operator and its cores."""
        operator, launch = self.result.operator, self.result.launch
        cores = "Tensor Cores" if launch.unit == "tensor" else "CUDA cores"
        return f"{operator.op} {operator.shape} in {operator.type_text} on {cores}"

    @property
    def is_whole(self) -> bool:
        """Whether each span of each warp can be drawn."""
        return shows_every_warp(self.recorder)


def counterpart(case: OperatorCase, result: Result) -> OperatorCase | None:
    """A multiplication moved to the other cores: to Tensor Cores in FP16, to CUDA cores in FP32."""
    operator = case.workload.operator
    if not isinstance(operator, Gemm):
        return None
    dtype = Dtype.FP16 if result.launch.unit == "cuda" else Dtype.FP32
    other = replace(operator, dtype=dtype, accumulate="", output="", sparsity="dense")
    options = replace(case.workload.options, kernel=None, limits=False)
    return replace(case, workload=replace(case.workload, operator=other, options=options))


def colours_of(causes: Sequence[Cause]) -> charts.Spec:
    """Colours of causes under their names in Nsight Compute."""
    shown = [cause for cause in Cause if cause in causes]
    scale = {
        "domain": [STALL_REASONS[cause].name for cause in shown],
        "range": [LOOKS[cause][0] for cause in shown],
    }
    return charts.field("state", "", "nominal", scale=scale, legend={"title": None})


def example_section(recorded: Sequence[RecordedOperator]) -> Section:
    """The warps of one SM, all of them, one picture for each kind of cores."""
    longest = max(one.recorder.launches[0].simulated_cycles for one in recorded)
    return Section("Every warp, cycle by cycle", [_warps(one, longest) for one in recorded])


def _warps(one: RecordedOperator, longest_cycles: float) -> Chart:
    spans = warp_spans(one.recorder.launches[0])
    rows = [
        {
            "warp": span.warp,
            "state": STALL_REASONS[span.cause].name,
            "start": span.start,
            "end": span.end,
            "cycles": span.cycles,
            "middle": (span.start + span.end) / 2,
            "text": f"{span.cycles:.0f}" if span.cycles >= LEAST_LABELLED * longest_cycles else "",
            "ink": "#000" if is_light(LOOKS[span.cause][0]) else "#fff",
        }
        for span in spans
    ]
    end = max(span.end for span in spans)
    x_scale = {"domain": [0, 1.12 * longest_cycles], "nice": False}
    lanes = list(dict.fromkeys(row["warp"] for row in rows))
    spec = charts.timeline(
        rows,
        "warp",
        "cycles",
        LANE_PX * len(lanes),
        color=colours_of([span.cause for span in spans]),
        tooltip=charts.tips(
            ("warp", "warp", ""), ("state", "state", ""), ("start", "from cycle", "d"), ("end", "to cycle", "d"),
            ("cycles", "cycles", "d"),
        ),
    )  # fmt: skip
    bars = {"mark": spec.pop("mark"), "encoding": spec.pop("encoding"), "params": spec.pop("params")}
    bars["encoding"]["x"]["scale"] = x_scale
    x = charts.field("middle", "time [cycles]", scale=x_scale)
    y = charts.field("warp", "", "nominal", sort=None)
    numbers = {
        "transform": [{"filter": "datum.text"}],
        "mark": {"type": "text", "fontSize": 10, "clip": True, "color": {"expr": "datum.ink"}},
        "encoding": {
            "x": x, "y": y, "text": {"field": "text"},
        },
    }  # fmt: skip
    last = {
        "data": {"values": [{"middle": end, "text": f"{end:.0f} cycles"}]},
        "layer": [
            {"mark": {"type": "rule", "style": "ink", "strokeWidth": 1.5}, "encoding": {"x": x}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "fontWeight": "bold"},
                "encoding": {"x": x, "y": {"value": 8}, "text": {"field": "text"}},
            },
        ],
    }
    columns = (
        Column("warp", "warp"),
        Column("state", "state"),
        Column("start", "from cycle"),
        Column("end", "to cycle"),
        Column("cycles", "cycles"),
    )
    return Chart(
        {**spec, "layer": [bars, numbers, last]},
        one.title,
        f"Warps of one SM over cycles. The last one ends after {sum_text(spans)}.",
        Table(columns, rows, f"Spans of all warps: {one.title}"),
        f"warps-{one.result.launch.unit}",
    )
