"""Page of a validation: predicted against measured values, how errors are spread, which rows are worst, coverage.

Every kind of measured tables becomes rows of the same fields, which all charts and tables of its section share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar

from gpusim.evidence.boards import board_of
from gpusim.evidence.measured import MeasuredRow
from gpusim.pages import charts
from gpusim.pages.page import Block, Cell, Chart, Column, Facts, Page, Section, Table, shown
from gpusim.pages.printed import printed_table
from gpusim.pages.provenance import cautions, file_hashes, provenance
from gpusim.report.formatting import bytes_text, shape_text
from gpusim.specs import Provenance, Spec
from gpusim.specs.nodes import load_node
from gpusim.studies.validation.accuracy import errors, grouped, mean_percent, percent, spread
from gpusim.studies.validation.collectives import CollectiveReport, ScoredCollective
from gpusim.studies.validation.prediction import Scored, specs_of
from gpusim.studies.validation.report import ValidationReport
from gpusim.studies.validation.report import explained as explained_operator
from gpusim.studies.validation.step_report import GROUPS, EndToEndReport, ScoredStep
from gpusim.studies.validation.step_report import explained as explained_step
from gpusim.studies.validation.table_kind import Report, Request, TableKind, Validated
from gpusim.studies.validation.traced_kernels import ScoredKernel, TraceReport

COVERAGE_PCT = 80
"""Share of measured values that intervals are to hold."""
MOST_WORST = 30
"""Rows in the table of the largest errors."""
MOST_GROUPS = 30
"""Groups of a property that are drawn; the largest ones."""
MOST_COLOURS = 8
OTHERS = "others"

_Row = dict[str, Any]
_Any = TypeVar("_Any", Scored, ScoredStep)


class _Property(NamedTuple):
    """What rows are grouped by."""

    key: str
    title: str


@dataclass(frozen=True, slots=True)
class _Compared:
    """The rows of all tables of one kind."""

    unit: str
    """Unit of the values; empty where each row has its own."""
    size: str
    """Title of the size that errors are drawn against."""
    rows: list[_Row]
    """Rows that have a prediction, with a value for each property and their interval's ``inside``."""
    properties: tuple[_Property, ...]
    worst: list[_Row]
    """Rows with the largest errors, and what explains their predictions."""
    causes: tuple[Column, ...]
    """Columns of what explains them."""
    skipped: list[_Row]
    gpus: tuple[str, ...]
    """Names by which the tables call the boards."""
    assumptions: tuple[str, ...]


def validation_page(
    found: Mapping[TableKind, Validated],
    objects: Mapping[TableKind, Mapping[str, Any]],
    request: Request,
    files: Sequence[Path],
    command: Sequence[str],
) -> Page:
    """The page.

    Args:
        found: reports by the kind of their tables.
        objects: their JSON objects.
        request: what was asked for.
        files: the tables.
        command: the arguments that made it.
    """
    compared = {kind: _compared(one.report) for kind, one in found.items()}
    several = len(found) > 1
    sections = [
        section
        for kind, one in compared.items()
        for section in _sections(one, kind, objects[kind], request, f"{kind.name}: " if several else "")
    ]
    remarks = [remark for one in found.values() for remark in one.remarks]
    assumptions = [*(text for one in compared.values() for text in one.assumptions), *remarks]
    specs, records = _stated(found, compared, request.arch_path)
    inputs = [
        *file_hashes(files),
        *((f"--overhead {method}", f"{time_us:g} µs") for method, time_us in request.overheads.items()),
    ]
    rows = sum(len(one.rows) for one in compared.values())
    skipped = sum(len(one.skipped) for one in compared.values())
    left = f" {skipped} more have no prediction." if skipped else ""
    names = ", ".join(dict.fromkeys(path.name for path in files))
    lead = f"Predictions beside {rows:,} measured rows of {names}: how far off they are, and where.{left}"
    sections += provenance(specs, command, assumptions, inputs=inputs, records=records)
    return Page("Predicted against measured", lead + cautions(specs), sections)


