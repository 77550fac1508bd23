"""What reading tiles costs beyond their bytes: DRAM pages, lines that L2 loses, TLB misses."""

from dataclasses import replace

import pytest
from conftest import with_gpu
from gemm_kernels import A100, AMPERE_HGEMM, V100, VOLTA_SGEMM, kernel

from gpusim.hardware.machine import Machine
from gpusim.lowering.gemm.lower import lower_tiles
from gpusim.lowering.gemm.plan import plan
from gpusim.lowering.gemm.problem import Problems, problem_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.program import Read
from gpusim.sim.memory.blocks import read_of, tables_of
from gpusim.workloads.gemm import Gemm, Layout

ROUNDING = 1e-9  # relative; sums of averages


@pytest.mark.parametrize(
    ("layout", "k", "taken_bytes"),
    [
        ("nt", 1024, (2048, 2048)),  # both lie along m or n: neighbours read the rest of a page
        ("tn", 1024, (64, 64)),  # rows of 4 KB: 8 values of k, and 8 more in the same unit of 64 B
        ("nn", 1024, (2048, 64)),
        ("tn", 128, (256, 256)),  # four rows in a page, a unit of each
        ("tn", 8, (2048, 2048)),  # rows that a step reads whole
    ],
)
def test_a_page_of_dram_is_opened_for_what_a_step_takes_of_it(
    layout: Layout, k: int, taken_bytes: tuple[int, int]
) -> None:
    changed = {"page_bytes": 2048.0, "activation_bytes": 64.0, "page_part_stride_bytes": 10**9}
    dram = V100.gpu.dram.model_copy(update=changed)
    arch = with_gpu(V100, dram=dram)
    planned = plan(arch.gpu, Gemm(4096, 4096, k, Dtype.FP32, layout=layout, order="column"), kernel(V100, VOLTA_SGEMM))
    costs = [(1 + 64 / taken) / (1 + 64 / 2048) for taken in taken_bytes]
    assert min(costs) - ROUNDING <= planned.main.traffic.read_cost <= max(costs) + ROUNDING


def test_what_is_left_of_a_unit_opens_no_page_again_while_l2_holds_it() -> None:
    changed = {"page_bytes": 2048.0, "activation_bytes": 64.0, "page_part_stride_bytes": 10**9}
    arch = with_gpu(V100, dram=V100.gpu.dram.model_copy(update=changed))
    costs, energies = [], []
    for batch in (1, 2000):  # steps of 32 B: L2 holds what a CTA on each SM reads, not what four do
        gemm = Gemm(64, 64, 2000, Dtype.FP32, batch=batch, layout="tn", order="column")
        traffic = plan(arch.gpu, gemm, kernel(V100, VOLTA_SGEMM)).main.traffic
        costs.append(traffic.read_cost * (1 + 64 / 2048))
        energies.append(traffic.read_energy * (1 + 64 / 2048))
    assert costs[0] == pytest.approx(1 + 64 / 64)
    assert energies[0] == pytest.approx(1 + 64 / 32)
    assert costs[0] < costs[1] <= 1 + 1 + 64 / 32
    assert energies[1] >= costs[1]


@pytest.mark.parametrize(
    ("k", "cost"),
    [(8192, 1 + 64 / 64), (8200, 1 + 2 * 64 / 64)],  # rows of 16,384 and of 16,400 B
)
def test_pages_of_rows_far_apart_are_in_the_same_banks_and_closed_first(k: int, cost: float) -> None:
    changed = {"page_bytes": 2048.0, "activation_bytes": 64.0, "conflict_stride_bytes": 16400.0, "conflict_cost": 2.0}
    arch = with_gpu(V100, dram=V100.gpu.dram.model_copy(update=changed))
    gemm = Gemm(64, 64, k, Dtype.FP16, layout="tn", order="column")
    planned = plan(arch.gpu, gemm, kernel(V100, "volta_fp16_s884gemm_fp16_64x64_ldg8_f2f_tn"))
    assert planned.main.traffic.read_cost == pytest.approx(cost / (1 + 64 / 2048))


