"""GPUs as objects for JSON and as tables: peaks, values, the source of each value, and what differs between two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.experiment.key_units import unit_of
from gpusim.hardware.gpu import NO_LIMIT
from gpusim.report.calibration_notes import uncalibrated_text
from gpusim.report.text_table import TextTable
from gpusim.specs.load import HOSTS, LIBRARIES

if TYPE_CHECKING:
    from gpusim.hardware.gpu import Gpu
    from gpusim.specs import Provenance, Spec


def gpu_summary(spec: Spec) -> dict[str, Any]:
    """One GPU in short: identity, main metrics, peaks at boost clock."""
    gpu = spec.gpu
    return {
        "name": gpu.name,
        "aliases": list(gpu.aliases),
        "short_names": list(gpu.short_names),
        "architecture": gpu.architecture,
        "compute_capability": gpu.compute_capability,
        "sm_count": gpu.sm.count,
        "boost_mhz": gpu.clock.boost_mhz,
        "dram_gb_per_s": gpu.dram.peak_bandwidth_gb_per_s,
        "dram_gb": gpu.dram.capacity_gb,
        "l2_mib": gpu.l2.capacity_mib,
        "peak_tflops": _peaks(gpu),
        **_calibration(spec),
    }


def _calibration(spec: Spec) -> dict[str, Any]:
    """Whose measured runs the board's values were fitted to, and what a fit without the board makes of its own."""
    name, known = spec.gpu.name, spec.system.confidence
    left_out = next((one for one in known.left_out if one.board == name), None) if known else None
    return {
        "calibrated_on": spec.system.calibrated_on,
        "calibration_boards": list(known.boards) if known else [],
        "measured_rows": known.rows_of(name) if known else 0,
        "measured_by": list(known.sources_of(name)) if known else [],
        "left_out_rows": left_out.rows if left_out else 0,
        "left_out_mape": left_out.mape if left_out else None,
    }


def _peaks(gpu: Gpu) -> dict[str, float]:
    """The fastest instruction's rate at boost clock by data type, unit and sparsity [TFLOP/s, TOP/s]."""
    peaks: dict[str, float] = {}
    for instruction in gpu.instructions.values():
        for dtype in instruction.inputs:
            sparse = "" if instruction.sparsity == "dense" else f" {instruction.sparsity}"
            key = f"{dtype} {instruction.unit}{sparse}"
            peaks[key] = max(peaks.get(key, 0.0), round(gpu.peak_tflops(instruction), 6))
    return peaks


