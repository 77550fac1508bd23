"""The README's table of how fast gpusim is, from the metrics of the last benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comparison import Metric
from provenance import describe

ROWS = {
    "one GEMM on an A100 after imports, kernel chosen: median": "one GEMM, median: ",
    "90 % below": "one GEMM, 90 % below: ",
    "slowest": "one GEMM, slowest: ",
    "time of 65536 cubed over that of 4096 cubed": "65536 cubed over 4096 cubed",
    "random shapes on V100, T4 and A100, two worker processes": "sweep, 2 workers: ",
    "CPU time of a random shape": "sweep, CPU time of a shape: ",
    "peak memory of a worker": "sweep, peak memory of the largest worker: ",
    "the same shapes with `--detail estimate`": "estimate: sweep, 2 workers: ",
    "CPU time of one": "estimate: sweep, CPU time of a shape: ",
    "peak memory of its worker": "estimate: sweep, peak memory of the largest worker: ",
    "`--detail full`, 1024 cubed": "full, 1024 cubed",
    "`--detail full`, 4096 cubed": "full, 4096 cubed",
    "`--detail full`, 8192 cubed": "full, 8192 cubed",
    "training step of BERT large on an A100, one core: no launch known": "training step of BERT large, no launch",
    "all launches known": "training step of BERT large, all launches",
    "training step of ResNet-50 on an A100, one core: no launch known": "training step of ResNet-50, no launch",
    "all its launches known": "training step of ResNet-50, all launches",
    "`gpusim gemm` as a process": "start of gpusim gemm, wall time",
    "`gpusim model bert_large --precision amp-fp16` as a process, no launch known: CPU time": (
        "gpusim model bert_large, CPU time"
    ),
    "the same with `--precision tf32`": "gpusim model bert_large in TF32, CPU time",
    "`gpusim model resnet50 --arch v100 --arch a100 --allow-oom` as a process: wall time": (
        "gpusim model resnet50 on two boards, wall time"
    ),
    "that command again": "gpusim model resnet50 on two boards, again, wall time",
    "`gpusim explain gemm:4096x4096x4096:fp16 --arch a100` as a process: wall time": (
        "gpusim explain of a GEMM, wall time"
    ),
    "this command again": "gpusim explain of a GEMM, again, wall time",
    "`gpusim explain bert_large --arch a100` as a process: wall time": "gpusim explain of BERT large, wall time",
}
"""Row of the table -> what the name of its metric begins with."""
ELSEWHERE = """\
Others, by their own figures: LLMCompass simulates GPT-3 175B on four A100s within 16 minutes, 26,400 rounds of its
search for a mapping included ([ISCA 2024](https://arxiv.org/abs/2312.03134)); cycle-level simulation with Accel-Sim
takes more than five days for some workloads ([CAMS 2024](https://arxiv.org/abs/2502.14691)).
"""


def speed_table(report: Mapping[str, Any]) -> str:
    """Figures of both drivers, other programs, and what it was measured on."""
    metrics = {name: Metric(name, one["value"], one["unit"]) for name, one in report["figures"].items()}
    modes = {"": "SimPy", "compiled: ": "compiled"}
    shown = [mode for mode in modes if any(name.startswith(mode) for name in metrics)]
    lines = [" | ".join(("", "", *(modes[mode] for mode in shown), "")).strip(), "|---" + "|---:" * len(shown) + "|"]
    for title, prefix in ROWS.items():
        cells = [_last(metrics, mode + prefix) for mode in shown]
        if any(cells):
            lines.append(" | ".join(("", title, *cells, "")).strip())
    when = f"Measured on {report['date']} at {report['commit']}: {describe(report['machine'])}."
    return "\n".join([*lines, "", ELSEWHERE, when, ""])


def _last(metrics: Mapping[str, Metric], prefix: str) -> str:
    """The last metric of that name: of a measured table's shapes, where there is one."""
    return next((metrics[name].text for name in reversed(list(metrics)) if name.startswith(prefix)), "")
