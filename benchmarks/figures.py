"""Draws the plots in docs/: of shipped experiments, the warps of the worked example, and microbenchmarks.

python benchmarks/figures.py [--microbenchmarks PUBLISHED.csv]

Without published readings the plot of microbenchmarks stays as it is.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from gpusim.api import case
from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.experiment.loading import open_experiment
from gpusim.figures.microbench_plots import draw_curves
from gpusim.figures.warp_plot import draw_warps
from gpusim.report.warp_spans import WarpSpan, warp_spans
from gpusim.studies.experiments import run
from gpusim.studies.microbench.curves import panels_of
from gpusim.studies.microbench.suite import simulate_published
from gpusim.studies.timeline import MOST_EVENTS, recorded
from gpusim.workloads.short_form import operator_of

ROOT = Path(__file__).resolve().parent.parent
PICTURES = {
    "a100_vs_v100_gemm": {"speedup.png": "a100_vs_v100_speedup.png"},
    "a100_vs_v100_models": {"speedups.png": "a100_vs_v100_models.png"},
    "tf32_paths": {"speedup.png": "tf32_paths.png"},
    "sparse_2to4": {"sparse_speedup.png": "sparse_2to4.png"},
    "mixed_precision_numerics": {"mixed_precision_numerics.png": "mixed_precision_numerics.png"},
    "decode_design_space": {"l2_capacity.png": "decode_l2_capacity.png", "l2_bandwidth.png": "decode_l2_bandwidth.png"},
}
"""Experiment -> its plots and their names in docs/."""
CURVES_OF = "A100-SXM4-80GB"
CURVES = {
    "latency": ("mem_latency_pchase_random",),
    "bandwidth": ("dram_stream_bw", "cache_read_bw_private", "l2_read_bw"),
}
"""Suite -> its microbenchmarks that are drawn: those with published curves."""

EXAMPLE = (
    ("FFMA on CUDA cores", "gemm:32x32x32:fp32:layout=nt"),
    ("MMA on Tensor Cores", "gemm:32x32x32:fp16:layout=nt"),
)
"""Panels of the worked example and their operators."""


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description="Draw the plots of docs/.")
    parser.add_argument("--microbenchmarks", type=Path, metavar="PUBLISHED.csv")
    given = parser.parse_args()
    docs = ROOT / "docs"
    docs.mkdir(exist_ok=True)
    for name, pictures in PICTURES.items():
        out = ROOT / "results" / name
        experiment = open_experiment(name)
        _ = run(experiment, out, service=Service(available_cores()))
        for plot, picture in pictures.items():
            print(f"wrote {shutil.copyfile(out / plot, docs / picture)}")
    warps = docs / "worked_example.png"
    draw_warps([_warps(*one) for one in EXAMPLE], "A 32×32 multiplication, cycle by cycle", warps)
    print(f"wrote {warps}")
    if given.microbenchmarks:
        points = [
            one
            for suite, names in CURVES.items()
            for one in simulate_published(suite, given.microbenchmarks, [CURVES_OF])
            if one.benchmark in names
        ]
        curves = docs / "microbenchmarks.png"
        draw_curves(panels_of(points), "Microbenchmarks: latency and bandwidth", curves)
        print(f"wrote {curves}")


def _warps(name: str, operator: str) -> tuple[str, list[WarpSpan]]:
    """A panel: the warps of one SM of the teaching GPU."""
    _, recorder = recorded(case("teaching", operator_of(operator)), MOST_EVENTS)
    return name, warp_spans(recorder.launches[0])


if __name__ == "__main__":
    main()
