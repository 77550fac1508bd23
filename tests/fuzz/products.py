"""Random products on every board: no result below its bound, no resource above 100 %, extrapolation loses nothing.

    python tests/fuzz/products.py --count 5000 --seed 1

Half of the products run on the kernel that a library would choose, half on any one of the catalogue that can read them;
sizes are even on a logarithmic scale. Where simulating without jumps is affordable, the cycles are compared with those
that are extrapolated. Prints what was tried and the worst cases; the exit status is 1 after a violation.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import cache

import harness

from gpusim.hardware.machine import Machine
from gpusim.lowering.gemm.lower import lower
from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError, multiplies, refusals
from gpusim.sim.simulate import simulate
from gpusim.specs import list_archs, load_spec
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

JUMP_TOLERANCE = 0.005
"""What jumps may add to or take from the cycles of a launch."""
ROUNDING = 1e-9
"""Relative error of sums of floats."""
SLOW_S = 10.0
"""No product may take longer to predict."""
SHOWN = 10


class Violation(Enum):
    """Rules that no product may break."""

    BOUND = "below the bound"
    BUSY = "with a resource above 100 % busy"
    JUMPS = "with jumps that cost too much accuracy"
    SLOW = "slow to predict"


@dataclass(frozen=True, slots=True)
class Product:
    """One case: a product on a board, on the kernel that a library would choose or on a pinned one."""

    arch: str
    gemm: Gemm
    options: Options

    @property
    def command(self) -> str:
        """What predicts it again."""
        gemm, options = self.gemm, self.options
        words = ["gpusim gemm --arch", self.arch, "-m", gemm.m, "-n", gemm.n, "-k", gemm.k, "--batch", gemm.batch]
        words += ["--dtype", gemm.dtype.value, "--accumulate", gemm.accumulate, "--layout", gemm.layout]
        words += ["--sparsity", gemm.sparsity, "--order", gemm.order, "--l2", options.l2, "--load", options.load]
        words += ["--kernel", options.kernel] if options.kernel else []
        return " ".join(map(str, words))


@dataclass(frozen=True, slots=True)
class Finding:
    """What one product showed."""

    product: Product
    odd: bool = False
    """Warps that do not spread evenly over the sub-partitions."""
    bound_share: float = 1.0
    """Kernel time over the lower bound."""
    busiest: float = 0.0
    jump_error: float | None = None
    """Cycles over those of the same launches without jumps, less one; None where these were not simulated."""
    seconds: float = 0.0
    refused: str = ""

    @property
    def error(self) -> float:
        """Size of what jumps lose or add."""
        return abs(self.jump_error or 0.0)

    @property
    def violations(self) -> list[Violation]:
        """The rules that it breaks."""
        broken = {
            Violation.BOUND: self.bound_share < 1.0 - ROUNDING,
            Violation.BUSY: self.busiest > 1.0 + ROUNDING,
            Violation.JUMPS: self.jump_error is not None and self.error > JUMP_TOLERANCE,
            Violation.SLOW: self.seconds > SLOW_S,
        }
        return [violation for violation, is_broken in broken.items() if is_broken]


@cache
def board(name: str) -> System:
    """A shipped board, loaded once a process."""
    return load_spec(name).system


@cache
def boards() -> tuple[str, ...]:
    """Every shipped board."""
    return tuple(entry.name for entry in list_archs(()))


def drawn(seed: int) -> Product:
    """The product of a seed."""
    rng = random.Random(seed)
    name = rng.choice(boards())
    arch = board(name)
    family = rng.choice(list(dict.fromkeys(kernel.family for kernel in arch.library.kernels)))
    instruction = arch.gpu.instructions[family.instruction]
    unit = max(family.multiple_of)
    top = rng.choice([9.0, 12.0, 14.0])
    m, n, k = (unit * -(-round(2 ** rng.uniform(0, top)) // unit) for _ in range(3))
    if family.max_n is not None:
        n = rng.randint(family.min_n, family.max_n)
    batch = rng.choice([1, 1, 1, 2, 4, 7, 32, 100])
    dtype: Dtype = rng.choice(family.inputs)
    gemm = Gemm(m, n, k, dtype, batch, rng.choice(family.layouts), instruction.sparsity, instruction.accumulate,
                rng.choice(["row", "column"]))  # fmt: skip
    options = Options(l2=rng.choice(["cold", "warm"]), load=rng.choice(["burst", "sustained"]))
    return Product(name, gemm, options if rng.random() < 0.5 else pinned(arch, gemm, options, rng))


def pinned(arch: System, gemm: Gemm, options: Options, rng: random.Random) -> Options:
    """The options with a kernel; one whose warps spread unevenly where there is a choice, every other time."""
    kernels = [
        kernel
        for kernel in arch.library.kernels
        if multiplies(arch.gpu, gemm, kernel, None) and not refusals(gemm, kernel)
    ]
    odd = [kernel for kernel in kernels if kernel.warps % arch.gpu.sm.sub_partitions]
    if odd and rng.random() < 0.5:
        kernels = odd
    if not kernels:
        return options
    return Options(l2=options.l2, load=options.load, kernel=rng.choice(kernels).printed_name(gemm.layout, gemm.dtype))


def warp_iterations(arch: System, plan: GemmPlan) -> int:
    """Iterations of warps' main loops on the busiest SM of a plan's launches."""
    return sum(one.ctas_on_busiest_sm(arch.gpu) * one.warps * one.steps for one in plan.schedules)


def examined(product: Product, whole_iterations: int) -> Finding:
    """Predict a product, and simulate it without jumps if that takes at most so many iterations."""
    arch = board(product.arch)
    started = time.perf_counter()
    try:
        result = predict(arch, product.gemm, product.options)
    except UnsupportedError as refusal:
        return Finding(product, refused=str(refusal))
    seconds = time.perf_counter() - started
    plan = ranked_gemms(arch, product.gemm, product.options)[0].plan
    affordable = warp_iterations(arch, plan) <= whole_iterations
    return Finding(
        product,
        odd=any(role.warps % arch.gpu.sm.sub_partitions for role in lower(plan)[0].roles),
        bound_share=result.kernel_time_us / result.timing.bound_us,
        busiest=max(result.utilization.busy_fractions.values()),
        jump_error=jump_error(arch, plan) if affordable else None,
        seconds=seconds,
    )


def jump_error(arch: System, plan: GemmPlan) -> float:
    """Cycles of a plan's launches over those without jumps, less one."""
    machine = Machine.of(arch.gpu, arch.gpu.clock.max_mhz)
    jumped, whole = (
        sum(simulate(machine, launch, extrapolate=extrapolate).cycles for launch in lower(plan))
        for extrapolate in (True, False)
    )
    return jumped / whole - 1