def _stated(
    found: Mapping[TableKind, Validated], compared: Mapping[TableKind, _Compared], arch_path: Sequence[Path]
) -> tuple[list[Spec], dict[str, Mapping[str, Provenance]]]:
    """Specs of the boards, and the values of nodes and of the library of collectives."""
    records: dict[str, Mapping[str, Provenance]] = {}
    specs = {spec.gpu.name: spec for spec in specs_of(_boards(found, compared), arch_path)[0].values()}
    for validated in found.values():
        if isinstance(validated.report, CollectiveReport):
            for place in dict.fromkeys(one.row.place for one in validated.report.scored if one.predicted):
                node = load_node(place, arch_path)
                _ = specs.setdefault(node.gpu.name, board_of(node.gpu.name, arch_path))
                records |= {node.node.record.name: node.node.provenance(), "NCCL": node.nccl.provenance()}
    return list(specs.values()), records


def _boards(found: Mapping[TableKind, Validated], compared: Mapping[TableKind, _Compared]) -> list[str]:
    return [
        gpu
        for kind, one in compared.items()
        if not isinstance(found[kind].report, CollectiveReport)
        for gpu in one.gpus
    ]


# Rows of each kind ------------------------------------------------------------------------------


def _compared(report: Report) -> _Compared:
    match report:
        case ValidationReport():
            return _operators(report)
        case EndToEndReport():
            return _steps(report)
        case CollectiveReport():
            return _collectives(report)
        case TraceReport():
            return _kernels(report)
    raise AssertionError(report)


def _row(name: str, place: tuple[str, int], gpu: str, size: float, pair: tuple[float, float], **others: Cell) -> _Row:
    """The fields that all kinds of rows have; a pair is of a measured and a predicted value."""
    measured, predicted = pair
    return {
        "name": name,
        "place": f"{PurePath(place[0]).name}:{place[1]}",
        "gpu": gpu,
        "size": size,
        "measured": measured,
        "predicted": predicted,
        "error_pct": percent(predicted / measured - 1),
        **others,
    }


def _operators(report: ValidationReport) -> _Compared:
    worst = _largest([item for table in report.tables for item in table.worst])
    return _Compared(
        "µs",
        "m (rows of C)",
        [_operator(item) for item in report.scored],
        (
            _Property("kind", "kind"),
            _Property("gpu", "GPU"),
            _Property("source", "source"),
            _Property("bottleneck", "bottleneck"),
            _Property("bound_by", "bound by"),
            _Property("evidence", "evidence"),
        ),
        [{**_operator(item), **explained_operator(item)} for item in worst],
        (
            Column("dominant_stall", "stall"),
            Column("clock_mhz", "clock", "MHz"),
            Column("waves", "waves", digits=3),
            Column("method_overhead_us", "timing adds", "µs", 3, meaning="What the timing method adds to the kernels"),
            Column("kernel", "kernel"),
            Column("recorded_kernel", "recorded kernel"),
        ),
        [
            _skipped(_operator_name(row), (row.file, row.line), row.gpu, reason)
            for table in report.tables
            for row, reason in table.skipped
        ],
        tuple(report.specs),
        (
            "a prediction includes what the timing method of its row adds to the kernels",
            "a bottleneck is the busiest resource; of the largest errors it is what would help most",
        ),
    )


def _operator_name(row: MeasuredRow) -> str:
    size = {"batch": row.batch, "m": row.m, "n": row.n, "k": row.k}
    return f"{row.op} {shape_text(size)} {row.layout}".rstrip()


def _operator(item: Scored) -> _Row:
    row = item.row
    sparsity = "" if row.sparsity == "dense" else f" {row.sparsity}"
    return _row(
        _operator_name(row),
        (row.file, row.line),
        row.gpu,
        row.m,
        (row.time_us, item.predicted_us),
        kind=f"{row.op} {row.dtype.value}{sparsity}",
        source=row.source or "not stated",
        bottleneck=item.result.bottleneck,
        bound_by=item.bound_by,
        evidence=item.result.timing.evidence,
        inside=item.inside,
    )


