"""Speed of predictions in one process, after imports; metrics as JSON on standard output.

    python benchmarks/speed.py [MEASURED.csv]

With a table of measured runs its shapes are predicted too, beside a list of language-model shapes. All times are CPU
times, and no shape is predicted twice.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from calibration import MANY, Timing, cpu_seconds, loop_seconds, timed, warm_up
from comparison import Measured, Metric

from gpusim.evidence.measured import read_measured
from gpusim.execution.cases import Case
from gpusim.execution.models import ModelWorkload
from gpusim.execution.sweep import predict_one
from gpusim.models.policy import Policy
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.prediction.predict import predict
from gpusim.specs import load_spec
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

BOARD = "A100-SXM4-80GB"
BOARDS = (BOARD, "t4", "v100-sxm2-32gb", "rtx-3090", "h200-sxm-141gb")
TOKENS = (1, 8, 32, 128, 512, 2048, 8192)
LAYERS = ((4096, 4096), (11008, 4096), (4096, 11008), (12288, 4096), (32000, 4096))
"""(n, k) of the layers of a language model with 7 billion parameters."""
SMALL, MIDDLE, HUGE = 512, 4096, 65536
FULL = {1024: 5, 4096: 3, 8192: 1}
"""Size -> repeats."""
COMPILED_FULL = 8192
"""Size that is left to compiled code."""
GEMMS_BETWEEN_LOOPS = 20
WARM_REPEATS = 5
BERT = ModelWorkload("bert_large", Policy(precision="amp-fp16"), sizes={"batch": 8, "seq_len": 512})
RESNET = ModelWorkload("resnet50", Policy(precision="amp-fp16", layout="nhwc"), sizes={"batch": 64})


def main() -> None:
    """Measure, and print the metrics."""
    parser = argparse.ArgumentParser(description="How fast the predictions are.")
    parser.add_argument("measured", nargs="?", type=Path, help="measured CSV whose shapes to predict, too")
    path = parser.parse_args().measured
    warm_up()
    loading = timed(lambda repeat: load_spec(BOARDS[repeat]), len(BOARDS))
    system = load_spec(BOARD).system
    _ = predict(system, cube(1000)), predict(system, cube(250), Options(detail="full"))  # compiles what is compiled
    layers = [Gemm(m, n, k, Dtype.BF16) for m, (n, k) in product(TOKENS, LAYERS)]
    metrics = (
        Metric("loading a board's spec", 1e3 * loading.seconds, "ms", loading.loops),
        *one_gemm(system, layers, "language-model shapes"),
        *(one_gemm(system, shapes_of(path), path.stem) if path else ()),
        *flatness(system),
        *(full(system, size) for size in FULL if size < COMPILED_FULL or os.environ.get("GPUSIM_COMPILED") == "1"),
        *whole_model(system, "BERT large", BERT),
        *whole_model(system, "ResNet-50", RESNET),
    )
    print(Measured(metrics).json())


def shapes_of(path: Path) -> list[Gemm]:
    """The matrix multiplications of a measured table."""
    return [row.operator for row in read_measured(path) if isinstance(row.operator, Gemm)]


def one_gemm(system: System, gemms: Sequence[Gemm], source: str) -> list[Metric]:
    """Times of single predictions, and the share of the ranking in them."""
    seconds, loops = [], []
    for number, gemm in enumerate(gemms):
        if number % GEMMS_BETWEEN_LOOPS == 0:
            loops.append(loop_seconds())
        seconds.append(cpu_seconds(lambda gemm=gemm: predict(system, gemm)))  # type: ignore[misc]
    others = [replace(gemm, dtype=Dtype.FP16, output="", accumulate="") for gemm in gemms]
    ranking = sum(cpu_seconds(lambda gemm=gemm: ranked_gemms(system, gemm)) for gemm in others)  # type: ignore[misc]
    loop = statistics.median(loops)
    *_, ninth_decile = statistics.quantiles(seconds, n=10)
    values = {"median": statistics.median(seconds), "90 % below": ninth_decile}
    return [
        *(Metric(f"one GEMM, {which}: {source}", 1e3 * one, "ms", one / loop) for which, one in values.items()),
        Metric(f"one GEMM, slowest: {source}", 1e3 * max(seconds), "ms"),
        Metric(f"share of the ranking: {source}", 100 * ranking / sum(seconds), "%"),
    ]


def flatness(system: System) -> list[Metric]:
    """Whether the time of a prediction grows with the size."""
    times = {size: time_of_cubes(system, size) for size in (SMALL, MIDDLE, HUGE)}
    ratio = times[HUGE].loops / times[MIDDLE].loops
    return [
        *(Metric(f"one GEMM, {size} cubed", 1e3 * one.seconds, "ms", one.loops) for size, one in times.items()),
        Metric(f"{HUGE} cubed over {MIDDLE} cubed", ratio, "", ratio),
    ]


def time_of_cubes(system: System, size: int) -> Timing:
    """The time of a multiplication of square matrices, the k of each repeat another one."""
    return timed(lambda repeat: predict(system, cube(size, size + 64 * repeat)))


def full(system: System, size: int) -> Metric:
    """Simulation of every CTA on every SM, in k-steps of a CTA a second."""
    steps = k_steps(system, cube(size))
    timing = timed(lambda _: predict(system, cube(size), Options(detail="full")), FULL[size], MANY)
    return Metric(f"full, {size} cubed", steps / timing.seconds, "k-steps/s", timing.loops / steps)


def whole_model(system: System, name: str, step: ModelWorkload) -> list[Metric]:
    """A training step, with no launch known and with all of them known."""
    case = Case(system, step)
    loop = loop_seconds()
    cold = cpu_seconds(lambda: predict_one(case))
    warm = timed(lambda _: predict_one(case), WARM_REPEATS)
    return [
        Metric(f"training step of {name}, no launch known", cold, "s", 2 * cold / (loop + loop_seconds())),
        Metric(f"training step of {name}, all launches known", warm.seconds, "s", warm.loops),
    ]


def k_steps(system: System, gemm: Gemm) -> int:
    """Turns of the main loops of all CTAs."""
    planned = ranked_gemms(system, gemm)[0].plan
    return planned.grid.ctas * planned.main.steps


def cube(size: int, k: int = 0) -> Gemm:
    """A multiplication of square matrices, but for k if it is given."""
    return Gemm(size, size, k or size, Dtype.BF16)


if __name__ == "__main__":
    main()
