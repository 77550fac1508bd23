"""A numerical study as an object for JSON and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpusim.report.formatting import number_text
from gpusim.report.text_table import TextTable

if TYPE_CHECKING:
    from gpusim.lowering.gemm.plan import GemmPlan
    from gpusim.numerics.study import Study
    from gpusim.system import System
    from gpusim.workloads.gemm import Gemm

SAMPLE_FIELDS = ("sampled_rows", "m", "sampled_columns", "n")


def numerics_object(
    system: System, plan: GemmPlan, gemm: Gemm, study: Study, sources: Sequence[str], seed: int
) -> dict[str, Any]:
    """A numerical study with the kernel that was executed and the operands it was executed on."""
    return {
        "arch": system.gpu.name,
        "overrides": dict(system.overrides),
        "m": gemm.m,
        "n": gemm.n,
        "k": gemm.k,
        "dtype": gemm.dtype.value,
        "sparsity": gemm.sparsity,
        "accumulate": gemm.accumulate,
        "kernel": plan.name,
        "instruction": plan.kernel.family.instruction,
        "instruction_k": plan.instruction.shape[2],
        "tile_k": plan.kernel.tile_k,
        "warps_k": plan.kernel.warps_k,
        "split_k": plan.split_k,
        "split_k_mode": "" if plan.split_k == 1 else "reduce" if len(plan.schedules) > 1 else "in_kernel",
        "a": sources[0],
        "b": sources[1],
        "seed": seed,
        **asdict(study),
    }


def numerics_table(record: Mapping[str, Any]) -> TextTable:
    """A numerical study, a line per metric."""
    lost = "{} (inputs {}, C {})"
    rows = [
        ("largest error", number_text(record["max_abs_error"])),
        ("mean error", number_text(record["mean_abs_error"])),
        ("relative error", f"{number_text(record['relative_error'])}, largest error over mean |C|"),
        ("mean |C|", number_text(record["mean_abs_reference"])),
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
        whole = (number_text(record["whole_max_abs_error"]), number_text(record["whole_relative_error"]))
        rows.insert(3, ("estimate for all of C", "largest error {}, relative {}".format(*whole)))
    if record["pruning_mean_abs_error"] is not None:
        rows.append(("pruning", f"mean error {number_text(record['pruning_mean_abs_error'])}, not in the errors above"))
    if (record["scale_a"], record["scale_b"]) != (1.0, 1.0):
        rows.append(("scales", f"A {number_text(record['scale_a'])}, B {number_text(record['scale_b'])}"))
    sparsity = "" if record["sparsity"] == "dense" else f" {record['sparsity']}"
    title = f"{record['m']}x{record['n']}x{record['k']} {record['dtype']}{sparsity} on {record['arch']} against float64"
    return TextTable(title, ("metric", "value"), tuple(rows))
