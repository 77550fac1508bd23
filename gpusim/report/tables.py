"""Tables for a person: drawn by rich on a terminal, plain columns in a pipe.

A table is a title, headings and rows of text; what it says does not depend on where it is shown.
Human units and fixed digits here; full precision is in JSON and CSV.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from gpusim.experiment.comparison import Row, asked_type, shape_key
from gpusim.prediction.predict import CORES

if TYPE_CHECKING:  # a prediction is printed without NumPy and the math-mode rules
    from rich.table import Table

    from gpusim.hardware.gpu import Gpu
    from gpusim.lowering.plan import Plan
    from gpusim.mathmode.resolve import MathMode
    from gpusim.numerics.study import Study
    from gpusim.prediction.results import Result
    from gpusim.specs.specfile import Provenance, Spec
    from gpusim.workloads.gemm import Gemm

PIPE_GAP = "  "
NOT_SHOWN = "Not shown at this width"
LEAST_TEXT_WIDTH = 12
"""Characters that a column of text keeps where a terminal is narrow; columns of figures keep all of theirs."""
SAMPLE_FIELDS = ("sampled_rows", "m", "sampled_columns", "n")


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings and rows of text; a heading that starts with ``>`` sets its column of figures to the right.

    Columns that are empty in every row are not shown.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...] = ()
    """Headings that a narrow terminal leaves out, in this order."""

    def show(self, stream: TextIO | None = None) -> None:
        """Print to a stream, standard output if None."""
        stream = stream or sys.stdout
        if stream.isatty():
            self._show_rich(stream)
        else:
            stream.write(self.plain() + "\n")

    def plain(self) -> str:
        """Title, headings and rows in aligned columns.

        >>> print(TextTable("GPUs", ("name", ">SMs"), (("T4", "40"), ("A100", "108"))).plain())
        GPUs
        name  SMs
        T4     40
        A100  108
        """
        headings, rows = self._shown()
        titles = tuple(heading.removeprefix(">") for heading in headings)
        widths = [max(len(text) for text in column) for column in zip(titles, *rows, strict=True)]
        lines = [self.title] if self.title else []
        for row in (titles, *rows):
            cells = [
                text.rjust(width) if heading.startswith(">") else text.ljust(width)
                for text, width, heading in zip(row, widths, headings, strict=True)
            ]
            lines.append(PIPE_GAP.join(cells).rstrip())
        return "\n".join(lines)

    def _shown(self, hidden: Sequence[str] = ()) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Headings and rows without some columns, and without those that are empty."""
        kept = [
            at
            for at, heading in enumerate(self.headings)
            if heading not in hidden and (not self.rows or any(row[at] for row in self.rows))
        ]
        return tuple(self.headings[at] for at in kept), [tuple(row[at] for at in kept) for row in self.rows]

    def _show_rich(self, stream: TextIO) -> None:
        from rich.console import Console

        console = Console(file=stream)
        console.print(self.drawn(console.width))

    def drawn(self, width: int) -> Table:
        """For a terminal of so many characters.

        Texts are folded where columns are too many. Then the lines between columns go, then the columns that may be
        left out, which a line below names. Where figures still do not fit, each row is listed as a record.
        """
        from rich.table import Table
        from rich.text import Text

        for count in range(len(self.optional) + 1):
            hidden = self.optional[:count]
            headings, rows = self._shown(hidden)
            for boxed in (True, False):
                lines = 3 * len(headings) + 1 if boxed else 2 * (len(headings) - 1)
                widths = column_widths(headings, rows, width - lines)
                if widths is None:
                    continue
                table = Table(title=Text(self.title) if self.title else None, title_justify="left", header_style="bold")
                if not boxed:
                    table.box, table.pad_edge = None, False
                if hidden:
                    names = ", ".join(heading.removeprefix(">") for heading in hidden)
                    table.caption, table.caption_justify = f"{NOT_SHOWN}: {names}", "left"
                for heading, characters in zip(headings, widths, strict=True):
                    side: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
                    title = Text(heading.removeprefix(">"))
                    table.add_column(title, justify=side, width=characters, overflow="fold")
                for row in rows:
                    table.add_row(*map(Text, row))
                return table
        return self._records()

    def _records(self) -> Table:
        """Every row as a list of its headings and texts."""
        from rich.table import Table
        from rich.text import Text

        headings, rows = self._shown()
        table = Table(title=Text(self.title) if self.title else None, title_justify="left", show_header=False)
        table.add_column()
        table.add_column(overflow="fold")
        for row in rows:
            for heading, text in zip(headings, row, strict=True):
                table.add_row(Text(heading.removeprefix(">")), Text(text))
            table.add_section()
        return table