def _examine(task: tuple[int, int]) -> Finding:
    seed, whole_iterations = task
    product = drawn(seed)
    try:
        return examined(product, whole_iterations)
    except Exception as error:
        raise RuntimeError(f"failed: {product.command}") from error


def report(findings: Sequence[Finding]) -> str:
    """Counts by outcome, and the worst cases of each kind."""
    predicted = [one for one in findings if not one.refused]
    compared = [one for one in predicted if one.jump_error is not None]
    pinned_ones = sum(bool(one.product.options.kernel) for one in predicted)
    uneven = sum(one.odd for one in predicted)
    lines = [
        f"{len(findings)} products: {len(predicted)} predicted, {len(findings) - len(predicted)} refused",
        f"{pinned_ones} on pinned kernels, {uneven} with warps spread unevenly, {len(compared)} also without jumps",
    ]
    lines += [f"{sum(rule in one.violations for one in predicted)} {rule.value}" for rule in Violation]
    errors = sorted(one.error for one in compared)
    if errors:
        ranks = ((len(errors) - 1) * share // 100 for share in (50, 95, 99, 100))
        median, p95, p99, most = (100 * errors[rank] for rank in ranks)
        lines.append(f"error of jumps: median {median:.3f} %, p95 {p95:.3f} %, p99 {p99:.3f} %, max {most:.3f} %")
    lines += _worst("kernel time over bound", predicted, lambda one: -one.bound_share)
    lines += _worst("busiest resource", predicted, lambda one: one.busiest)
    lines += _worst("error of jumps", compared, lambda one: one.error)
    lines += _worst("seconds", predicted, lambda one: one.seconds)
    return "\n".join(lines)


def _worst(title: str, findings: Sequence[Finding], value: Callable[[Finding], float]) -> list[str]:
    """The few findings of the highest value, each with the command that shows it again."""
    ordered = sorted(findings, key=value, reverse=True)[:SHOWN]
    return [f"worst by {title}:", *(f"{abs(value(one)):9.4f}  {one.product.command}" for one in ordered)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try so many products; 1 if one broke a rule."""
    parser = harness.command_line("Random products against the bound, and jumps against simulating on.", 5000)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--whole",
        type=int,
        default=20_000,
        metavar="ITERATIONS",
        help="iterations of warps up to which launches are simulated without jumps too",
    )
    chosen = parser.parse_args(arguments)
    tasks = [(chosen.seed * 1_000_000 + index, chosen.whole) for index in range(chosen.count)]
    if chosen.jobs == 1:
        findings = [_examine(task) for task in tasks]
    else:
        with ProcessPoolExecutor(chosen.jobs) as pool:
            findings = list(pool.map(_examine, tasks, chunksize=10))
    print(report(findings))
    return int(any(one.violations for one in findings))


if __name__ == "__main__":
    sys.exit(main())