@pytest.mark.parametrize(("k", "cost"), [(8192, 1.0), (8200, 2.0)])
def test_in_full_detail_the_same_pages_are_closed_first(k: int, cost: float) -> None:
    arch = with_gpu(V100, dram=V100.gpu.dram.model_copy(update={"conflict_stride_bytes": 16400.0}))
    gemm = Gemm(64, 64, k, Dtype.FP16, layout="tn", order="column")
    planned = plan(arch.gpu, gemm, kernel(V100, "volta_fp16_s884gemm_fp16_64x64_ldg8_f2f_tn"))
    (launch,) = lower_tiles(arch.gpu, planned)
    opened = []
    for conflict_cost in (1.0, 2.0):
        machine = replace(Machine.of(arch.gpu, 1000.0), dram_conflict_cost=conflict_cost)
        tables = tables_of(machine, launch)
        read = next(tensor for tensor in launch.tensors if tensor.runs and tensor.runs.axis is None)
        opened.append(read_of(machine, read, tables[read.name], Read(read.name, 1.0, 1.0), 1).page_bytes)
    assert opened[1] == pytest.approx(cost * opened[0])


PITCHES = [(2048, 2), (4096, 2), (8192, 1), (2560, 1), (2816, 1), (3072, 1)]
"""Values of k in FP16, and rows that meet in a page whose parts lie 8 KB apart, within 16 KB."""


@pytest.mark.parametrize(("k", "rows"), PITCHES)
def test_rows_a_power_of_two_apart_meet_in_pages(k: int, rows: int) -> None:
    changed = {"page_bytes": 2048.0, "activation_bytes": 64.0, "conflict_stride_bytes": 16384.0, "conflict_cost": 1.0}
    arch = with_gpu(V100, dram=V100.gpu.dram.model_copy(update={**changed, "page_part_stride_bytes": 8192}))
    gemm = Gemm(64, 64, k, Dtype.FP16, layout="tn", order="column")
    planned = plan(arch.gpu, gemm, kernel(V100, "volta_fp16_s884gemm_fp16_64x64_ldg8_f2f_tn"))
    assert planned.main.traffic.read_cost == pytest.approx((1 + 64 / (64 * rows)) / (1 + 64 / 2048))


@pytest.mark.parametrize(("k", "rows"), PITCHES)
def test_in_full_detail_rows_meet_in_the_same_pages(k: int, rows: int) -> None:
    gemm = Gemm(64, 64, k, Dtype.FP16, layout="tn", order="column")
    planned = plan(V100.gpu, gemm, kernel(V100, "volta_fp16_s884gemm_fp16_64x64_ldg8_f2f_tn"))
    (launch,) = lower_tiles(V100.gpu, planned)
    pages = []
    for part_stride_bytes in (10**9, 8192):
        machine = replace(Machine.of(V100.gpu, 1000.0), dram_page_part_stride_bytes=part_stride_bytes)
        tables = tables_of(machine, launch)
        read = next(tensor for tensor in launch.tensors if tensor.runs and tensor.runs.axis is None)
        pages.append(read_of(machine, read, tables[read.name], Read(read.name, 1.0, 1.0), 1).pages)
    assert pages[0] == pytest.approx(rows * pages[1])


@pytest.mark.parametrize(
    ("name", "taken_bytes"),
    [
        (AMPERE_HGEMM, 32 * 2),  # five stages: one step of 32 values of k at a time, a unit of L2
        (AMPERE_HGEMM.replace("32x5", "64x3"), 64 * 2),
    ],
)
def test_each_step_of_a_ring_opens_the_pages_of_its_slices_again(name: str, taken_bytes: int) -> None:
    dram = A100.gpu.dram.model_copy(update={"page_bytes": 2048.0, "activation_bytes": 64.0})
    # All of L2: lines outlive the step, so that nothing is read again
    roomy = A100.gpu.l2.model_copy(update={"usable_fraction": 1.0})
    arch = with_gpu(A100, dram=dram, l2=roomy)
    planned = plan(arch.gpu, Gemm(128, 128, 4096, Dtype.FP16, layout="tn", order="column"), kernel(arch, name))
    assert planned.main.traffic.read_cost == pytest.approx((1 + 64 / taken_bytes) / (1 + 64 / 2048))