def _steps(report: EndToEndReport) -> _Compared:
    return _Compared(
        "",
        "items of a batch",
        [_step(one) for one in report.scored],
        (
            _Property("kind", "kind"),
            _Property("gpu", "GPU"),
            _Property("source", "library"),
            _Property("bottleneck", "bottleneck"),
            _Property("family", "family"),
            _Property("version", "PyTorch"),
        ),
        [{**_step(one), **explained_step(one)} for one in _largest(report.scored)],
        (
            Column("host_pct", "host", "%", 3, meaning="Share of the step that waits for the host"),
            Column("idle_pct", "idle", "%", 3, meaning="Share of the step in which the GPU has no kernel"),
            Column("clock_mhz", "clock", "MHz"),
            Column("memory_gib", "memory", "GiB", 3),
            Column("unmodelled_pct", "not modelled", "%", 3, meaning="Share of calls that are copies of their bytes"),
        ),
        [
            _skipped(f"{row.model} {row.mode} {row.precision}", (row.file, row.line), row.gpu, reason)
            for row, reason in report.skipped
        ],
        tuple(dict.fromkeys(one.row.gpu for one in report.scored)),
        (),
    )


def _step(one: ScoredStep) -> _Row:
    row = one.row
    length = f", {row.seq_len} tokens" if row.seq_len else f", {row.image_size} pixels" if row.image_size else ""
    return _row(
        f"{row.model} {row.mode} {row.precision}, batch {row.batch}{length} ({row.id})",
        (row.file, row.line),
        row.gpu,
        row.batch,
        (row.value, one.predicted),
        unit=row.unit,
        kind=f"{row.mode} {row.precision}, {row.gpus} GPU{'s' if row.gpus > 1 else ''}",
        source=row.library or row.framework or "not stated",
        bottleneck=GROUPS["limit"](one),
        family=GROUPS["family"](one),
        version=GROUPS["PyTorch"](one) or "not stated",
        inside=one.inside,
    )


def _collectives(report: CollectiveReport) -> _Compared:
    return _Compared(
        "µs",
        "size [B]",
        [_collective(one) for one in report.scored if one.predicted],
        (
            _Property("kind", "kind"),
            _Property("gpu", "node"),
            _Property("gpus", "GPUs"),
            _Property("source", "timed by"),
            _Property("bottleneck", "algorithm"),
            _Property("link", "link"),
        ),
        _worst_of([_collective(one) for one in report.scored if one.predicted]),
        (),
        [
            _skipped(_collective_name(one), (one.row.file, one.row.line), one.row.place, one.reason)
            for one in report.scored
            if not one.predicted
        ],
        (),
        ("GPUs of one node; rows of several nodes have no prediction, since what joined them is not stated",),
    )


def _collective_name(one: ScoredCollective) -> str:
    return f"{one.row.op} of {bytes_text(one.row.size_bytes)}, {one.row.gpus} GPUs"


def _collective(one: ScoredCollective) -> _Row:
    row, predicted = one.row, one.predicted
    assert predicted is not None
    return _row(
        _collective_name(one),
        (row.file, row.line),
        row.place,
        row.size_bytes,
        (row.time_us, predicted.time_us),
        kind=row.op,
        gpus=str(row.gpus),
        source=row.method,
        bottleneck=f"{predicted.plan.algorithm} {predicted.plan.protocol}",
        link=predicted.route.link,
        inside=None,
    )


def _kernels(report: TraceReport) -> _Compared:
    rows = [_kernel(one) for one in report.scored if one.predicted_us is not None]
    return _Compared(
        "µs",
        "elements of the largest tensor",
        rows,
        (_Property("kind", "kind"), _Property("gpu", "GPU"), _Property("source", "source"), _Property("op", "op")),
        _worst_of(rows),
        (),
        [
            _skipped(f"{one.row.op} {one.row.kind}", (one.row.file, one.row.line), one.row.board, one.reason)
            for one in report.scored
            if one.predicted_us is None
        ],
        tuple(dict.fromkeys(one.row.board for one in report.scored)),
        ("L2 holds nothing of the operands before a kernel of a trace", "a kernel of a trace runs alone"),
    )


