"""Writes the tables of docs/design_space.md, which predict the products of experiments/decode_design_space.yaml.

python benchmarks/design_space_page.py
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from sections import replaced, row

from gpusim.execution.cases import OperatorCase
from gpusim.execution.sweep import predict_all
from gpusim.experiment.loading import load_experiment
from gpusim.hardware.gpu import Gpu
from gpusim.prediction.results import Result
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

PAGE = Path(__file__).resolve().parent.parent / "docs" / "design_space.md"
LAYERS = ("a layer of 7B", "a layer of 70B")
DRAFT = "a layer of a 68M draft model"
LIBRARIES = {"tuned": True, "as shipped": False}
"""Library -> whether it is tuned for the changed GPU."""
DRAM = (1.0, 1.5, 2.0, 3.0)
CAPACITIES = (0.5, 1.0, 2.0, 4.0, 8.0)
BANDWIDTHS = (0.25, 0.5, 2.0)
"""DRAM bandwidths, L2 capacities and other L2 bandwidths, in multiples of the A100's."""


@dataclass(frozen=True)
class Point:
    """A GPU in multiples of the A100's values, its library, and the state of L2."""

    dram: float = 1.0
    capacity: float = 1.0
    bandwidth: float = 1.0
    tuned: bool = True
    l2: str = "cold"


def main() -> None:
    """Predict the products and write the page."""
    PAGE.write_text(replaced(PAGE, sections()), encoding="utf-8")
    print(f"wrote {PAGE}")


def sections() -> dict[str, str]:
    """What the page says of predictions, by the names of the markers around it."""
    return {
        "weights": weights(),
        "dram-bandwidth": dram_bandwidth(),
        "kernels": kernels(),
        "warm-l2": warm_l2(),
        "copies-in-l2": copies_in_l2(),
        "l2-bandwidth": l2_bandwidth(),
        "l2-peak": l2_peak(),
        "half-l2-bandwidth": half_l2_bandwidth(),
    }


def weights() -> str:
    """The sizes of the layers."""
    rows = [[layer, f"{sum(weights_mib(layer).values()):.0f} MiB"] for layer in (*LAYERS, DRAFT)]
    return table(["", "weights"], rows)


def dram_bandwidth() -> str:
    """Time of a layer against DRAM bandwidth."""
    headings = [f"{layer}, {library}" for library in LIBRARIES for layer in LAYERS]
    rows = []
    for dram in DRAM:
        times = [
            (layer_us(layer, Point(dram, tuned=tuned)), layer_us(layer, Point(tuned=tuned)))
            for tuned in LIBRARIES.values()
            for layer in LAYERS
        ]
        rows.append([f"{dram:g}x", *(f"{time:.0f} µs, {shipped / time:.2f}x" for time, shipped in times)])
    return table(["DRAM bandwidth", *headings], rows)


def kernels() -> str:
    """What runs each product at each DRAM bandwidth, and the part of the DRAM's peak that it draws."""

    def drawn(layer: str, index: int, point: Point) -> str:
        result = products(layer, point)[index]
        peak_gb_per_s = point.dram * shipped().dram.peak_bandwidth_gb_per_s
        return percent(result.counters.dram_bytes / result.time_us / 1e3 / peak_gb_per_s)

    return product_table({f"{dram:g}x": Point(dram) for dram in DRAM}, drawn)


def half_l2_bandwidth() -> str:
    """What runs each product at half of the L2 bandwidth, and how much longer that takes."""

    def cost(layer: str, index: int, point: Point) -> str:
        half, full = (products(layer, one)[index].time_us for one in (point, replace(point, bandwidth=1.0)))
        return change(half, full)

    points = {
        f"{dram:g}x, {library}": Point(dram, bandwidth=0.5, tuned=tuned)
        for dram in DRAM[:2]
        for library, tuned in LIBRARIES.items()
    }
    return product_table(points, cost)


def product_table(points: Mapping[str, Point], figure: Callable[[str, int, Point], str]) -> str:
    """The kernel of each product on each GPU (tokens of its tile, parts of K), what binds it, and a figure of it."""

    def cell(layer: str, index: int, point: Point) -> str:
        result = products(layer, point)[index]
        split = f" K/{result.launch.split_k}" if result.launch.split_k > 1 else ""
        return f"{tokens_of_tile(result)}{split}, {busiest(result)}, {figure(layer, index, point)}"

    rows = [
        [f"{layer.removeprefix('a layer of ')} {label}", *(cell(layer, index, point) for point in points.values())]
        for layer in LAYERS
        for index, label in enumerate(weights_mib(layer))
    ]
    return table(["product", *points], rows)


def warm_l2() -> str:
    """What a warm L2 saves of a layer, and what twice the DRAM bandwidth saves."""
    capacity_mib = shipped().l2.capacity_mib
    points = {f"warm, {size * capacity_mib:.0f} MiB": Point(capacity=size, l2="warm") for size in CAPACITIES}
    points["cold, twice the DRAM bandwidth"] = Point(2.0)
    layers = (*LAYERS, DRAFT)
    rows = [
        [name, *(change(layer_us(layer, point), layer_us(layer, Point())) for layer in layers)]
        for name, point in points.items()
    ]
    return table(["L2", *layers], rows)