def gpus_tables(summaries: Sequence[Mapping[str, Any]]) -> list[TextTable]:
    """The GPUs, one a line, by architecture and compute capability; then who measured which of them."""
    groups: dict[tuple[tuple[int, ...], str], list[Mapping[str, Any]]] = {}
    for row in summaries:
        capability = tuple(map(int, row["compute_capability"].split(".")))
        groups.setdefault((capability, row["architecture"]), []).append(row)
    cells = {group: [_cells(row) for row in rows] for group, rows in groups.items()}
    every = [_TITLES, *(row for rows in cells.values() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    tables = [
        TextTable(_group_title(groups[group]), _HEADINGS, tuple(_padded(row, widths) for row in cells[group]))
        for group in sorted(groups)
    ]
    measured = [row for group in sorted(groups) for row in groups[group] if row["measured_rows"]]
    body = tuple((row["name"], str(row["measured_rows"]), ", ".join(row["measured_by"])) for row in measured)
    return [*tables, TextTable("Measured runs that values were fitted to or checked with", _BY_WHOM, body)]


_HEADINGS = (
    *("GPU", ">SMs", ">MHz", ">GB", ">GB/s", ">L2 MiB", ">FP32", ">FP16 Tensor"),
    *("calibrated on", ">rows", ">left out %"),
)
_TITLES = tuple(heading.removeprefix(">") for heading in _HEADINGS)
_BY_WHOM = ("GPU", ">rows", "measured by")


def _group_title(rows: Sequence[Mapping[str, Any]]) -> str:
    """An architecture, and how far a fit is off on a board whose rows it has not seen."""
    first = rows[0]
    title = f"{first['architecture'].capitalize()}, compute capability {first['compute_capability']}"
    tested = [row for row in rows if row["left_out_rows"]]
    if not tested:
        return title
    count = sum(row["left_out_rows"] for row in tested)
    mape = sum(row["left_out_rows"] * row["left_out_mape"] for row in tested) / count
    return f"{title}: {mape:.1f} % mean error of GEMMs on a board that the fit left out"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Texts of a GPU; rates at boost clock."""
    peaks = row["peak_tflops"]
    dram = row["dram_gb_per_s"]
    return (
        row["name"],
        str(row["sm_count"]),
        f"{row['boost_mhz']:.0f}",
        f"{row['dram_gb']:g}",
        f"{dram:.0f}" if dram < NO_LIMIT else "-",
        f"{row['l2_mib']:g}",
        *(f"{peaks[key]:.1f}" if key in peaks else "-" for key in ("fp32 cuda", "fp16 tensor")),
        row["calibrated_on"],
        str(row["measured_rows"]) if row["measured_rows"] else "-",
        "-" if row["left_out_mape"] is None else f"{row['left_out_mape']:.1f}",
    )


def _padded(row: Sequence[str], widths: Sequence[int]) -> tuple[str, ...]:
    """Texts of the same width in all tables."""
    return tuple(
        text.rjust(width) if heading.startswith(">") else text.ljust(width)
        for text, width, heading in zip(row, widths, _HEADINGS, strict=True)
    )


def gpu_object(spec: Spec) -> dict[str, Any]:
    """One GPU in full: peaks, and every value with its kind and source."""
    return {
        **gpu_summary(spec),
        "sha256": spec.sha256,
        "library": spec.system.library.name,
        "host": spec.host_name,
        "records": {
            "gpu": spec.gpu.content_hash,
            "library": spec.system.library.content_hash,
            "host": spec.system.host.content_hash,
        },
        "files": [path.name for path in spec.files],
        "peaks_by_instruction": {
            name: round(spec.gpu.peak_tflops(instruction), 6) for name, instruction in spec.gpu.instructions.items()
        },
        "stated_peaks": dict(spec.gpu.stated_peaks),
        "values": {
            key_path: {
                "value": origin.value,
                "kind": origin.kind,
                "spread": origin.spread,
                "source": origin.source,
                "file": _file(origin.file) if origin.file else "",
                "line": origin.line,
            }
            for key_path, origin in spec.provenance.items()
        },
    }


def gpu_tables(spec: Spec) -> list[TextTable]:
    """One GPU as tables: facts, peaks, provenance."""
    gpu, summary = spec.gpu, gpu_summary(spec)
    facts = (
        ("compute capability", f"{gpu.compute_capability} ({gpu.architecture})"),
        ("also called", ", ".join((*gpu.aliases, *gpu.short_names))),
        ("SMs", f"{gpu.sm.count}, each of {gpu.sm.sub_partitions} sub-partitions"),
        (
            "clock",
            f"{gpu.clock.base_mhz:.0f} MHz base, {gpu.clock.boost_mhz:.0f} boost, {gpu.clock.max_mhz:.0f} max",
        ),
        ("shared memory", f"{gpu.shared_memory.capacity_bytes // 1024} KiB an SM"),
        ("L2", f"{gpu.l2.capacity_mib:g} MiB in {gpu.l2.partitions} partition(s)"),
        ("DRAM", f"{gpu.dram.capacity_gb:g} GB {gpu.dram.technology}, {summary['dram_gb_per_s']:.0f} GB/s"),
        ("power", f"{gpu.power.board_limit_w:.0f} W"),
        ("library", f"{spec.system.library.name}: {', '.join(spec.library_record.kernel_catalogues)}"),
        ("host", spec.host_name),
        ("calibrated on", _calibration_text(summary)),
    )
    peaks = []
    for name, instruction in gpu.instructions.items():
        stated = gpu.stated_peaks.get(name)
        peak = f"{gpu.peak_tflops(instruction):.4g}"
        kinds = ", ".join(instruction.inputs)
        peaks.append(
            (name, kinds, instruction.accumulate, instruction.sparsity, peak, f"{stated:g}" if stated else "-")
        )
    headings = ("instruction", "inputs", "accumulate", "sparsity", ">peak TFLOP/s", ">datasheet peak")
    origins = tuple(
        (key_path, _value_text(origin.value), _kind_text(origin), _place(origin), origin.source)
        for key_path, origin in spec.provenance.items()
    )
    return [
        TextTable(gpu.name, ("property", "value"), facts),
        TextTable("Peaks at boost clock (a multiply-add counts as two operations)", headings, tuple(peaks)),
        TextTable("Sources of the values", ("key", "value", "kind", "file", "source"), origins),
    ]


def _calibration_text(summary: Mapping[str, Any]) -> str:
    """Whose measured runs the board's values were fitted to, in words."""
    if summary["calibrated_on"] == "nothing":
        return uncalibrated_text(summary["name"])
    if summary["calibrated_on"] == "architecture":
        return f"{', '.join(summary['calibration_boards'])}, of the same architecture"
    text = f"{summary['measured_rows']} rows of the board, by {', '.join(summary['measured_by'])}"
    if summary["left_out_mape"] is None:
        return text
    return f"{text}; a fit without them misses its GEMMs by {summary['left_out_mape']:.1f} %"


def difference_object(a: Spec, b: Spec) -> dict[str, Any]:
    """The values of two boards that differ: unit, both values, and that of b over that of a where both are numbers.

    A value that one board does not have is None.
    """
    values = {}
    for key_path in dict.fromkeys((*a.provenance, *b.provenance)):
        of_a, of_b = (_value_at(spec, key_path) for spec in (a, b))
        if of_a != of_b:
            values[key_path] = {"unit": unit_of(key_path), "a": of_a, "b": of_b, "ratio": _ratio(of_a, of_b)}
    return {"a": a.gpu.name, "b": b.gpu.name, "values": values}


def difference_table(difference: Mapping[str, Any]) -> TextTable:
    """The values of two boards that differ, one a line."""
    body = tuple(
        (
            key_path,
            row["unit"],
            *("-" if row[side] is None else _value_text(row[side]) for side in ("a", "b")),
            "-" if row["ratio"] is None else f"{row['ratio']:.4g}",
        )
        for key_path, row in difference["values"].items()
    )
    a, b = difference["a"], difference["b"]
    title = f"{len(body)} values differ between {a} and {b}"
    return TextTable(title, ("key", "unit", f">{a}", f">{b}", ">ratio"), body)


def _value_at(spec: Spec, key_path: str) -> object:
    origin = spec.provenance.get(key_path)
    return None if origin is None else origin.value


def _ratio(a: object, b: object) -> float | None:
    """The second over the first; None where one is no number, or the first is 0."""
    if isinstance(a, bool) or isinstance(b, bool):
        return None
    if isinstance(a, int | float) and isinstance(b, int | float) and a:
        return float(f"{b / a:.12g}")
    return None


def _value_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _kind_text(origin: Provenance) -> str:
    """A kind, with the spread of the value: ``measured ±5 %``."""
    return origin.kind if origin.spread is None else f"{origin.kind} ±{100 * origin.spread:g} %"


def _place(origin: Provenance) -> str:
    return f"{_file(origin.file)}:{origin.line}" if origin.file else "--set"


def _file(path: Path) -> str:
    """A file of a spec, with its folder where that says what it states: ``hosts/turing.yaml``."""
    return f"{path.parent.name}/{path.name}" if path.parent.name in (LIBRARIES, HOSTS) else path.name
