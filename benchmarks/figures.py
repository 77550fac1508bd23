"""Draws the plots in docs/: of shipped experiments, and of microbenchmarks.

python benchmarks/figures.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.experiment.loading import open_experiment
from gpusim.figures.microbench_plots import draw_curves
from gpusim.studies.experiments import run
from gpusim.studies.microbench.curves import panels_of
from gpusim.studies.microbench.suite import simulate_defaults

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


def main() -> None:
    """Draw all of them."""
    docs = ROOT / "docs"
    docs.mkdir(exist_ok=True)
    for name, pictures in PICTURES.items():
        out = ROOT / "results" / name
        experiment = open_experiment(name)
        _ = run(experiment, out, service=Service(available_cores()))
        for plot, picture in pictures.items():
            print(f"wrote {shutil.copyfile(out / plot, docs / picture)}")
    curves = docs / "microbenchmarks.png"
    draw_curves(panels_of(simulate_defaults("bandwidth", "A100-SXM4-80GB")), "Microbenchmarks: bandwidth", curves)
    print(f"wrote {curves}")


if __name__ == "__main__":
    main()
