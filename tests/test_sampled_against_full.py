"""Does one SM, played until it repeats, stand for all of them? ``sampled`` beside ``full``, product by product."""

import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import pytest
from conftest import suited

from gpusim.choose import candidates
from gpusim.plan import plan
from gpusim.predict import Options, predict
from gpusim.sim import extrapolate
from gpusim.sim.gpu import simulate
from gpusim.specfile import load_arch
from gpusim.workload import Dtype, Gemm

BOARDS = ("V100-SXM2-16GB", "T4", "A100-SXM4-80GB")
SEEDS = (1, 2)
CASES_PER_SEED = 120
MEDIAN_TOLERANCE = 0.02  # what a user of `sampled` is promised
P95_TOLERANCE = 0.05  # the same


@dataclass(frozen=True, slots=True)
class Case:
    """One random product."""

    name: str
    gemm: Gemm
    l2: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both details' kernel times of a product [us]."""

    case: Case
    kernel: str
    split_k: int
    grid: tuple[int, int, int]
    sampled_us: float
    full_us: float

    @property
    def difference(self) -> float:
        return self.sampled_us / self.full_us - 1


def drawn(seed: int, count: int) -> list[Case]:
    """Sizes even on a logarithmic scale from 2^4 to 2^11.5."""
    rng = random.Random(seed)
    cases = []
    for _ in range(count):
        name = rng.choice(BOARDS)
        dtype = rng.choice([Dtype.FP32, Dtype.FP16])
        l2 = rng.choice(["cold", "warm"])
        m, n, k = (round(2 ** rng.uniform(4, 11.5)) for _ in range(3))
        cases.append(Case(name, Gemm(m, n, k, dtype), l2))
    return cases


def drawn_of_newer_paths(seed: int, count: int) -> list[Case]:
    """The same sizes, in multiples of 64, of the types and the sparsity that came with Turing and Ampere."""
    rng = random.Random(seed)
    cases = []
    for _ in range(count):
        dtype, sparsity = rng.choice([(Dtype.INT8, "dense"), (Dtype.TF32, "dense"), (Dtype.FP16, "2:4")])
        name = rng.choice(["T4", "A100-SXM4-80GB"]) if dtype is Dtype.INT8 else "A100-SXM4-80GB"
        m, n, k = (64 * round(2 ** rng.uniform(0, 5.5)) for _ in range(3))
        cases.append(Case(name, Gemm(m, n, k, dtype, sparsity=sparsity), rng.choice(["cold", "warm"])))
    return cases


def drawn_of_hopper(seed: int, count: int) -> list[Case]:
    """The same sizes, in multiples of 16, on kernels with a producer and warpgroups."""
    rng = random.Random(seed)
    cases = []
    for _ in range(count):
        name = rng.choice(["H100-SXM5-80GB", "H200-SXM-141GB"])
        dtype, sparsity = rng.choice([(Dtype.BF16, "dense"), (Dtype.FP8, "dense"), (Dtype.FP16, "2:4")])
        unit = 64 if sparsity == "2:4" else 16
        m, n, k = (unit * max(1, round(2 ** rng.uniform(4, 12) / unit)) for _ in range(3))
        cases.append(Case(name, Gemm(m, n, k, dtype, sparsity=sparsity), rng.choice(["cold", "warm"])))
    return cases


def compared(case: Case) -> Comparison:
    arch = load_arch(case.name).arch
    sampled, full = (
        predict(arch, case.gemm, Options(detail=detail, l2=case.l2, load="burst")) for detail in ("sampled", "full")
    )
    assert (sampled.kernel, sampled.grid) == (full.kernel, full.grid)
    return Comparison(case, sampled.kernel, sampled.split_k, sampled.grid, sampled.kernel_time_us, full.kernel_time_us)


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-round(len(ordered) * percent) // 100) - 1)]


