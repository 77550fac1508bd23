"""Tables of predictions: one in full, several side by side, the stall ledger, the ranked kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpusim.experiment.key_units import heading, short_text
from gpusim.numbers.formats import FORMATS
from gpusim.prediction.selection import CORES
from gpusim.report.formatting import bytes_text, grid_text, interval_text, shape_text, shares_text, time_text
from gpusim.report.text_table import TextTable

if TYPE_CHECKING:
    from gpusim.prediction.results import Result

INTERVAL = "8 in 10 runs"


def predictions_tables(
    results: Sequence[Result], values: Sequence[Mapping[str, Any]], *, explain: bool = False
) -> list[TextTable]:
    """One prediction in full or several in comparison.

    Args:
        results: The predictions.
        values: Of each, the values of the spec that vary between them, by key path.
        explain: Whether to add the kernels that were considered.
    """
    if len(results) > 1:
        tables = [comparison_table(results, values)]
        if any(result.notes for result in results):
            tables.append(notes_table(results))
    else:
        tables = [result_table(results[0])]
        if results[0].warp_cycles:
            tables.append(ledger_table(results[0].stall_cycles, results[0].warp_cycles))
    return tables + [alternatives_table(result, named=len(results) > 1) for result in results if explain]


def result_table(result: Result) -> TextTable:
    """One prediction, a line per metric."""
    shared_l2_dram = (result.shared_bytes, result.l2_bytes, result.dram_bytes)
    rows = [
        ("time", f"{time_text(result.time_us)}, including {time_text(result.launch_overhead_us)} launch overhead"),
        *_interval_rows(result),
        ("kernel time", f"{time_text(result.kernel_time_us)}, {result.cycles} cycles at {result.clock_mhz:.0f} MHz"),
        ("rate", _rate_text(result)),
        ("peak", _peak_text(result)),
        ("bottleneck", result.bottleneck),
        ("time breakdown", shares_text(result.time_shares)),
        *_busy_rows(result),
        ("SMs", f"{result.sms_used} of {result.sm_count} run CTAs"),
        ("multiply-adds", _multiplies_text(result)),
        ("lower bound", f"{time_text(result.bound_us)} (kernel time, closed form)"),
        ("kernel", result.kernel),
        ("grid", f"{grid_text(result.grid)} CTAs of {result.threads} threads, split-K {result.split_k}"),
        ("occupancy", f"{result.occupancy} CTAs an SM, limited by {result.occupancy_limiter}"),
        ("waves", f"{result.waves:.2f}"),
        ("traffic", "shared {}, L2 {}, DRAM {}".format(*map(bytes_text, shared_l2_dram))),
        ("L2 hits", f"{100 * result.l2_hit_fraction:.1f} %"),
        ("power", f"{result.power_w:.0f} W, {result.energy_mj:.3g} mJ"),
        *(("note", note) for note in result.notes),
    ]
    shape = shape_text({"batch": result.batch, "m": result.m, "n": result.n, "k": result.k})
    sparsity = "" if result.sparsity == "dense" else f" {result.sparsity}"
    title = f"{shape} {result.dtype}{sparsity} {result.layout} on {result.arch} ({result.detail}, L2 {result.l2})"
    return TextTable(title, ("metric", "value"), tuple(rows))


def _interval_rows(result: Result) -> list[tuple[str, str]]:
    """What eight in ten such runs take; a lower bound has none."""
    interval = interval_text(result.time_us_p10, result.time_us_p90, result.evidence)
    return [(INTERVAL, interval)] if interval else []


def _rate_text(result: Result) -> str:
    """Operations a second, and of a 2:4 sparse GEMM those that are executed."""
    unit = FORMATS[result.dtype].rate_unit
    rate = f"{result.tflops:.2f} {unit}"
    if result.executed_tflops == result.tflops:
        return rate
    return f"{rate} (dense equivalent; {result.executed_tflops:.2f} {unit} executed)"


def _peak_text(result: Result) -> str:
    """The share of the stated peak, and of the peak at the clock of the run where that is another one."""
    unit = FORMATS[result.dtype].rate_unit
    stated = (
        f"{result.pct_of_peak:.1f} % of {result.peak_tflops:.1f} {unit} (stated at {result.peak_clock_mhz:.0f} MHz)"
    )
    at_clock = result.pct_of_peak * result.peak_clock_mhz / result.clock_mhz
    if round(result.clock_mhz) == round(result.peak_clock_mhz):
        return stated
    return f"{stated}, {at_clock:.1f} % of the peak at {result.clock_mhz:.0f} MHz"


def _busy_rows(result: Result) -> list[tuple[str, str]]:
    """Busy shares of the whole GPU, and of its busiest SM where they are others."""
    texts = shares_text(result.gpu_busy_fractions), shares_text(result.busy_fractions)
    if texts[0] == texts[1]:
        return [("busy", texts[0])]
    return [("busy, mean SM", texts[0]), ("busy, busiest SM", texts[1])]


def _multiplies_text(result: Result) -> str:
    """The unit that multiplies, and how much of what it executes is padding."""
    padding = 100 * (1.0 - result.useful_fraction)
    return f"on {CORES[result.unit]}, {padding:.1f} % tile padding"


def comparison_table(results: Sequence[Result], values: Sequence[Mapping[str, Any]]) -> TextTable:
    """Several predictions, one a line; of several GPUs, or values of one, the speedup of each over the first."""
    first = results[0]
    several = bool(values[0]) or len({result.arch for result in results}) > 1
    baselines: dict[tuple[int, ...], Result] = {}
    body = []
    for result, of_gpu in zip(results, values, strict=True):
        baseline = baselines.setdefault((result.m, result.n, result.k), result)
        interval = interval_text(result.time_us_p10, result.time_us_p90, result.evidence)
        cells = [result.arch, *map(short_text, of_gpu.values()), shape_text(asdict(result)), time_text(result.time_us)]
        cells += [interval]
        cells += [f"{baseline.time_us / result.time_us:.2f}"] if several else []
        cells += [f"{result.tflops:.2f}", f"{result.pct_of_peak:.1f}", result.bottleneck, result.kernel]
        body.append(tuple(cells))
    sparsity = "" if first.sparsity == "dense" else f" {first.sparsity}"
    title = f"{first.dtype}{sparsity} {first.layout} ({first.detail}, L2 {first.l2})"
    rate = f">{FORMATS[first.dtype].rate_unit}"
    speedup = (">speedup",) if several else ()
    varying = (f">{heading(key_path)}" for key_path in values[0])
    headings = ("GPU", *varying, ">m x n x k", ">time", INTERVAL, *speedup, rate, ">% peak", "bottleneck", "kernel")
    title = f"{title}, speedup over {'the first' if values[0] else first.arch}" if several else title
    return TextTable(title, headings, tuple(body), optional=("kernel", INTERVAL))


def notes_table(results: Sequence[Result]) -> TextTable:
    """The notes of several predictions."""
    rows = [(result.arch, shape_text(asdict(result)), note) for result in results for note in result.notes]
    return TextTable("Notes", ("GPU", ">m x n x k", "note"), tuple(rows))


def ledger_table(stall_cycles: Mapping[str, int], warp_cycles: int, title: str = "") -> TextTable:
    """Where the warps' cycles went, the greatest share first; the last line is their sum."""
    spent = sorted(((cause, cycles) for cause, cycles in stall_cycles.items() if cycles), key=lambda item: -item[1])
    rows = [(cause, str(cycles), f"{100 * cycles / warp_cycles:.1f}") for cause, cycles in spent]
    total = sum(stall_cycles.values())
    share = f"{100 * total / warp_cycles:.1f}" if warp_cycles else "-"
    return TextTable(
        title or "Warp cycles by cause", ("cause", ">warp cycles", ">%"), (*rows, ("all", str(total), share))
    )


def alternatives_table(result: Result, *, named: bool = False) -> TextTable:
    """The ranking of the kernel choice, best first; ``named`` for tables of several predictions."""
    rows = [
        (str(rank), item.kernel, str(item.split_k), grid_text(item.grid), time_text(item.estimate_us))
        for rank, item in enumerate(result.alternatives, 1)
    ]
    of = f" of {shape_text(asdict(result))} on {result.arch}" if named else ""
    return TextTable(
        f"Kernels{of} by the ranking's estimate", (">rank", "kernel", ">split-K", "grid", ">estimate"), tuple(rows)
    )