def column_widths(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Characters of each column of a drawn table, ``width`` in all, or None where they do not fit.

    The widest column is narrowed first; figures keep their width, and headings are folded between words.

    >>> column_widths(("kernel", ">time in us"), [("a" * 40, "12.5")], 23)
    [13, 10]
    >>> column_widths((">time", ">rate"), [("12.25 us", "1234.5")], 13) is None
    True
    """
    widths, least = [], []
    for at, heading in enumerate(headings):
        title, content = heading.removeprefix(">"), max((len(row[at]) for row in rows), default=0)
        longest_word = max(map(len, title.split()), default=0)
        widths.append(max(len(title), content))
        least.append(max(longest_word, content if heading.startswith(">") else min(content, LEAST_TEXT_WIDTH)))
    while sum(widths) > width:
        narrowed = [at for at in range(len(widths)) if widths[at] > least[at]]
        if not narrowed:
            return None
        widths[max(narrowed, key=lambda at: widths[at])] -= 1
    return widths


def time_text(time_us: float) -> str:
    """A duration with four digits in the unit that suits it.

    >>> time_text(12.3456), time_text(1234.5), time_text(2_500_000.0)
    ('12.35 us', '1.234 ms', '2.500 s')
    """
    if time_us < 1e3:
        return f"{_four_digits(time_us)} us"
    if time_us < 1e6:
        return f"{_four_digits(time_us / 1e3)} ms"
    return f"{_four_digits(time_us / 1e6)} s"


def bytes_text(size_bytes: float) -> str:
    """A size in binary units.

    >>> bytes_text(0), bytes_text(3 * 2**20)
    ('0 B', '3.000 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{_four_digits(size_bytes)} {unit}"
        size_bytes /= 1024
    return f"{_four_digits(size_bytes)} TiB"


def shape_text(row: Mapping[str, Any]) -> str:
    """``m x n x k``, with the batch in front where there is one; vectors have no k.

    >>> shape_text({"batch": 8, "m": 1, "n": 2, "k": 3})
    '8 x 1x2x3'
    """
    size = "x".join(str(row[name]) for name in "mnk" if row[name] is not None)
    return size if row["batch"] == 1 else f"{row['batch']} x {size}"


def _four_digits(value: float) -> str:
    decimals = 3 if value < 10 else 2 if value < 100 else 1
    return f"{value:.{decimals}f}"


def _rate_text(result: Result) -> str:
    """Operations a second, and of a 2:4 product those that are executed."""
    unit = "TOP/s" if result.dtype.startswith("int") else "TFLOP/s"
    rate = f"{result.tflops:.2f} {unit}"
    if result.executed_tflops == result.tflops:
        return rate
    return f"{rate} (dense equivalent; {result.executed_tflops:.2f} {unit} executed)"


def _peak_text(result: Result) -> str:
    """The share of the stated peak, and of the peak at the clock of the run where that is another one."""
    unit = "TOP/s" if result.dtype.startswith("int") else "TFLOP/s"
    stated = (
        f"{result.pct_of_peak:.1f} % of {result.peak_tflops:.1f} {unit} (stated at {result.peak_clock_mhz:.0f} MHz)"
    )
    at_clock = result.pct_of_peak * result.peak_clock_mhz / result.clock_mhz
    if round(result.clock_mhz) == round(result.peak_clock_mhz):
        return stated
    return f"{stated}, {at_clock:.1f} % of the peak at {result.clock_mhz:.0f} MHz"


def _shares_text(shares: Mapping[str, float], least: float = 0.005) -> str:
    """Names with their percentages, the largest first, as far as they do not round to nothing.

    >>> _shares_text({"issue": 0.001, "dram": 0.934, "l2": 0.2})
    'dram 93 %, l2 20 %'
    """
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in ordered if share >= least)


def _busy_rows(result: Result) -> list[tuple[str, str]]:
    """Busy shares of the whole GPU, and of its busiest SM where they are others."""
    texts = _shares_text(result.gpu_busy_fractions), _shares_text(result.busy_fractions)
    if texts[0] == texts[1]:
        return [("busy", texts[0])]
    return [("busy, mean SM", texts[0]), ("busy, busiest SM", texts[1])]


def _multiplies_text(result: Result) -> str:
    """The unit that multiplies, and how much of what it executes is padding."""
    padding = 100 * (1.0 - result.useful_fraction)
    return f"on {CORES[result.unit]}, {padding:.1f} % of them padding of tiles"


def result_table(result: Result) -> TextTable:
    """One prediction, a line per figure."""
    shared_l2_dram = (result.shared_bytes, result.l2_bytes, result.dram_bytes)
    rows = [
        ("time", f"{time_text(result.time_us)}, of it {time_text(result.launch_overhead_us)} launch overhead"),
        ("kernel time", f"{time_text(result.kernel_time_us)}, {result.cycles} cycles at {result.clock_mhz:.0f} MHz"),
        ("rate", _rate_text(result)),
        ("peak", _peak_text(result)),
        ("bottleneck", result.bottleneck),
        ("time due to", _shares_text(result.time_shares)),
        *_busy_rows(result),
        ("SMs", f"{result.sms_used} of {result.sm_count} get a CTA"),
        ("multiply-adds", _multiplies_text(result)),
        ("lower bound", f"{time_text(result.bound_us)} (kernel time, closed form)"),
        ("kernel", result.kernel),
        ("grid", f"{_grid(result.grid)} CTAs of {result.threads} threads, split-K {result.split_k}"),
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
    return TextTable(title, ("figure", "value"), tuple(rows))


def comparison_table(results: Sequence[Result]) -> TextTable:
    """Several predictions, one a line; of several GPUs the speedup of each over the first."""
    first = results[0]
    several = len({result.arch for result in results}) > 1
    baselines: dict[tuple[int, ...], Result] = {}
    body = []
    for result in results:
        baseline = baselines.setdefault((result.m, result.n, result.k), result)
        cells = [result.arch, shape_text(asdict(result)), time_text(result.time_us)]
        cells += [f"{baseline.time_us / result.time_us:.2f}"] if several else []
        cells += [f"{result.tflops:.2f}", f"{result.pct_of_peak:.1f}", result.bottleneck, result.kernel]
        body.append(tuple(cells))
    sparsity = "" if first.sparsity == "dense" else f" {first.sparsity}"
    title = f"{first.dtype}{sparsity} {first.layout} ({first.detail}, L2 {first.l2})"
    rate = ">TOP/s" if first.dtype.startswith("int") else ">TFLOP/s"
    speedup = (">speedup",) if several else ()
    headings = ("GPU", ">m x n x k", ">time", *speedup, rate, ">% peak", "bottleneck", "kernel")
    title = f"{title}, speedup over {first.arch}" if several else title
    return TextTable(title, headings, tuple(body), optional=("kernel",))


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
        (str(rank), item.kernel, str(item.split_k), _grid(item.grid), time_text(item.estimate_us))
        for rank, item in enumerate(result.alternatives, 1)
    ]
    of = f" of {shape_text(asdict(result))} on {result.arch}" if named else ""
    return TextTable(
        f"Kernels{of} by the ranking's estimate", (">rank", "kernel", ">split-K", "grid", ">estimate"), tuple(rows)
    )


def experiment_table(title: str, rows: Sequence[Row]) -> TextTable:
    """Every prediction of an experiment."""
    body = [
        (
            row["gpu"],
            row["dtype"],
            row["label"] or row["group"],
            shape_text(row),
            time_text(row["time_us"]),
            f"{row['cycles']}",
            f"{row['tflops']:.2f}",
            f"{row['pct_of_peak']:.1f}",
            row["bottleneck"],
            row["kernel"],
        )
        for row in rows
    ]
    headings = ("GPU", "type", "what", ">m x n x k", ">time", ">cycles", ">TFLOP/s", ">% peak", "bottleneck", "kernel")
    return TextTable(title, headings, tuple(body), optional=("kernel", ">cycles", "what"))


def speedup_table(
    title: str, rows: Sequence[Row], baseline: str, measured: Mapping[tuple[Any, ...], float]
) -> TextTable:
    """Each shape on each GPU that ran it, and how many times faster than the baseline.

    ``measured`` has measured speedups by :func:`~gpusim.experiment.comparison.shape_key` and GPU.
    """
    gpus = list(dict.fromkeys(row["gpu"] for row in rows))
    others = [gpu for gpu in gpus if gpu != baseline]
    by_run: dict[tuple[Any, ...], dict[str, Row]] = {}
    types = list(dict.fromkeys(asked_type(row) for row in rows))
    for row in sorted(rows, key=lambda row: types.index(asked_type(row))):
        by_run.setdefault((shape_key(row), row["layout"], row["detail"], row["l2"]), {})[row["gpu"]] = row
    body = []
    for (key, *_), on in by_run.items():
        first = next(iter(on.values()))
        cells = [asked_type(first), first["label"] or first["group"], shape_text(first)]
        for gpu in (baseline, *others):
            ran = on.get(gpu)
            cells += [time_text(ran["time_us"]), f"{ran['tflops']:.1f}", ran["bottleneck"]] if ran else ["", "", ""]
        for gpu in others:
            seen = measured.get((*key, gpu))
            ratio = f"{on[baseline]['time_us'] / on[gpu]['time_us']:.2f}" if {baseline, gpu} <= set(on) else ""
            cells += [ratio, f"{seen:.2f}" if seen else ""]
        body.append(tuple(cells))
    headings = ["type", "what", ">m x n x k"]
    for gpu in (baseline, *others):
        headings += [f">{gpu}", ">TFLOP/s", "bottleneck"]
    for gpu in others:
        headings += [">speedup" if len(others) == 1 else f">speedup {gpu}", ">measured"]
    return TextTable(title, tuple(headings), tuple(body))


def mathmode_tables(answer: MathMode) -> list[TextTable]:
    """The path, what the user set, what else is worth knowing, and what contradicts."""
    title = f"{answer.op} of {answer.dtype} tensors in {answer.framework} {answer.version} on {answer.arch}"
    undecided = "undecided"
    facts = [
        ("path", answer.path or undecided),
        ("unit", answer.unit or undecided),
        ("accumulate", answer.accumulate or ("none" if answer.path else undecided)),
        ("rule", answer.rule),
        ("", answer.says),
        ("source", answer.source),
        ("library", answer.library or "none"),
    ]
    shown = [TextTable(title, ("what", "value"), tuple(fact for fact in facts if fact[1]))]
    if answer.conflicts:
        clashes = tuple((one.rule, one.says, one.source) for one in answer.conflicts)
        shown.append(TextTable("Contradictions", ("rule", "what it says", "source"), clashes))
    if answer.considered:
        settings = tuple((one.name, one.value, one.effect) for one in answer.considered)
        shown.append(TextTable("Settings", ("name", "value", "effect"), settings))
    if answer.overridden:
        overridden = tuple((one.what, one.rule, one.by) for one in answer.overridden)
        shown.append(TextTable("Overridden", ("what", "rule", "by"), overridden))
    if answer.notes:
        shown.append(TextTable("Notes", ("what", "source"), tuple((one.says, one.source) for one in answer.notes)))
    return shown


def arch_summary(spec: Spec) -> dict[str, Any]:
    """One board in a line: what it is and its peaks at boost clock."""
    arch = spec.gpu
    return {
        "name": arch.name,
        "aliases": list(arch.aliases),
        "short_names": list(arch.short_names),
        "architecture": arch.architecture,
        "compute_capability": arch.compute_capability,
        "sm_count": arch.sm.count,
        "boost_mhz": arch.clock.boost_mhz,
        "dram_gb_per_s": arch.dram.peak_bandwidth_gb_per_s,
        "dram_gb": arch.dram.capacity_gb,
        "l2_mib": arch.l2.capacity_mib,
        "peak_tflops": _peaks(arch),
    }


def _peaks(arch: Gpu) -> dict[str, float]:
    """The fastest instruction's rate at boost clock by data type, unit and sparsity [TFLOP/s, TOP/s]."""
    peaks: dict[str, float] = {}
    for instruction in arch.instructions.values():
        for dtype in instruction.inputs:
            sparse = "" if instruction.sparsity == "dense" else f" {instruction.sparsity}"
            key = f"{dtype} {instruction.unit}{sparse}"
            peaks[key] = max(peaks.get(key, 0.0), round(arch.peak_tflops(instruction), 6))
    return peaks


def archs_table(summaries: Sequence[Mapping[str, Any]]) -> TextTable:
    """The boards, one a line; dense peaks of the Tensor Cores and of the CUDA cores."""
    body = []
    for row in summaries:
        peaks = row["peak_tflops"]
        figures = (f"{peaks[key]:.1f}" if key in peaks else "-" for key in ("fp32 cuda", "fp16 tensor"))
        body.append(
            (
                row["name"],
                row["architecture"],
                row["compute_capability"],
                str(row["sm_count"]),
                f"{row['boost_mhz']:.0f}",
                f"{row['dram_gb']:g}",
                f"{row['dram_gb_per_s']:.0f}",
                f"{row['l2_mib']:g}",
                *figures,
            )
        )
    headings = ("name", "architecture", "cc", ">SMs", ">boost MHz", ">GB", ">GB/s", ">L2 MiB")
    return TextTable("", (*headings, ">FP32 TFLOP/s", ">FP16 Tensor TFLOP/s"), tuple(body))


def arch_object(spec: Spec) -> dict[str, Any]:
    """One board in full: peaks, values and where each comes from."""
    return {
        **arch_summary(spec),
        "sha256": spec.sha256,
        "files": [path.name for path in spec.files],
        "peaks_by_instruction": {
            name: round(spec.gpu.peak_tflops(instruction), 6) for name, instruction in spec.gpu.instructions.items()
        },
        "stated_peaks": dict(spec.gpu.stated_peaks),
        "values": {
            key_path: {
                "value": origin.value,
                "kind": origin.kind,
                "source": origin.source,
                "file": origin.file.name if origin.file else "",
                "line": origin.line,
            }
            for key_path, origin in spec.provenance.items()
        },
    }


def arch_tables(spec: Spec) -> list[TextTable]:
    """One board for a person: facts, peaks, provenance."""
    arch, summary = spec.gpu, arch_summary(spec)
    facts = (
        ("compute capability", f"{arch.compute_capability} ({arch.architecture})"),
        ("also called", ", ".join((*arch.aliases, *arch.short_names))),
        ("SMs", f"{arch.sm.count}, each of {arch.sm.sub_partitions} sub-partitions"),
        (
            "clock",
            f"{arch.clock.base_mhz:.0f} MHz base, {arch.clock.boost_mhz:.0f} boost, {arch.clock.max_mhz:.0f} max",
        ),
        ("shared memory", f"{arch.shared_memory.capacity_bytes // 1024} KiB an SM"),
        ("L2", f"{arch.l2.capacity_mib:g} MiB in {arch.l2.partitions} partition(s)"),
        ("DRAM", f"{arch.dram.capacity_gb:g} GB {arch.dram.technology}, {summary['dram_gb_per_s']:.0f} GB/s"),
        ("power", f"{arch.power.board_limit_w:.0f} W"),
    )
    peaks = []
    for name, instruction in arch.instructions.items():
        stated = arch.stated_peaks.get(name)
        peak = f"{arch.peak_tflops(instruction):.4g}"
        kinds = ", ".join(instruction.inputs)
        peaks.append(
            (name, kinds, instruction.accumulate, instruction.sparsity, peak, f"{stated:g}" if stated else "-")
        )
    headings = ("instruction", "inputs", "accumulate", "sparsity", ">peak TFLOP/s", ">vendor says")
    origins = tuple(
        (key_path, _value_text(origin.value), origin.kind, _place(origin), origin.source)
        for key_path, origin in spec.provenance.items()
    )
    return [
        TextTable(arch.name, ("fact", "value"), facts),
        TextTable("Peaks at boost clock, multiply and add counted as two", headings, tuple(peaks)),
        TextTable("Where each value comes from", ("key", "value", "kind", "file", "source"), origins),
    ]


def numerics_object(
    arch: str, plan: Plan, gemm: Gemm, study: Study, sources: Sequence[str], seed: int
) -> dict[str, Any]:
    """A numerical study with the kernel that was executed and the operands it was executed on."""
    return {
        "arch": arch,
        "m": gemm.m,
        "n": gemm.n,
        "k": gemm.k,
        "dtype": gemm.dtype.value,
        "sparsity": gemm.sparsity,
        "accumulate": gemm.accumulate,
        "kernel": plan.name,
        "instruction": plan.kernel.family.instruction,
        "instruction_k": plan.main.instruction.shape[2],
        "tile_k": plan.kernel.tile_k,
        "warps_k": plan.kernel.warps_k,
        "split_k": plan.split_k,
        "split_k_mode": "" if plan.split_k == 1 else "reduce" if len(plan.launches) > 1 else "in_kernel",
        "a": sources[0],
        "b": sources[1],
        "seed": seed,
        **asdict(study),
    }


def numerics_table(record: Mapping[str, Any]) -> TextTable:
    """A numerical study, a line per figure."""
    lost = "{} (inputs {}, C {})"
    rows = [
        ("largest error", _figure(record["max_abs_error"])),
        ("mean error", _figure(record["mean_abs_error"])),
        ("relative error", f"{_figure(record['relative_error'])}, largest error over mean |C|"),
        ("mean |C|", _figure(record["mean_abs_reference"])),
        ("overflow", lost.format(*(record[name] for name in ("overflow", "overflow_inputs", "overflow_output")))),
        ("underflow", lost.format(*(record[name] for name in ("underflow", "underflow_inputs", "underflow_output")))),
        ("kernel", f"{record['kernel']}, {record['instruction']}, {record['accumulate']} accumulators"),
        (
            "order of k",
            f"{record['instruction_k']} an instruction, tiles of {record['tile_k']}, {record['warps_k']} warp(s), "
            f"split {record['split_k']} {record['split_k_mode']}".rstrip(),
        ),
        ("operands", f"A {record['a']}, B {record['b']}, seed {record['seed']}"),
        ("computed", "{} of {} rows, {} of {} columns of C".format(*(record[name] for name in SAMPLE_FIELDS))),
    ]
    if record["whole_max_abs_error"] is not None:
        whole = (_figure(record["whole_max_abs_error"]), _figure(record["whole_relative_error"]))
        rows.insert(3, ("estimate for all of C", "largest error {}, relative {}".format(*whole)))
    if record["pruning_mean_abs_error"] is not None:
        rows.append(("pruning", f"mean error {_figure(record['pruning_mean_abs_error'])}, not in the errors above"))
    if (record["scale_a"], record["scale_b"]) != (1.0, 1.0):
        rows.append(("scales", f"A {_figure(record['scale_a'])}, B {_figure(record['scale_b'])}"))
    sparsity = "" if record["sparsity"] == "dense" else f" {record['sparsity']}"
    title = f"{record['m']}x{record['n']}x{record['k']} {record['dtype']}{sparsity} on {record['arch']} against float64"
    return TextTable(title, ("figure", "value"), tuple(rows))


def training_table(title: str, rows: Sequence[Row]) -> TextTable:
    """How each run of a training experiment ended."""
    last = {row["run"]: row for row in rows}
    body = tuple(
        (
            run,
            row["dtype"],
            row["weights"],
            str(row["step"] + 1),
            _figure(row["loss"]),
            f"2^{math.log2(row['loss_scale']):g}",
            str(row["skipped_steps"]),
            f"{100 * row['vanished_fraction']:.1f}",
            f"{100 * row['lost_update_fraction']:.1f}",
        )
        for run, row in last.items()
    )
    headings = ("run", "type", "weights", ">steps", ">loss", ">loss scale", ">steps skipped")
    return TextTable(title, (*headings, ">gradients vanished %", ">updates lost %"), body)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _value_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _place(origin: Provenance) -> str:
    return f"{origin.file.name}:{origin.line}" if origin.file else "--set"


def _grid(grid: Sequence[int]) -> str:
    return "x".join(map(str, grid))
