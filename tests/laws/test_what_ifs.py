"""What a changed board must do to a time: the direction, and no more than it can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import gpusim

Workload = Mapping[str, Any]
LARGE: Workload = {"m": 4096, "n": 4096, "k": 4096, "dtype": "fp16"}
LARGE_FP32: Workload = {"m": 3000, "n": 3000, "k": 3000, "dtype": "fp32"}
STREAMED: Workload = {"m": 8, "n": 8192, "k": 8192, "dtype": "fp16"}
SMALL: Workload = {"m": 64, "n": 64, "k": 64, "dtype": "fp16"}
TALL: Workload = {"m": 8192, "n": 64, "k": 64, "dtype": "fp16", "batch": 8}
SOFTMAX: Workload = {"op": "softmax", "m": 8192, "n": 1024, "dtype": "fp32"}
ADD: Workload = {"op": "add", "m": 8192, "n": 4096, "dtype": "fp32"}
BOARDS = ("v100-pcie-16gb", "v100-sxm2-16gb", "t4", "a100-sxm4-80gb", "rtx-3090", "h100-sxm5-80gb")
SAME, FASTER, SLOWER = "same", "faster", "slower"
NOISE = 0.005
"""Rounding of clocks and of cycles."""

WHAT_IFS: tuple[tuple[str, Workload, Mapping[str, str], str, float], ...] = (
    # board, workload, replaced values, direction, largest factor either way
    ("v100-pcie-16gb", LARGE, {"power.board_limit_w": "0.5x"}, SLOWER, 2.6),
    ("v100-pcie-16gb", LARGE_FP32, {"power.board_limit_w": "0.5x"}, SLOWER, 2.5),
    ("v100-pcie-16gb", LARGE, {"power.board_limit_w": "0.8x"}, SLOWER, 1.4),
    ("a100-sxm4-80gb", LARGE, {"power.board_limit_w": "0.5x"}, SLOWER, 2.0),
    ("h100-sxm5-80gb", LARGE, {"power.board_limit_w": "0.5x"}, SLOWER, 2.0),
    ("t4", LARGE, {"power.board_limit_w": "2x"}, FASTER, 3.0),
    ("a100-sxm4-80gb", STREAMED, {"power.board_limit_w": "2x"}, SAME, 1.02),
    ("v100-sxm2-16gb", LARGE, {"sm.count": "2x", "power.board_limit_w": "2x"}, FASTER, 2.1),
    # Twice the limit is more than twice the power above idle.
    ("t4", LARGE, {"sm.count": "2x", "power.board_limit_w": "2x"}, FASTER, 2.8),
    ("t4", LARGE_FP32, {"sm.count": "2x", "power.board_limit_w": "2x"}, FASTER, 2.8),
    ("rtx-3090", LARGE, {"sm.count": "2x", "power.board_limit_w": "2x"}, FASTER, 2.1),
    ("a100-sxm4-80gb", LARGE, {"sm.count": "0.5x", "power.board_limit_w": "0.5x"}, SLOWER, 2.2),
    ("t4", SMALL, {"sm.count": "2x", "power.board_limit_w": "2x"}, SAME, 1.02),
    ("a100-sxm4-80gb", SOFTMAX, {"sm.count": "2x", "power.board_limit_w": "2x"}, SAME, 1.05),
    ("a100-sxm4-80gb", STREAMED, {"dram.peak_bandwidth_gb_per_s": "2x"}, FASTER, 2.0),
    ("v100-sxm2-16gb", STREAMED, {"dram.peak_bandwidth_gb_per_s": "2x"}, FASTER, 2.0),
    ("h100-sxm5-80gb", ADD, {"dram.peak_bandwidth_gb_per_s": "2x"}, FASTER, 2.0),
    ("t4", ADD, {"dram.peak_bandwidth_gb_per_s": "0.5x"}, SLOWER, 2.0),
    ("rtx-3090", SOFTMAX, {"dram.peak_bandwidth_gb_per_s": "0.5x"}, SLOWER, 2.0),
    ("a100-sxm4-80gb", LARGE, {"dram.peak_bandwidth_gb_per_s": "2x"}, SAME, 1.05),
    ("v100-sxm2-16gb", {**SOFTMAX, "n": 4096}, {"l2.capacity_mib": "2x"}, SAME, 1.05),
    ("v100-sxm2-16gb", {**SOFTMAX, "n": 4096}, {"l2.capacity_mib": "0.5x"}, SLOWER, 2.5),
    ("a100-sxm4-80gb", LARGE, {"l2.bandwidth_bytes_per_cycle": "0.25x"}, SLOWER, 4.0),
    ("t4", ADD, {"l2.capacity_mib": "4x"}, SAME, 1.05),
    ("a100-sxm4-80gb", SMALL, {"front_end.kernel_latency_us": "2x"}, SLOWER, 2.0),
    ("a100-sxm4-80gb", LARGE, {"front_end.kernel_latency_us": "2x"}, SAME, 1.02),
    ("h100-sxm5-80gb", SMALL, {"dram.latency_ns": "2x"}, SLOWER, 2.0),
    ("h100-sxm5-80gb", ADD, {"dram.latency_ns": "1.2x"}, SAME, 1.1),
    ("v100-sxm2-16gb", LARGE_FP32, {"shared_memory.bandwidth_bytes_per_cycle": "0.5x"}, SLOWER, 2.0),
    ("a100-sxm4-80gb", STREAMED, {"shared_memory.bandwidth_bytes_per_cycle": "2x"}, SAME, 1.05),
    ("t4", SMALL, {"clock.max_mhz": "0.8x", "clock.boost_mhz": "0.8x"}, SLOWER, 1.25),
    ("a100-sxm4-80gb", ADD, {"clock.max_mhz": "0.95x", "clock.boost_mhz": "0.95x"}, SAME, 1.06),
    ("a100-sxm4-80gb", LARGE, {"sm.registers": "0.5x"}, SLOWER, 4.0),
)


@pytest.mark.parametrize(("board", "workload", "replaced", "direction", "most"), WHAT_IFS)
def test_a_what_if_goes_the_known_way(
    board: str, workload: Workload, replaced: Mapping[str, str], direction: str, most: float
) -> None:
    shipped = gpusim.predict(board, limits=False, **workload)
    changed = gpusim.predict(board, limits=False, overrides=replaced, **workload)
    ratio = changed.time_us / shipped.time_us
    if direction == FASTER:
        assert 1 / most <= ratio < 1 - NOISE
    elif direction == SLOWER:
        assert 1 - NOISE < ratio <= most
    else:
        assert 1 / most <= ratio <= most


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("workload", [LARGE, STREAMED, TALL, SOFTMAX], ids=["large", "streamed", "tall", "softmax"])
def test_a_better_board_is_no_slower(board: str, workload: Workload) -> None:
    shipped = gpusim.predict(board, limits=False, **workload)
    for better in (
        {"sm.count": "2x", "power.board_limit_w": "2x", "l2.capacity_mib": "2x"},
        {"dram.peak_bandwidth_gb_per_s": "2x"},
        {"l2.bandwidth_bytes_per_cycle": "2x"},
        {"power.board_limit_w": "1.5x"},
    ):
        changed = gpusim.predict(board, limits=False, overrides=better, **workload)
        assert changed.time_us <= (1 + 2 * NOISE) * shipped.time_us, better


def test_more_sms_at_the_same_limit_say_that_it_stays() -> None:
    doubled = gpusim.predict("t4", overrides={"sm.count": "2x"}, **LARGE)
    assert "80 SMs share the power limit of 40; --set power.board_limit_w=140 raises it in proportion" in doubled.notes
    scaled = gpusim.predict("t4", overrides={"sm.count": "2x", "power.board_limit_w": "2x"}, **LARGE)
    assert not any("share the power limit" in note for note in scaled.notes)
    unheld = gpusim.predict("t4", overrides={"sm.count": "2x"}, **{**SMALL, "load": "burst"})
    assert not any("share the power limit" in note for note in unheld.notes)
