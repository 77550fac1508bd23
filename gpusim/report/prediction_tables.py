"""Tables of predictions: one in full, several side by side, the stall ledger, the ranked kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpusim.confidence import ratio_of
from gpusim.experiment.key_units import heading, short_text
from gpusim.prediction.selection import CORES
from gpusim.report.calibration_notes import uncalibrated, uncalibrated_text
from gpusim.report.formatting import bytes_text, gpu_text, grid_text, interval_text, ratio_text, shares_text, time_text
from gpusim.report.limit_text import limit_text
from gpusim.report.text_table import TextTable

if TYPE_CHECKING:
    from gpusim.prediction.results import KernelTiming, Result, Utilization

INTERVAL = "8 in 10 runs"
NOTABLE_EXCESS, NOTABLE_SHARE = 1.2, 0.5
"""Time that DRAM works over its bound, and its share of the kernel time, from which on a table says what for."""


def predictions_tables(
    results: Sequence[Result],
    values: Sequence[Mapping[str, Any]],
    *,
    explain: bool = False,
    shipped: Result | None = None,
) -> list[TextTable]:
    """One prediction in full or several in comparison.

    Args:
        results: The predictions.
        values: Of each, the values of the spec that vary between them, by key path.
        explain: Whether to add the kernels that were considered.
        shipped: Of one prediction, that on the board as shipped, where values of it are replaced.
    """
    if len(results) > 1:
        tables = [comparison_table(results, values)]
        if any(result.notes for result in results) or uncalibrated(results):
            tables.append(notes_table(results))
    else:
        tables = [result_table(results[0], shipped)]
        counters = results[0].counters
        if counters.warp_cycles:
            tables.append(ledger_table(counters.stall_cycles, counters.warp_cycles))
    return tables + [alternatives_table(result, named=len(results) > 1) for result in results if explain]


def result_table(result: Result, shipped: Result | None = None) -> TextTable:
    """One prediction, a line per metric.

    Args:
        shipped: the prediction on the board as shipped, where values of it are replaced.
    """
    operator, timing, launch, counters = result.operator, result.timing, result.launch, result.counters
    shared_l2_dram = (counters.shared_bytes, counters.l2_bytes, counters.dram_bytes)
    interval = _interval_text(timing)
    rows = [
        ("time", f"{time_text(timing.time_us)}, including {time_text(timing.launch_overhead_us)} launch overhead"),
        *([(INTERVAL, interval)] if interval else []),
        *([("as shipped", _shipped_text(shipped, result))] if shipped else []),
        ("kernel time", f"{time_text(timing.kernel_time_us)}, {timing.cycles} cycles at {timing.clock_mhz:.0f} MHz"),
        ("rate", _rate_text(timing, operator.rate_unit)),
        ("peak", _peak_text(timing, operator.rate_unit)),
        ("bottleneck", limit_text(result) if result.utilization.savings else result.bottleneck),
        ("time breakdown", shares_text(result.utilization.time_shares)),
        *_busy_rows(result.utilization),
        ("SMs", f"{launch.sms_used} of {launch.sm_count} run CTAs"),
        ("multiply-adds", f"on {CORES[launch.unit]}, {100 * (1.0 - launch.useful_fraction):.1f} % tile padding"),
        ("lower bound", f"{time_text(timing.bound_us)} (kernel time, closed form)"),
        ("kernel", launch.kernel),
        ("grid", f"{grid_text(launch.grid)} CTAs of {launch.threads} threads, split-K {launch.split_k}"),
        ("occupancy", f"{launch.occupancy} CTAs an SM, limited by {launch.occupancy_limiter}"),
        ("waves", f"{launch.waves:.2f}"),
        ("traffic", "shared {}, L2 {}, DRAM {}".format(*map(bytes_text, shared_l2_dram))),
        *_dram_rows(result),
        ("L2 hits", f"{100 * counters.l2_hit_fraction:.1f} %"),
        ("power", f"{counters.power_w:.0f} W, {counters.energy_mj:.3g} mJ"),
        *(("note", note) for note in result.notes),
        *(("note", uncalibrated_text(board)) for board in uncalibrated([result])),
    ]
    how = f"({result.detail}, L2 {result.conditions.l2})"
    title = (
        f"{operator.shape} {operator.type_text} {operator.layout} on {gpu_text(result.arch, result.overrides)} {how}"
    )
    return TextTable(title, ("metric", "value"), tuple(rows))


def _dram_rows(result: Result) -> list[tuple[str, str]]:
    """Where DRAM works longer than its bound says, by how much, and what for."""
    busy_us = result.utilization.gpu_busy_fractions.get("dram", 0.0) * result.timing.cycles / result.timing.clock_mhz
    bound_us = result.bounds_us.get("dram", 0.0)
    if not bound_us or busy_us < NOTABLE_EXCESS * bound_us or busy_us < NOTABLE_SHARE * result.kernel_time_us:
        return []
    rate = result.counters.dram_bytes / busy_us * 1e-3
    lost = "operands read again, pages opened for short rows, changes between reads and writes"
    return [("DRAM", f"{busy_us / bound_us:.2f} times its bound, {rate:.0f} GB/s while it works: {lost}")]


def _interval_text(timing: KernelTiming) -> str:
    """What eight in ten such runs take; empty of a lower bound."""
    return interval_text(timing.time_us_p10, timing.time_us_p90, timing.evidence)


def _rate_text(timing: KernelTiming, unit: str) -> str:
    """Operations a second, and of a 2:4 sparse GEMM those that are executed."""
    rate = f"{timing.tflops:.2f} {unit}"
    if timing.executed_tflops == timing.tflops:
        return rate
    return f"{rate} (dense equivalent; {timing.executed_tflops:.2f} {unit} executed)"


def _shipped_text(shipped: Result, result: Result) -> str:
    """The time on the board as shipped, and the ratio to it."""
    ratio = ratio_text(*ratio_of(shipped.timed, result.timed))
    return f"{time_text(shipped.time_us)}; the replaced values make it {ratio} times as fast"


def _peak_text(timing: KernelTiming, unit: str) -> str:
    """The share of the stated peak, and of the peak at the clock of the run where that is another one."""
    stated = (
        f"{timing.pct_of_peak:.1f} % of {timing.peak_tflops:.1f} {unit} (stated at {timing.peak_clock_mhz:.0f} MHz)"
    )
    at_clock = timing.pct_of_peak * timing.peak_clock_mhz / timing.clock_mhz
    if round(timing.clock_mhz) == round(timing.peak_clock_mhz):
        return stated
    return f"{stated}, {at_clock:.1f} % of the peak at {timing.clock_mhz:.0f} MHz"


def _busy_rows(utilization: Utilization) -> list[tuple[str, str]]:
    """Busy shares of the whole GPU, and of its busiest SM where they are others."""
    texts = shares_text(utilization.gpu_busy_fractions), shares_text(utilization.busy_fractions)
    if texts[0] == texts[1]:
        return [("busy", texts[0])]
    return [("busy, mean SM", texts[0]), ("busy, busiest SM", texts[1])]


def comparison_table(results: Sequence[Result], values: Sequence[Mapping[str, Any]]) -> TextTable:
    """Several predictions, one a line; of several GPUs, or values of one, the speedup of each over the first."""
    first = results[0]
    several = bool(values[0]) or len({result.arch for result in results}) > 1
    baselines: dict[tuple[int, ...], Result] = {}
    body = []
    for result, of_gpu in zip(results, values, strict=True):
        operator = result.operator
        baseline = baselines.setdefault((operator.m, operator.n, operator.k), result)
        fixed = {key_path: value for key_path, value in result.overrides.items() if key_path not in of_gpu}
        cells = [
            gpu_text(result.arch, fixed),
            *map(short_text, of_gpu.values()),
            operator.shape,
            time_text(result.time_us),
        ]
        cells += [_interval_text(result.timing)]
        cells += [ratio_text(*ratio_of(baseline.timed, result.timed))] if several else []
        cells += [f"{result.tflops:.2f}", f"{result.timing.pct_of_peak:.1f}", result.bottleneck, result.kernel]
        body.append(tuple(cells))
    title = f"{first.operator.type_text} {first.operator.layout} ({first.detail}, L2 {first.conditions.l2})"
    rate = f">{first.operator.rate_unit}"
    speedup = (">speedup",) if several else ()
    varying = (f">{heading(key_path)}" for key_path in values[0])
    headings = ("GPU", *varying, ">m x n x k", ">time", INTERVAL, *speedup, rate, ">% peak", "bottleneck", "kernel")
    title = (
        f"{title}, speedup over {'the first' if values[0] else gpu_text(first.arch, first.overrides)}"
        if several
        else title
    )
    return TextTable(title, headings, tuple(body), optional=("kernel", INTERVAL))


def notes_table(results: Sequence[Result]) -> TextTable:
    """The notes of several predictions, and of their boards."""
    rows = [
        (gpu_text(result.arch, result.overrides), result.operator.shape, note)
        for result in results
        for note in result.notes
    ]
    rows += [(board, "all", uncalibrated_text(board)) for board in uncalibrated(results)]
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
    of = f" of {result.operator.shape} on {gpu_text(result.arch, result.overrides)}" if named else ""
    return TextTable(
        f"Kernels{of} by the ranking's estimate", (">rank", "kernel", ">split-K", "grid", ">estimate"), tuple(rows)
    )
