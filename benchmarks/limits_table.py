"""How often the bottleneck that a prediction names is what helps most: random operators on all boards.

    python benchmarks/limits_table.py [COUNT [SEED]]

Each operator is predicted again with each resource of its board doubled, as ``gpusim explain`` does it. The bottleneck
is right if its resource, doubled, leaves a time within 2 points of the shortest; or if no resource saves 3 %. The table
has a line for each bottleneck.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from sections import row

from gpusim.execution.cases import OperatorWorkload
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.numbers.formats import Dtype
from gpusim.prediction.limits import LEAST_SAVING, TOLERANCE
from gpusim.prediction.options import Options
from gpusim.prediction.results import Result
from gpusim.specs import list_archs
from gpusim.studies.explain.sensitivities import NAMED, RESOURCES, overrides_of
from gpusim.studies.workload import GpuVariant, without_limits
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import CONVOLUTION_OPS, Convolution, ConvolutionShape
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator
from gpusim.workloads.vector import Elementwise, LayerNorm, Softmax

COUNT, SEED = 300, 11
BALANCED = "balanced"
NO_RESOURCE = {"SM clock"}
"""Not to be named: all of an SM at once."""
BOARDS_WITHOUT = {"teaching"}


@dataclass(frozen=True, slots=True)
class Named:
    """A prediction, and the times with doubled resources over its own."""

    board: str
    operator: Operator
    result: Result
    ratio: float
    """Relative time with the resource that it names doubled."""
    ratios: dict[str, float]

    @property
    def right(self) -> bool:
        """What is named helps most, or nothing helps."""
        best = min(self.ratios.values())
        return best > 1.0 - LEAST_SAVING or self.ratio <= best + TOLERANCE


def random_operators(count: int, seed: int) -> Iterator[tuple[str, OperatorWorkload]]:
    """Boards, and operators on them: half of them GEMMs; sizes are log-uniform."""
    chooser = random.Random(seed)  # noqa: S311 - seeded sampling is not cryptography
    boards = [one.name for one in list_archs() if one.name not in BOARDS_WITHOUT]
    for _ in range(count):
        load = chooser.choice(("sustained", "sustained", "burst"))
        while True:
            board = chooser.choice(boards)
            with suppress(ValueError):
                yield board, OperatorWorkload(_random_operator(chooser, board), Options(load=load))
                break


def _random_operator(chooser: random.Random, board: str) -> Operator:
    def size(least: int, most: int, multiple: int = 1) -> int:
        drawn = math.exp(chooser.uniform(math.log(least), math.log(most)))
        return max(multiple, int(drawn) // multiple * multiple)

    kind = chooser.choice(("gemm", "gemm", "gemm", "vector", "convolution", "attention"))
    if kind == "gemm":
        types = ("fp16", "fp32") if board.startswith("V100") else ("fp16", "fp32", "int8")
        dtype = chooser.choice(types)
        multiple = 16 if dtype == "int8" else chooser.choice((16, 16, 1))
        m, n, k = (size(16, 16384, multiple) for _ in "mnk")
        return Gemm(m, n, k, Dtype(dtype), batch=chooser.choice((1, 1, 1, 16)))
    if kind == "vector":
        rows, columns = size(64, 32768), size(64, 8192)
        operators = (
            Elementwise(rows, columns, Dtype.FP32, chooser.choice(("add", "relu", "gelu"))),
            Softmax(rows, columns, Dtype.FP16),
            LayerNorm(rows, columns, Dtype.FP32),
        )
        return chooser.choice(operators)
    if kind == "convolution":
        pixels, taps = chooser.choice((7, 14, 28, 56, 112)), chooser.choice((1, 3, 3, 5))
        channels, filters = size(16, 512, 16), size(16, 512, 16)
        images = chooser.choice((1, 8, 32, 64))
        shape = ConvolutionShape(images, channels, pixels, pixels, filters, taps, taps, pad=(taps // 2, taps // 2))
        return Convolution(shape, Dtype(chooser.choice(("fp16", "fp32"))), chooser.choice(CONVOLUTION_OPS))
    tokens, heads = size(64, 4096, 64), chooser.choice((8, 16, 32))
    head_dim, causal = chooser.choice((64, 128)), chooser.choice((True, False))
    return Attention(chooser.choice((1, 4, 16)), heads, tokens, tokens, head_dim, Dtype.FP16, causal=causal)


def named_bottlenecks(count: int = COUNT, seed: int = SEED, jobs: int = 1) -> list[Named]:
    """Predict random operators, and again with each resource doubled."""
    drawn = list(random_operators(count, seed))
    service = Service(jobs)
    found = predict_all([GpuVariant(board).case(workload) for board, workload in drawn], service)
    predicted = [(board, workload, one.result) for (board, workload), one in zip(drawn, found, strict=True)]
    kept = [(board, workload, one) for board, workload, one in predicted if isinstance(one, Result)]
    cases, whose = [], []
    for number, (board, workload, result) in enumerate(kept):
        variant = GpuVariant(board)
        changes = {one.name: overrides_of(one, 2.0, variant.spec) for one in RESOURCES if one.name not in NO_RESOURCE}
        together = NAMED.get(result.bottleneck, ())
        changes[""] = {key: value for name in together for key, value in changes[name].items()}
        for name, overrides in changes.items():
            cases.append(variant.with_values(overrides).case(without_limits(workload)))
            whose.append((number, name))
    ratios: list[dict[str, float]] = [{} for _ in kept]
    for (number, name), one in zip(whose, predict_all(cases, service), strict=True):
        if isinstance(one.result, Result):
            ratios[number][name] = one.result.time_us / kept[number][2].time_us
    return [
        Named(board, workload.operator, result, of_one.pop(""), of_one)
        for (board, workload, result), of_one in zip(kept, ratios, strict=True)
    ]


def limits_table(found: list[Named]) -> str:
    """How often each bottleneck is right, as Markdown."""
    lines = [row(("bottleneck", "operators", "helps most, or nothing helps")), "|---|---:|---:|"]
    for name in (*NAMED, BALANCED):
        of_name = [one for one in found if one.result.bottleneck.partition(":")[0] == name]
        if of_name:
            lines.append(row((f"`{name}`", str(len(of_name)), _percent(of_name))))
    return "\n".join([*lines, row(("all", str(len(found)), _percent(found))), ""])


def _percent(found: list[Named]) -> str:
    return f"{100 * sum(one.right for one in found) / len(found):.1f} %"


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:3]]
    print(limits_table(named_bottlenecks(*given)))
