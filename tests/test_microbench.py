"""Microbenchmarks as programs: latencies of levels, bandwidth that saturates, units, and points that are refused."""

from __future__ import annotations

import pytest

from gpusim.specs import load_spec
from gpusim.studies.microbench import Reading, UnsupportedBenchmarkError, play
from gpusim.studies.microbench.play import SUITES
from gpusim.system import System
from gpusim.units import MIB

BOARDS = ("v100-pcie-16gb", "t4", "a100-sxm4-80gb", "a40", "h200")


@pytest.fixture(scope="module", params=BOARDS)
def system(request: pytest.FixtureRequest) -> System:
    return load_spec(str(request.param)).system


def hop_cycles(system: System, footprint_kb: float) -> float:
    return play(system, "mem_latency_pchase_random", {"footprint_kb": str(footprint_kb)}).value


def test_a_chase_in_l1_takes_the_latency_of_l1(system: System) -> None:
    assert hop_cycles(system, 16) == pytest.approx(system.gpu.load_store.l1_latency_cycles, abs=2)


def test_a_chase_in_l2_takes_a_latency_of_l2(system: System) -> None:
    l2 = system.gpu.l2
    within = hop_cycles(system, 2048)
    assert l2.latency_cycles - 1 <= within <= max(l2.latency_cycles, l2.far_latency_cycles) + 3


def test_a_chase_far_beyond_l2_takes_the_latency_of_dram(system: System) -> None:
    gpu = system.gpu
    expected = max(gpu.l2.latency_cycles, gpu.dram.latency_ns * gpu.clock.max_mhz / 1e3)
    assert hop_cycles(system, 1e6) == pytest.approx(expected, rel=0.02)


def test_a_chase_takes_longer_the_larger_its_footprint(system: System) -> None:
    readings = [hop_cycles(system, 2.0**power) for power in range(2, 22)]
    assert readings == sorted(readings)


def test_a_stream_saturates_below_the_peak_of_dram(system: System) -> None:
    readings = [
        play(system, "dram_stream_bw", {"kernel": "scale", "cta": str(threads), "ctas_per_sm": "2"}).value
        for threads in (32, 128, 512)
    ]
    assert readings == sorted(readings)
    assert readings[0] < 0.7 * readings[-1]
    assert 0.7 < readings[-1] / system.gpu.dram.peak_bandwidth_gb_per_s < 1.0


def test_reads_slow_down_level_by_level(system: System) -> None:
    gpu = system.gpu
    sizes_kb = (16, gpu.l2.capacity_mib / 4 * 1024)
    l1, l2 = (play(system, "cache_read_bw_private", {"footprint_kb": str(size)}).value for size in sizes_kb)
    dram = play(system, "l2_read_bw", {"footprint_kb": str(64 * gpu.l2.capacity_bytes / MIB * 1024)}).value
    assert l1 > 1.5 * l2 > 1.5 * dram


def test_what_no_program_plays_is_refused_with_its_reason() -> None:
    system = load_spec("t4").system
    for benchmark, parameters, reason in (
        ("tea_brewing", {}, "tea_brewing"),
        ("mem_latency_pchase_random", {}, "footprint_kb: missing"),
        ("mem_latency_pchase_random", {"footprint_kb": "many"}, "footprint_kb: expected a number, got 'many'"),
        ("dram_stream_bw", {"kernel": "knead"}, "kernel"),
        ("dram_stream_bw", {"cta": "0.5"}, "cta: expected a whole number"),
    ):
        with pytest.raises(UnsupportedBenchmarkError, match=reason):
            play(system, benchmark, parameters)


def test_a_chain_of_indices_reads_in_ns() -> None:
    reading = play(load_spec("rtx-3090").system, "mem_latency_pchase_random", {"footprint_b": "4096", "hint": "ca"})
    assert reading.unit == "ns"
    assert 15 < reading.value < 40


def test_every_benchmark_belongs_to_one_suite() -> None:
    names = [benchmark for players in SUITES.values() for benchmark in players]
    assert len(names) == len(set(names))


def test_a_reading_is_a_value_with_a_unit() -> None:
    reading = play(load_spec("t4").system, "babelstream_copy", {})
    assert isinstance(reading, Reading)
    assert reading.unit == "GB/s"