def _kernel(one: ScoredKernel) -> _Row:
    row = one.row
    return _row(
        f"{row.op} {' '.join('x'.join(map(str, tensor.shape)) for tensor in row.tensors)}",
        (row.file, row.line),
        row.board,
        max((tensor.elements for tensor in row.tensors), default=1) or 1,
        (row.time_us, one.predicted_us or 0.0),
        kind=row.kind,
        op=row.op,
        source=row.source or "not stated",
        inside=None,
    )


def _skipped(name: str, place: tuple[str, int], gpu: str, reason: str) -> _Row:
    return {"name": name, "place": f"{PurePath(place[0]).name}:{place[1]}", "gpu": gpu, "reason": reason}


def _largest(scored: Sequence[_Any]) -> list[_Any]:
    """Those with the largest errors, the largest first."""
    return sorted(scored, key=lambda one: -abs(one.error_fraction))[:MOST_WORST]


def _worst_of(rows: Sequence[_Row]) -> list[_Row]:
    return sorted(rows, key=lambda row: -abs(row["error_pct"]))[:MOST_WORST]


# Sections ---------------------------------------------------------------------------------------


def _sections(
    one: _Compared, kind: TableKind, report: Mapping[str, Any], request: Request, prefix: str
) -> Iterator[Section]:
    """The sections of one kind of tables; their headings begin with a prefix."""
    printed = [printed_table(table, f"{prefix}{table.title}") for table in kind.tables(report, request)]
    yield Section(f"{prefix}Errors", [_summary(one), *printed])
    if one.rows:
        _colour(one.rows)
        properties = [of for of in one.properties if len({row[of.key] for row in one.rows}) > 1]
        yield Section(f"{prefix}Predicted and measured", [_parity(one, properties), _by_size(one, properties)])
        spreads = [_Spread(of, _groups(one.rows, of)) for of in properties]
        if spreads:
            yield Section(f"{prefix}Where the errors are", [_spread(spread, prefix) for spread in spreads])
        if any(row["inside"] is not None for row in one.rows):
            yield Section(f"{prefix}Intervals", [_coverage(one, spreads, prefix)])
        yield Section(f"{prefix}Largest errors", [_worst(one, prefix)])
        yield Section(f"{prefix}All rows", [_all(one, prefix)])
    if one.skipped:
        columns = (
            Column("name", "row"),
            Column("gpu", "GPU"),
            Column("reason", "reason"),
            Column("place", "table:line"),
        )
        yield Section(
            f"{prefix}No prediction", [Table(columns, one.skipped, f"{prefix}rows without a prediction, and why")]
        )


def _summary(one: _Compared) -> Facts:
    found = errors([row["predicted"] for row in one.rows], [row["measured"] for row in one.rows])
    inside = _inside_pct(one.rows)
    values = (
        ("mean error", found["mape"]),
        ("median error", found["median_ape"]),
        ("nine in ten errors are below", found["p90_ape"]),
        ("bias", found["bias"]),
        (f"in their {COVERAGE_PCT} % interval", inside),
    )
    counted = (("rows", f"{len(one.rows):,}"), ("without a prediction", f"{len(one.skipped):,}"))
    return Facts((*counted, *((name, f"{shown(value, 3)} %") for name, value in values if value is not None)))


def _inside_pct(rows: Sequence[_Row]) -> float | None:
    """Measured values in their intervals, of those that have one [%]."""
    return mean_percent([row["inside"] for row in rows if row["inside"] is not None])


