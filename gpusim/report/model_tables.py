"""Tables of predicted models: one in full, several side by side; its operators, what limits it, its phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusim.report.calibration_notes import uncalibrated, uncalibrated_tables, uncalibrated_text
from gpusim.report.formatting import gpu_text, shares_text, time_text
from gpusim.report.text_table import TextTable
from gpusim.step.model import ModelResult
from gpusim.units import GIB

MOST_OPERATORS = 20
"""Shown of a model; JSON has all."""
NO_LAYER = "(no layer)"
"""Calls of a captured model outside of its modules."""


def model_tables(results: Sequence[ModelResult]) -> list[TextTable]:
    """One prediction in full, or several in comparison."""
    if len(results) > 1:
        return [comparison_table(results), *uncalibrated_tables(uncalibrated(results))]
    return [model_table(results[0]), operators_table(results[0])]


def model_table(result: ModelResult) -> TextTable:
    """One prediction, a line per metric."""
    step = result.step
    rows = (
        ("step", f"{time_text(step.step_us)}, {step.kernels:.0f} kernels"),
        ("8 in 10 runs", f"{time_text(result.step_us_p10)} to {time_text(result.step_us_p90)}"),
        ("throughput", f"{result.throughput:.4g} {result.unit}"),
        ("rate", f"{step.tflops:.2f} TFLOP/s, {_tensor_cores(result)}"),
        ("time breakdown", shares_text(step.time_shares())),
        ("twice as good saves", shares_text(step.savings(), least=0.01) or "less than 1 % by any resource"),
        *([("host-bound", _host_bound(result))] if step.is_host_bound else []),
        *([("communication", _communication(result))] if result.gpus > 1 else []),
        ("phases", _phases(result)),
        ("layers", _times(step.times_by(lambda one: one.task.name.split(".")[0] or NO_LAYER), step.step_us)),
        ("memory", f"{result.memory_gib:.2f} GiB" + ("" if result.fits else ", more than the GPU has")),
        *([("fusion", _fusion(result))] if result.fusion_saves_bytes else []),
        *([("simulated as copies", _unmodelled(result))] if result.unmodelled else []),
        ("clock", f"{step.clock_mhz:.0f} MHz"),
        ("power", f"{step.power_w:.0f} W, {step.energy_j:.3g} J a step"),
        *(("note", note) for note in result.notes),
        *(("note", uncalibrated_text(board)) for board in uncalibrated([result])),
    )
    return TextTable(step_title(result), ("metric", "value"), rows)


def step_title(result: ModelResult) -> str:
    """The step that is predicted, and where."""
    gpu = gpu_text(result.step.arch, result.overrides)
    where = gpu if result.gpus == 1 else f"{result.gpus} {gpu}"
    return _title(result, f" in {result.policy.precision} on {where}")


def step_of_each_title(result: ModelResult) -> str:
    """The step that is predicted on several GPUs in turn."""
    return _title(result, f" in {result.policy.precision}{_of_each(result)}")


def _host_bound(result: ModelResult) -> str:
    """How long the GPU waits for the host, and what would spare it that."""
    remedy = "" if result.as_graph_us is None else f"; as a CUDA graph {time_text(result.as_graph_us)} a step"
    return f"the GPU waits for the host for {100 * result.step.host_fraction:.0f} % of the step{remedy}"


def _unmodelled(result: ModelResult) -> str:
    """Calls without a kernel model, with their share of the bytes."""
    shares = (f"{name} {100 * share:.2g} %" for name, share in result.unmodelled.items())
    return f"{', '.join(shares)} of the bytes: calls that have no kernel model"


def _phases(result: ModelResult) -> str:
    """Kernel time by phase, and the time without kernels, which belongs to none."""
    step = result.step
    times_us: dict[str, float] = {"idle": step.idle_fraction * step.step_us}
    times_us.update(step.times_by(lambda one: one.task.phase))
    return _times(times_us, step.step_us)


def _tensor_cores(result: ModelResult) -> str:
    """How busy they are, or that a precision that is meant for them does not reach them on this GPU."""
    precision = result.policy.precision
    if result.tensor_active_pct or precision == "fp32" or not result.step.tflops:
        return f"Tensor Cores active {result.tensor_active_pct:.1f} %"
    return f"no Tensor Cores: they do not multiply {precision} here ('gpusim mathmode' says what does)"


def _fusion(result: ModelResult) -> str:
    """What fused kernels spare."""
    return f"saves {result.fusion_saves_bytes / GIB:.3g} GiB of reads and writes of tensors a step"


def _communication(result: ModelResult) -> str:
    """What several GPUs exchange, and how much of it kernels do not hide."""
    step = result.step
    return f"{time_text(step.communication_us)}, of which {time_text(step.exposed_us)} while no kernel computes"


def operators_table(result: ModelResult) -> TextTable:
    """The operators that take most time."""
    operators = result.step.operators()
    rows = tuple(
        (
            one.name or NO_LAYER,
            one.op,
            one.shape,
            f"{one.count:.0f}",
            time_text(one.time_us),
            f"{100 * one.share:.1f}",
            one.bottleneck,
            one.kernel,
        )
        for one in operators[:MOST_OPERATORS]
    )
    shown = "Operators" if len(operators) <= MOST_OPERATORS else f"{MOST_OPERATORS} of {len(operators)} operators"
    headings = ("first layer", "op", ">shape", ">count", ">time", ">% of step", "bottleneck", "kernel")
    return TextTable(f"{shown}, summed over all their calls in the step", headings, rows, optional=("kernel",))


def comparison_table(results: Sequence[ModelResult]) -> TextTable:
    """Several predictions, one a line, with the speedup of each over the first."""
    first = results[0]
    rows = tuple(
        (
            gpu_text(one.step.arch, one.overrides),
            one.policy.precision,
            str(one.graph.sizes["batch"]),
            time_text(one.step.step_us),
            f"{time_text(one.step_us_p10)} to {time_text(one.step_us_p90)}",
            f"{one.throughput:.4g}",
            f"{one.throughput / first.throughput:.2f}",
            f"{one.step.tflops:.1f}",
            f"{one.tensor_active_pct:.1f}",
            f"{100 * one.step.idle_fraction:.1f}",
            "" if one.as_graph_us is None else time_text(one.as_graph_us),
            f"{one.memory_gib:.1f}" + ("" if one.fits else " (does not fit)"),
        )
        for one in results
    )
    headings = ("GPU", "precision", ">batch", ">step", "8 in 10 runs", f">{first.unit}", ">speedup", ">TFLOP/s")
    more = (">Tensor active %", ">idle %", ">as a CUDA graph", ">memory GiB")
    return TextTable(_title(first, _of_each(first)), (*headings, *more), rows)


def _of_each(result: ModelResult) -> str:
    return f" on {result.gpus} of each GPU" if result.gpus > 1 else ""


def _title(result: ModelResult, how: str) -> str:
    sizes = ", ".join(f"{name} {result.graph.sizes[name]}" for name in _NAMED if name in result.graph.sizes)
    what = "training" if result.policy.mode == "train" else "inference"
    micro = f", {result.options.accumulation} passes an update" if result.options.accumulation > 1 else ""
    return f"{result.graph.name}, {what}{how}: {sizes}{micro}"


_NAMED = ("batch", "beam", "seq_len", "source_len", "target_len", "translated", "generated", "chunk", "image_size")
"""Sizes that a title states."""


def _times(times_us: Mapping[str, float], step_us: float) -> str:
    return shares_text({name: time_us / step_us for name, time_us in times_us.items()})
