"""Random products on all boards: twice the size is not faster, twice the DRAM bandwidth is not slower.

``python tests/fuzz/monotone.py --count 4000 --seed 1`` prints each violation and ends with status 1 if there is one.
Three things are not violations:

* Up to 2 %, or one DRAM latency for each CTA that an SM runs in turn: requests are served in the order in which they
  arrive, and where a change brings them in another order, a CTA may wait for one round trip more, as in any list
  schedule (Graham's anomalies).
* What alignment explains. A leading dimension of 7 halves is read in pieces of 2 bytes, one of 14 in pieces of 4: a
  size that is a leading dimension is doubled only where its rows are aligned to the widest access, 16 bytes, already.
* What a library passes over. Where the larger product runs on another kernel or split, and the smaller one would be as
  fast on it, its library prefers a slower kernel for the smaller product. Libraries do: on a V100 FP16 products of
  32 x 28 x 65536 took 42 us, of 32 x 54 x 65536 31 us (microsoft/apex_plus). These are counted.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import harness

from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.prediction.timing import time_plan
from gpusim.specs import Spec, list_archs, load_spec, with_overrides
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

TOLERANCE = 0.02
LARGEST = 8192
WIDEST_ACCESS_BITS = 128
DRAM = "dram.peak_bandwidth_gb_per_s"


@dataclass(frozen=True)
class Doubling:
    """One product before and after something doubled."""

    board: str
    gemm: Gemm
    options: Options
    what: str
    before: Result
    after: Result

    @property
    def ratio(self) -> float:
        return self.after.kernel_time_us / self.before.kernel_time_us

    @property
    def slack_us(self) -> float:
        latency_us = board(self.board).gpu.dram.latency_ns * 1e-3
        return max(TOLERANCE * self.before.kernel_time_us, math.ceil(self.before.launch.waves) * latency_us)

    @property
    def surprises(self) -> bool:
        gain_us = self.before.kernel_time_us - self.after.kernel_time_us
        return -gain_us > self.slack_us if self.what == DRAM else gain_us > self.slack_us

    @property
    def chosen(self) -> bool:
        """The smaller product would be as fast on the larger one's kernel and split, or cannot run on it."""
        launched = self.after.kernel, self.after.launch.split_k
        if self.what == DRAM or launched == (self.before.kernel, self.before.launch.split_k):
            return False
        arch = board(self.board).system
        for one in ranked_gemms(arch, self.gemm, self.options):
            if (one.plan.name, one.plan.split_k) == launched:
                time_us = time_plan(arch, one.plan, self.options).kernel_time_us
                return time_us <= self.after.kernel_time_us + self.slack_us
        return True

    def __str__(self) -> str:
        gemm = self.gemm
        return (
            f"{self.board} {gemm.batch}x {gemm.m}x{gemm.n}x{gemm.k} {gemm.dtype.value} {gemm.layout} {gemm.order} "
            f"{self.options.l2}: 2 {self.what}: {self.before.kernel_time_us:.2f} -> {self.after.kernel_time_us:.2f} us "
            f"(x {self.ratio:.3f}), {self.before.kernel} /{self.before.launch.split_k} -> "
            f"{self.after.kernel} /{self.after.launch.split_k}"
        )


@cache
def board(name: str) -> Spec:
    return load_spec(name)


@cache
def faster_memory(name: str) -> System:
    arch = board(name).system
    return with_overrides(board(name), {DRAM: 2 * arch.gpu.dram.peak_bandwidth_gb_per_s}).system


@cache
def paths(name: str) -> list[tuple[Dtype, str]]:
    """Dense types that a board multiplies, with the layouts that their kernels read."""
    arch = board(name).system
    found = {
        (dtype, layout): None
        for kernel in arch.library.kernels
        for dtype in kernel.family.inputs
        for layout in kernel.layouts
        if arch.gpu.instructions[kernel.family.instruction].sparsity == "dense"
    }
    return list(found)


def size(random_: random.Random) -> int:
    """Vectors, powers of two, and any."""
    kind = random_.random()
    if kind < 0.15:
        return random_.randint(1, 4)
    if kind < 0.4:
        return int(2 ** random_.randint(3, 12))
    return round(2 ** random_.uniform(0, 13))


def grown(gemm: Gemm) -> Iterator[tuple[str, Gemm]]:
    """The product with each size doubled that gains no alignment by it."""
    aligned_to = WIDEST_ACCESS_BITS // gemm.dtype.bits
    for name in ("m", "n", "k"):
        extent: int = getattr(gemm, name)
        if name not in gemm.leading_dimensions or extent % aligned_to == 0:
            sizes = {"m": gemm.m, "n": gemm.n, "k": gemm.k, name: 2 * extent}
            yield name, replace(gemm, m=sizes["m"], n=sizes["n"], k=sizes["k"])


def doublings(count: int, seed: int) -> Iterator[Doubling]:
    """Products that a board can run, each with its doublings, until there are ``count`` of these."""
    random_ = random.Random(seed)
    # The memory of the teaching board is as fast as a spec may say.
    names = [entry.name for entry in list_archs() if entry.name != "teaching"]
    made = 0
    while made < count:
        name = random_.choice(names)
        dtype, layout = random_.choice(paths(name))
        m, n, k = (size(random_) for _ in "mnk")
        gemm = Gemm(
            m, n, k, dtype, random_.choice([1, 1, 1, 4]), layout, order=random_.choice(["row", "column"])
        )  # fmt: skip
        options = Options(l2=random_.choice(["cold", "warm"]), load="burst")
        cases = [(DRAM, faster_memory(name), gemm), *((what, board(name).system, other) for what, other in grown(gemm))]
        try:
            before = predict(board(name).system, gemm, options)
            afters = [(what, predict(arch, other, options)) for what, arch, other in cases]
        except UnsupportedError:
            continue
        for what, after in afters:
            made += 1
            yield Doubling(name, gemm, options, what, before, after)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try so many doublings; 1 if one breaks the law."""
    asked = harness.command_line(__doc__.partition("\n")[0], 4000).parse_args(arguments)
    passed_over = violations = 0
    for one in doublings(asked.count, asked.seed):
        if one.surprises and one.chosen:
            passed_over += 1
        elif one.surprises:
            violations += 1
            print(one, flush=True)
    print(
        f"{asked.count} doublings: {violations} violations, "
        f"{passed_over} kernels that the library passes over for the smaller product"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