def table(found: list[Comparison]) -> str:
    """Differences by board and data type, and the worst ten."""
    groups: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for one in found:
        kind = one.case.gemm.dtype.value + ("" if one.case.gemm.sparsity == "dense" else " 2:4")
        groups[one.case.name, kind].append(abs(one.difference))
        groups["all", ""].append(abs(one.difference))
    lines = [f"{'GPU':16} {'type':8} {'n':>4} {'median %':>9} {'p95 %':>7} {'max %':>7}"]
    for (name, dtype), values in sorted(groups.items()):
        median, p95, most = (100 * value for value in (statistics.median(values), percentile(values, 95), max(values)))
        lines.append(f"{name:16} {dtype:8} {len(values):4} {median:9.2f} {p95:7.2f} {most:7.2f}")
    lines.append("worst ten: sampled - full [%], sampled and full [us]")
    for one in sorted(found, key=lambda one: -abs(one.difference))[:10]:
        gemm = one.case.gemm
        lines.append(
            f"{100 * one.difference:+6.1f} {one.sampled_us:9.2f} {one.full_us:9.2f} {one.case.name} {one.case.l2}"
            f" {gemm.dtype.value} {gemm.m}x{gemm.n}x{gemm.k} {one.kernel} split {one.split_k} grid {one.grid}"
        )
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [drawn, drawn_of_newer_paths, drawn_of_hopper])
def test_sampled_agrees_with_full_on_random_products(
    draw: Callable[[int, int], list[Case]], capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [case for seed in SEEDS for case in draw(seed, CASES_PER_SEED)]
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(compared, cases))
    with capsys.disabled():
        print(f"\n{table(found)}")
    differences = [abs(one.difference) for one in found]
    assert len(differences) == 240
    assert statistics.median(differences) <= MEDIAN_TOLERANCE
    assert percentile(differences, 95) <= P95_TOLERANCE


def test_the_percentile_is_the_rank_that_it_names() -> None:
    values = [float(value) for value in range(240)]
    assert percentile(values, 95) == 227  # 0.95 x 240 = 228 values lie at or below it
    assert percentile([3.0], 95) == 3.0


def played_cycles(case: Case) -> list[int]:
    """Cycles of each launch of a product in ``sampled``."""
    arch = load_arch(case.name).arch
    warm = case.l2 == "warm"
    planned = candidates(arch, case.gemm, suited(arch, case.gemm), warm=warm, clock_mhz=arch.clock.boost_mhz)[0].plan
    return [simulate(arch, launch, arch.clock.max_mhz, "sampled", warm=warm).cycles for launch in planned.launches]


@pytest.mark.parametrize(
    ("dtype", "shape", "batch", "label"),
    [
        # two teams finish their tiles in pairs, soon after each other and then a while later
        (Dtype.TF32, (64, 128, 128), 3000, "wgmma_8_tf32_64x256x32"),
        (Dtype.FP8, (64, 128, 128), 3000, "wgmma_32_fp8_64x64x128"),
        # the first tiles are as fast as a ring of 16 stages is filled
        (Dtype.FP8, (64, 128, 128), 1000, "wgmma_32_fp8_64x16x128"),
        (Dtype.FP8, (64, 64, 256), 3000, "wgmma_32_fp8_64x16x128"),
    ],
)
def test_tiles_of_persistent_ctas_are_jumped_in_whole_turns_once_they_are_steady(
    dtype: Dtype, shape: tuple[int, int, int], batch: int, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arch, gemm = load_arch("H200-SXM-141GB").arch, Gemm(*shape, dtype, batch=batch)
    kernel = next(one for one in suited(arch, gemm) if one.label == label)
    launch = plan(arch, gemm, kernel).main
    jumped = simulate(arch, launch, arch.clock.max_mhz, "sampled").cycles
    play_everything(monkeypatch)
    assert jumped == pytest.approx(simulate(arch, launch, arch.clock.max_mhz, "sampled").cycles, rel=0.03)


def play_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A period as long as no loop, and a pace that is never steady."""
    monkeypatch.setattr(extrapolate, "MIN_PERIOD_STEPS", 10**9)
    monkeypatch.setattr(extrapolate, "PACE_TOLERANCE", -1.0)
    monkeypatch.setattr(extrapolate, "PATIENCE", 10**9)


def test_jumps_over_what_repeats_lose_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = drawn(seed=3, count=300) + drawn_of_hopper(seed=3, count=60)
    jumped = [sum(played_cycles(case)) for case in cases]
    play_everything(monkeypatch)
    whole = [sum(played_cycles(case)) for case in cases]
    assert jumped != whole
    differences = [abs(short / long - 1) for short, long in zip(jumped, whole, strict=True)]
    # the rare one that is caught between two paces costs a few percent
    assert percentile(differences, 98) <= 0.005
    assert max(differences) <= 0.1