def copies_in_l2() -> str:
    """What the largest L2 keeps of the largest product of 7B."""
    l2 = shipped().l2
    layer, capacity = LAYERS[0], CAPACITIES[-1]
    size_mib, index, label = max((size, index, label) for index, (label, size) in enumerate(weights_mib(layer).items()))
    points = [Point(capacity=capacity, l2=state) for state in ("cold", "warm")]
    cold, warm = (products(layer, point)[index].counters.dram_bytes for point in points)
    copy_mib = capacity * l2.capacity_mib / l2.partitions
    rows = [
        [f"weights of {label} of 7B", f"{size_mib:.0f} MiB"],
        ["a partition of the largest L2", f"{copy_mib:.0f} MiB"],
        ["of which keep lines until the next run", f"{l2.usable_fraction * copy_mib:.0f} MiB"],
        ["what the product reads from DRAM warm, of what it reads cold", percent(warm / cold)],
    ]
    return table(["", ""], rows)


def l2_bandwidth() -> str:
    """What other L2 bandwidths cost of a layer, against DRAM bandwidth."""
    rows = [
        [
            f"{dram:g}x, {library}",
            *(
                change(
                    layer_us(layer, Point(dram, bandwidth=one, tuned=tuned)), layer_us(layer, Point(dram, tuned=tuned))
                )
                for layer in LAYERS
                for one in BANDWIDTHS
            ),
        ]
        for dram in DRAM
        for library, tuned in LIBRARIES.items()
    ]
    return table(["DRAM bandwidth", *(f"{layer}, {one:g}x" for layer in LAYERS for one in BANDWIDTHS)], rows)


def l2_peak() -> str:
    """The peak bandwidths of the A100's L2 and DRAM."""
    gpu = shipped()
    l2_tb_per_s = gpu.l2.bandwidth_bytes_per_cycle * gpu.clock.max_mhz / 1e6
    dram_tb_per_s = gpu.dram.peak_bandwidth_gb_per_s / 1e3
    return table(
        ["L2", "a quarter of L2", "DRAM"],
        [[f"{one:.2f} TB/s" for one in (l2_tb_per_s, l2_tb_per_s / 4, dram_tb_per_s)]],
    )


@cache
def shipped() -> Gpu:
    """The GPU that the experiment varies."""
    return load_spec("A100-SXM4-80GB").system.gpu


@cache
def cases(*, tuned: bool) -> Mapping[tuple[object, ...], Mapping[str, OperatorCase]]:
    """The products of a layer by label; layers by name, state of L2, family of GPUs, and values that vary."""
    families = [] if tuned else [f"gpus.{family}.retuned=false" for family in range(2)]
    layers: dict[tuple[object, ...], dict[str, OperatorCase]] = defaultdict(dict)
    for one in load_experiment("decode_design_space", families).cases():
        layers[one.group, one.case.workload.options.l2, *one.gpu_columns.values()][one.label] = one.case
    return layers


def layer_cases(layer: str, point: Point) -> Mapping[str, OperatorCase]:
    """The products of a layer on a GPU, by label."""
    gpu = shipped()
    values = (
        point.capacity * gpu.l2.capacity_mib,
        point.dram * gpu.dram.peak_bandwidth_gb_per_s,
        point.bandwidth * gpu.l2.bandwidth_bytes_per_cycle,
    )
    family = "L2 capacity varied" if point.bandwidth == 1.0 else "L2 bandwidth varied"
    return cases(tuned=point.tuned)[layer, point.l2, family, *values]


@cache
def products(layer: str, point: Point) -> tuple[Result, ...]:
    """The predictions of a layer's products on a GPU."""
    return tuple(one.or_raise() for one in predict_all(list(layer_cases(layer, point).values())))


def layer_us(layer: str, point: Point) -> float:
    """Time of the products of a layer [µs]."""
    return sum(one.time_us for one in products(layer, point))


def weights_mib(layer: str) -> dict[str, float]:
    """Size of the FP16 weights of each product of a layer [MiB], by label."""
    operators = {label: case.workload.operator for label, case in layer_cases(layer, Point()).items()}
    return {label: 2 * one.n * one.k / 2**20 for label, one in operators.items() if isinstance(one, Gemm)}


def busiest(result: Result) -> str:
    """What takes the largest share of the time."""
    return next(iter(result.utilization.time_shares))


def tokens_of_tile(result: Result) -> int:
    """Tokens in a tile of the kernel of a product: its tile is weights by tokens."""
    tile = re.search(r"_(?:tilesize)?(\d+)x(\d+)[_x]", result.kernel)
    assert tile, result.kernel
    return int(tile[2])


def change(time_us: float, from_us: float) -> str:
    """How much longer a time is than another."""
    per_mille = round(1000 * (time_us / from_us - 1))
    return f"{per_mille / 10:+.1f} %" if per_mille else "0 %"


def percent(part: float) -> str:
    """A part of one, as the pages have it."""
    return f"{100 * part:.0f} %"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [row(headings), "|---" * len(headings) + "|", *map(row, rows), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