def _colour(rows: Sequence[_Row]) -> None:
    """Give each row what its colour stands for: its kind, where it is one of the most frequent."""
    counts = Counter(row["kind"] for row in rows).most_common()
    named = {kind for kind, _ in (counts if len(counts) <= MOST_COLOURS else counts[: MOST_COLOURS - 1])}
    for row in rows:
        row["colour"] = row["kind"] if row["kind"] in named else OTHERS


def _looks(rows: Sequence[_Row]) -> dict[str, Any]:
    """Channels of the points: a colour and a shape for each kind."""
    counts = Counter(row["colour"] for row in rows)
    domain = sorted(counts, key=lambda name: (name == OTHERS, -counts[name], name))
    looks = charts.series("colour", "kind", domain)
    return {channel: looks[channel] for channel in ("color", "shape")}


def _tooltip(one: _Compared) -> list[charts.Spec]:
    unit = f" [{one.unit}]" if one.unit else ""
    return charts.tips(
        ("name", "row", ""),
        ("gpu", "GPU", ""),
        ("measured", f"measured{unit}", ",.4~g"),
        ("predicted", f"predicted{unit}", ",.4~g"),
        *(() if one.unit else (("unit", "unit", ""),)),
        ("error_pct", "error [%]", "+.3~g"),
        *((of.key, of.title, "") for of in one.properties if of.key != "gpu"),
        ("place", "table:line", ""),
    )


def _chosen(spec: charts.Spec, properties: Sequence[_Property]) -> charts.Spec:
    for of in properties:
        spec = charts.with_choice(spec, of.key, of.title)
    return spec


def _parity(one: _Compared, properties: Sequence[_Property]) -> Chart:
    unit = f"[{one.unit}]" if one.unit else "[unit of the row]"
    x, y = (charts.field(name, f"{name} {unit}", scale=charts.LOG) for name in ("measured", "predicted"))
    spec = charts.scatter(one.rows, x, y, 420, diagonal=True, tooltip=_tooltip(one), **_looks(one.rows))
    text = "Each point is a row. On the dashed line both values are equal. A choice holds for the chart below as well."
    return Chart(_chosen(spec, properties), "Predicted against measured", text)


def _by_size(one: _Compared, properties: Sequence[_Property]) -> Chart:
    """The ratio of both values against a size."""
    x = charts.field("size", one.size, scale=charts.LOG)
    y = charts.field("ratio", "predicted / measured", scale=charts.LOG)
    spec = charts.scatter(one.rows, x, y, 340, tooltip=_tooltip(one), **_looks(one.rows))
    spec["transform"] = [{"calculate": "datum.predicted / datum.measured", "as": "ratio"}]
    spec["layer"].append(charts.rule("y", 1))
    text = f"Predicted over measured value against {one.size}. On the line both are equal."
    return Chart(_chosen(spec, properties), "Errors by size", text)


class _Spread(NamedTuple):
    """How errors are spread in the groups of a property, the largest groups first."""

    of: _Property
    groups: list[_Row]


def _groups(rows: Sequence[_Row], of: _Property) -> list[_Row]:
    found = []
    for name, own in grouped(rows, lambda row: str(row[of.key])):
        metrics = errors([row["predicted"] for row in own], [row["measured"] for row in own])
        signed = [row["predicted"] / row["measured"] - 1 for row in own]
        names = ("mape", "median_ape", "bias")
        metrics = {key: metrics[key] for key in names}
        found.append({"group": name, "rows": len(own), **metrics, **spread(signed), "inside_pct": _inside_pct(own)})
    return sorted(found, key=lambda group: (-group["rows"], group["group"]))


