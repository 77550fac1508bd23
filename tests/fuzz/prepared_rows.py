"""Made-up result rows for plots, with plausible times."""

from __future__ import annotations

import random

from gpusim.experiment.comparison import Row
from gpusim.experiment.definition import Experiment
from gpusim.numbers.formats import Dtype
from gpusim.report.limit_text import NAMES
from gpusim.sim.causes import Cause

BOTTLENECKS = (*NAMES, "arithmetic", "balanced: l2, dram, power")


def prepared_row(known: Row, gpu: int, rng: random.Random) -> Row:
    """A whole result row from what is known before it is predicted."""
    dtype = Dtype(known["dtype"])
    peak = (15.7, 19.5, 8.1, 67.0, 35.6, 50.0)[gpu % 6] * (1 if dtype.bits >= 32 else 4)
    bandwidth = (900.0, 1555.0, 320.0, 3352.0, 936.0, 2039.0)[gpu % 6]
    flops = 2.0 * known["batch"] * known["m"] * known["n"] * known["k"]
    moved = known["m"] * known["k"] + known["k"] * known["n"] + known["m"] * known["n"]
    time_us = 2.0 + 1.2 * max(flops / peak / 1e6, known["batch"] * moved * dtype.bits / 8 / bandwidth / 1e3)
    time_us *= rng.uniform(0.8, 1.3) * (0.6 if known["sparsity"] == "2:4" else 1.0)
    cycles = max(200, round(time_us * 1400))
    parts = {cause.value: rng.randrange(10, 4000) for cause in Cause if rng.random() < 0.8}
    parts = parts or {Cause.MATH.value: 1}
    if known["detail"] == "bound":
        parts = {}
    rates = {"tflops": flops / time_us / 1e6, "peak_tflops": peak, "dram_peak_gb_per_s": bandwidth}
    bits = {"element_bits": dtype.bits, "output_bits": dtype.output_bits}
    ledger = {"cycles": cycles, "stall_cycles": parts, "warp_cycles": sum(parts.values())}
    power = {"clock_mhz": 1410.0, "power_w": rng.uniform(60, 400), "energy_mj": time_us * rng.uniform(0.1, 0.4)}
    traffic = {"pct_of_peak": rng.uniform(0, 100), "l2_hit_fraction": rng.random(), "dram_bytes": moved * 2}
    doubt = {"time_us_p10": time_us * rng.uniform(0.7, 1.0), "time_us_p90": time_us * rng.uniform(1.0, 1.4)}
    said = {"load": "sustained", "bottleneck": rng.choice(BOTTLENECKS)}
    return {**known, **rates, **bits, **ledger, **power, **traffic, **doubt, **said, "time_us": time_us}


def prepared_rows(experiment: Experiment, seed: int = 0) -> list[Row]:
    """A row for every case of an experiment."""
    rng = random.Random(seed)
    labels = list(experiment.specs)
    return [prepared_row(case.row(), labels.index(case.gpu), rng) for case in experiment.cases()]
