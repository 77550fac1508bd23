"""CTAs per SM: NVIDIA's published rules case by case, and their consequences."""

import pytest
from conftest import golden_rows
from gemm_kernels import BOARDS
from hypothesis import given
from hypothesis import strategies as st

from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import DoesNotFitError, occupancy
from gpusim.specs import load_spec

GOLDEN = golden_rows("occupancy.csv")


def row_id(row: dict[str, str]) -> str:
    return f"{row['arch']}-{row['threads']}threads-{row['registers']}registers-{row['shared_bytes']}B"


@pytest.mark.parametrize("row", GOLDEN, ids=row_id)
def test_ctas_and_limiter_follow_the_published_rules(row: dict[str, str]) -> None:
    assert row["source"]
    assert (row["unit"], row["tolerance"]) == ("CTA/SM", "0")  # a count is right or wrong
    limits = SmLimits.of(load_spec(row["arch"]).gpu)
    found = occupancy(limits, int(row["threads"]), int(row["registers"]), int(row["shared_bytes"]))
    assert found.ctas == int(row["value"]), row["arithmetic"]
    assert found.limiter in row["limiter"].split(" or ")


def test_the_golden_cases_cover_every_compute_capability_and_limiter() -> None:
    shipped = {load_spec(name).gpu.compute_capability for name in BOARDS} - {"1.0"}  # the textbook's own machine
    assert {load_spec(row["arch"]).gpu.compute_capability for row in GOLDEN} == shipped
    assert {row["limiter"] for row in GOLDEN} >= {"registers", "shared_memory", "warps", "cta_slots"}


@pytest.mark.parametrize(
    ("name", "threads", "registers", "shared_bytes", "reason"),
    [
        ("V100-SXM2-16GB", 1025, 32, 0, "1025 threads a CTA, V100-SXM2-16GB allows 1024"),
        ("V100-SXM2-16GB", 128, 256, 0, "256 registers a thread, V100-SXM2-16GB allows 255"),
        ("V100-SXM2-16GB", 128, 32, 98305, "98305 bytes of shared memory a CTA, V100-SXM2-16GB allows 98304"),
        ("T4", 128, 32, 65537, "65537 bytes of shared memory a CTA, T4 allows 65536"),
        ("A100-SXM4-80GB", 128, 32, 166913, "166913 bytes of shared memory a CTA, A100-SXM4-80GB allows 166912"),
        ("A40", 128, 32, 101377, "101377 bytes of shared memory a CTA, A40 allows 101376"),
        # 255 x 32 -> 8192 registers a warp; 16384 // 8192 x 4 = 8 warps, and 9 are asked for
        ("V100-SXM2-16GB", 288, 255, 0, "one CTA needs more registers than an SM of V100-SXM2-16GB has"),
    ],
)
def test_a_cta_that_does_not_fit_is_refused_with_the_resource(
    name: str, threads: int, registers: int, shared_bytes: int, reason: str
) -> None:
    with pytest.raises(DoesNotFitError) as refusal:
        occupancy(SmLimits.of(load_spec(name).gpu), threads, registers, shared_bytes)
    assert str(refusal.value) == reason


@pytest.mark.parametrize(
    ("name", "threads", "registers", "shared_bytes"),
    [
        ("V100-SXM2-16GB", 1024, 64, 98304),
        ("V100-SXM2-16GB", 256, 255, 98304),  # 8 warps x 8192 registers: the whole file
        ("T4", 1024, 64, 65536),
        ("A100-SXM4-80GB", 1024, 64, 166912),
        ("A40", 1024, 64, 101376),
    ],
)
def test_the_largest_cta_that_is_allowed_fits_once(name: str, threads: int, registers: int, shared_bytes: int) -> None:
    assert occupancy(SmLimits.of(load_spec(name).gpu), threads, registers, shared_bytes).ctas == 1


@given(
    st.sampled_from(BOARDS),
    st.integers(min_value=1, max_value=1024),
    st.integers(min_value=1, max_value=64),  # 64 registers x 1024 threads fill the register file
    st.integers(min_value=0, max_value=65536),
    st.sampled_from(["threads", "registers", "shared"]),
)
def test_a_cta_that_asks_for_more_never_leaves_room_for_more_of_them(
    name: str, threads: int, registers: int, shared_bytes: int, more: str
) -> None:
    limits = SmLimits.of(load_spec(name).gpu)
    small = occupancy(limits, threads, registers, shared_bytes)
    try:
        large = occupancy(
            limits,
            threads + 32 * (more == "threads"),
            registers + 8 * (more == "registers"),
            shared_bytes + 1024 * (more == "shared"),
        )
    except DoesNotFitError:
        return
    assert large.ctas <= small.ctas


@given(
    st.sampled_from(BOARDS),
    st.integers(min_value=1, max_value=1024),
    st.integers(min_value=1, max_value=64),
    st.integers(min_value=0, max_value=65536),
)
def test_resident_ctas_fit_the_sm_and_one_more_would_not(
    name: str, threads: int, registers: int, shared_bytes: int
) -> None:
    arch = load_spec(name).gpu
    found = occupancy(SmLimits.of(arch), threads, registers, shared_bytes)
    warps = -(-threads // 32)

    def fits(ctas: int) -> bool:
        # each sub-partition holds its share of the warps, rounded up, in its quarter of the register file
        per_part = -(-ctas * warps // arch.sm.sub_partitions)
        per_warp = -(-registers * 32 // 256) * 256
        unit = arch.shared_memory.allocation_unit_bytes
        per_cta = -(-shared_bytes // unit) * unit + arch.shared_memory.reserved_bytes_per_cta
        return (
            ctas <= arch.sm.max_ctas
            and ctas * warps <= arch.sm.max_warps
            and per_part * per_warp <= arch.sm.registers / arch.sm.sub_partitions
            and ctas * per_cta <= arch.shared_memory.capacity_bytes
        )

    assert fits(found.ctas)
    assert not fits(found.ctas + 1)
    assert found.limits[found.limiter] == found.ctas == min(found.limits.values())