SLICES = [(4096, 256), (128, 2048)]
"""Values of k in FP16, of which a step takes 128, and bytes that are read of a page: whole rows follow each other."""
WMMA = "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x1_tn_align8"


@pytest.mark.parametrize(("k", "taken_bytes"), SLICES)
def test_a_slice_of_a_row_opens_a_page(k: int, taken_bytes: int) -> None:
    changed = {"page_bytes": 2048.0, "activation_bytes": 64.0}
    arch = with_gpu(A100, dram=A100.gpu.dram.model_copy(update=changed))
    planned = plan(arch.gpu, Gemm(32, 32, k, Dtype.FP16, layout="tn", order="column"), kernel(arch, WMMA))
    assert planned.main.traffic.read_cost == pytest.approx((1 + 64 / taken_bytes) / (1 + 64 / 2048))


@pytest.mark.parametrize(("k", "taken_bytes"), SLICES)
def test_in_full_detail_a_slice_opens_as_many(k: int, taken_bytes: int) -> None:
    planned = plan(A100.gpu, Gemm(32, 32, k, Dtype.FP16, layout="tn", order="column"), kernel(A100, WMMA))
    (launch,) = lower_tiles(A100.gpu, planned)
    machine = replace(Machine.of(A100.gpu, 1000.0), dram_page_bytes=2048.0)
    tables = tables_of(machine, launch)
    read = next(tensor for tensor in launch.tensors if tensor.runs and tensor.runs.axis is None)
    encoded = read_of(machine, read, tables[read.name], Read(read.name, 1.0, 1.0), 1)
    assert encoded.pages == pytest.approx(32 * 256 / taken_bytes)


@pytest.mark.parametrize(("batch", "larger"), [(1, False), (640, True)])
def test_pieces_of_rows_cost_dram_the_rest_where_more_are_read_at_once_than_l2_holds(batch: int, larger: bool) -> None:
    arch = with_gpu(V100, dram=V100.gpu.dram.model_copy(update={"page_part_stride_bytes": 10**9}))
    costs = []
    for k in (1024, 1025):  # 8 values a step: a sector each, or parts of two
        gemm = Gemm(64, 128, k, Dtype.FP32, batch=batch, layout="tn")
        costs.append(plan(arch.gpu, gemm, kernel(V100, VOLTA_SGEMM)).main.traffic.read_cost)
    assert (costs[1] > 1.1 * costs[0]) == larger


@pytest.mark.parametrize(
    ("k", "rows", "unit", "touched"),
    [
        (1024, 4, 1, 4 * 32.0),
        (1024, 4, 128, 4 * 128.0),  # 32 aligned bytes of a line
        (1025, 4, 64, 4 * (32 + 64 - 4)),  # at any multiple of 4: one unit, and another 7 times of 16
        (10, 4, 64, 4 * 40.0),  # rows of 40 B follow each other
    ],
)
def test_a_slice_touches_whole_units_of_memory(k: int, rows: int, unit: int, touched: float) -> None:
    operands = Problems.of([problem_of(Gemm(64, 128, k, Dtype.FP32, layout="tn"))]).operands
    assert operands.touched_bytes(rows, 8, unit)[0][0] == pytest.approx(touched)


def test_streaming_an_operand_that_lies_along_k_takes_longer() -> None:
    times = []
    for layout in ("nn", "tn"):
        gemm = Gemm(8448, 16, 2816, Dtype.FP32, layout=layout, order="column")
        name = VOLTA_SGEMM.replace("tn", layout)
        times.append(predict(V100, gemm, Options(kernel=name)).kernel_time_us)
    assert times[0] < times[1]