def _spread(spread: _Spread, prefix: str) -> Chart:
    of, groups = spread
    drawn = groups[:MOST_GROUPS]
    tooltip = charts.tips(
        ("group", of.title, ""),
        ("rows", "rows", ",d"),
        ("p50", "median [%]", "+.3~g"),
        ("p25", "quartile [%]", "+.3~g"),
        ("p75", "quartile [%]", "+.3~g"),
        ("p10", "10th percentile [%]", "+.3~g"),
        ("p90", "90th percentile [%]", "+.3~g"),
        ("mape", "mean error [%]", ".3~g"),
    )
    columns = (
        Column("group", of.title),
        Column("rows", "rows"),
        Column("mape", "mean error", "%", 3),
        Column("median_ape", "median error", "%", 3),
        Column("bias", "bias", "%", 3, meaning="Mean of the signed errors"),
        *(Column(f"p{at}", f"p{at}", "%", 3, meaning="Percentile of the signed errors") for at in (10, 25, 50, 75, 90)),
        Column("inside_pct", "in interval", "%", 3),
    )
    left = f" The {MOST_GROUPS} largest of {len(groups)} groups." if len(groups) > MOST_GROUPS else ""
    text = (
        "Line: from the 10th to the 90th percentile of the signed errors. Bar: from the 25th to the 75th. Mark: the "
        f"median. To the right of 0 the predicted value is larger.{left}"
    )
    table = Table(columns, groups, f"{prefix}errors by {of.title}")
    return Chart(charts.spread_bars(drawn, "group", "error [%]", tooltip), f"Errors by {of.title}", text, table)


def _coverage(one: _Compared, spreads: Sequence[_Spread], prefix: str) -> Chart:
    """How many measured values are in the intervals of their predictions."""
    every = {"group": "all", "rows": len(one.rows), "inside_pct": _inside_pct(one.rows)}
    rows = [every] + [
        {"group": f"{of.title}: {group['group']}", "rows": group["rows"], "inside_pct": group["inside_pct"]}
        for of, groups in spreads
        for group in groups[:MOST_GROUPS]
        if group["inside_pct"] is not None
    ]
    y = charts.field("group", "", "nominal", sort=None, axis={"ticks": False, "labelPadding": 6})
    x = charts.field("inside_pct", "measured values in their interval [%]", scale={"domain": [0, 100]})
    tooltip = charts.tips(
        ("group", "rows of", ""), ("rows", "rows", ",d"), ("inside_pct", "in the interval [%]", ".3~g")
    )
    bars = {"mark": {"type": "bar", "opacity": 0.85}, "encoding": {"y": y, "x": x, "tooltip": tooltip}}
    layers = [bars, charts.rule("x", COVERAGE_PCT, dash=(4, 3))]
    spec = charts.spec_of(rows, height=charts.BAR_PX * len(rows), layer=layers)
    columns = (Column("group", "rows of"), Column("rows", "rows"), Column("inside_pct", "in interval", "%", 3))
    text = (
        f"Share of the measured values that are in the {COVERAGE_PCT} % interval of their prediction, of rows that "
        f"have one. Intervals that are right reach the dashed line at {COVERAGE_PCT} %; beyond it they are too wide."
    )
    return Chart(spec, "Coverage of the intervals", text, Table(columns, rows, f"{prefix}coverage of the intervals"))


def _values(one: _Compared) -> list[Column]:
    return [
        Column("name", "row"),
        Column("gpu", "node" if any(of == _Property("gpu", "node") for of in one.properties) else "GPU"),
        Column("measured", "measured", one.unit),
        Column("predicted", "predicted", one.unit),
        *([] if one.unit else [Column("unit", "unit")]),
        Column("error_pct", "error", "%", 3, meaning="Above 0 the predicted value is larger"),
    ]


def _worst(one: _Compared, prefix: str) -> Block:
    bottleneck = [Column(of.key, of.title) for of in one.properties if of.key == "bottleneck"]
    columns = (*_values(one), *bottleneck, *one.causes, Column("place", "table:line"))
    return Table(columns, one.worst, f"{prefix}rows with the largest errors, and what explains their predictions")


def _all(one: _Compared, prefix: str) -> Block:
    others = [Column(of.key, of.title) for of in one.properties if of.key != "gpu"]
    inside = [Column("inside", "in interval")] if any(row["inside"] is not None for row in one.rows) else []
    columns = (*_values(one), *inside, *others, Column("place", "table:line"))
    return Table(columns, one.rows, f"{prefix}every row that has a prediction")
