"""Specs made from datasheets: what is stated is kept, the rest is derived from the most similar board and says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from conftest import shipped_spec

from gpusim.errors import InputError
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.specs import Spec, implausibilities, list_archs, load_spec
from gpusim.specs.datasheet import Datasheet, spec_of
from gpusim.workloads.convolution import Convolution, ConvolutionShape
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.vector import Softmax

OPERATORS = (
    Gemm(512, 512, 512, Dtype.FP16),
    Gemm(4096, 4096, 4096, Dtype.FP16),
    Gemm(16, 4096, 4096, Dtype.FP16),
    Gemm(2048, 2048, 2048, Dtype.FP32),
    Softmax(16384, 1024, Dtype.FP32),
    Convolution(ConvolutionShape(32, 64, 56, 56, 64, 3, 3, pad=(1, 1)), Dtype.FP16),
)
BOARDS = [entry.name for entry in list_archs() if entry.name != "teaching"]
CAPABILITIES = Counter(shipped_spec(board).gpu.compute_capability for board in BOARDS)
ALONE = {capability for capability, count in CAPABILITIES.items() if count == 1}


def made(sheet: Datasheet, folder: Path, *, like: str | None = None) -> Spec:
    """The board of a datasheet, made without its own shipped spec."""
    path = folder / "made.yaml"
    path.write_text(spec_of(sheet, (), folder, like=like, without={sheet.name}).text, encoding="utf-8")
    return load_spec(path)


def own_values(spec: Spec) -> dict[str, tuple[object, str, str]]:
    """Value, kind and source of what the file of a board states itself."""
    return {key: (one.value, one.kind, one.source) for key, one in spec.provenance.items() if one.file == spec.files[0]}


def test_what_is_stated_is_kept_and_the_rest_says_from_what_it_follows(tmp_path: Path) -> None:
    sheet = replace(Datasheet.of(load_spec("rtx-3070").gpu), source="GA104 datasheet", dram_rate="256 bit / 8 x 14")
    spec = made(sheet, tmp_path, like="rtx-3090")
    found = own_values(spec)
    stated = {key: value for key, (value, kind, _) in found.items() if kind == "datasheet"}
    assert stated == {
        "clock.base_mhz": 1500.0,
        "clock.boost_mhz": 1725.0,
        "sm.count": 46,
        "l2.capacity_mib": 4.0,
        "dram.capacity_gb": 8.0,
        "dram.peak_bandwidth_gb_per_s": 448.0,
        "power.board_limit_w": 220.0,
        "stated_peaks.hmma_16816_f32": pytest.approx(40.6, rel=0.01),
    }
    assert found["sm.count"][2] == "GA104 datasheet"
    assert found["dram.peak_bandwidth_gb_per_s"][2] == "GA104 datasheet: 256 bit / 8 x 14"
    value, kind, source = found["l2.bandwidth_bytes_per_cycle"]
    assert (value, kind) == (pytest.approx(1430 * 4 / 6, rel=1e-3), "assumed")
    assert str(source).startswith("1430 B/cycle of RTX-3090 x 4 / 6 MiB (A40's 1430 B/cycle")
    assert found["power.idle_w"][:2] == (pytest.approx(87 * 220 / 350, rel=1e-3), "assumed")
    # its memory is GDDR6, so that the values of a board with GDDR6 hold, not those of the RTX 3090
    assert spec.gpu.dram.technology == "GDDR6"
    assert str(found["dram.efficiency_fraction"][2]).startswith("as on RTX-3060-Ti: ")
    assert "dram.latency_ns" not in found
    assert {kind for _, kind, _ in found.values()} == {"datasheet", "assumed"}
    assert spec.system.calibrated_on == "architecture"


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
def test_every_shipped_board_can_be_made_from_its_datasheet(board: str, tmp_path: Path) -> None:
    sheet = replace(Datasheet.of(load_spec(board).gpu), fp16_tflops=None)
    if sheet.compute_capability in ALONE:
        with pytest.raises(InputError, match="no board to derive the rest from"):
            spec_of(sheet, without={board})
        return
    spec = made(sheet, tmp_path)
    assert not implausibilities(spec)
    open_values = dict.fromkeys(("max_mhz", "nvlink_gb_per_s", "fp16_tflops"))
    again = replace(Datasheet.of(spec.gpu), **open_values)  # type: ignore[arg-type]
    assert again == replace(sheet, **open_values)  # type: ignore[arg-type]
    if sheet.nvlink_gb_per_s is not None:
        links = spec.gpu.links["nvlink"]
        assert 2 * links.count * links.gb_per_s == pytest.approx(sheet.nvlink_gb_per_s)


@pytest.mark.parametrize(
    ("board", "like", "most"),
    [
        ("V100-PCIe-32GB", "V100-PCIe-16GB", 0.001),
        ("A100-SXM4-80GB", "A800-SXM4-80GB", 0.001),
        ("RTX-3090", "RTX-3080-Ti", 0.05),
        ("A40", "RTX-A6000", 0.02),
        ("RTX-2070", "RTX-2060-Super", 0.03),
    ],
)
def test_a_board_made_again_predicts_about_what_it_did(board: str, like: str, most: float, tmp_path: Path) -> None:
    shipped = load_spec(board)
    spec = made(Datasheet.of(shipped.gpu), tmp_path)
    assert f"the rest after {like}, by" in (tmp_path / "made.yaml").read_text(encoding="utf-8")
    options = Options(limits=False)
    times_us = [[predict(one.system, operator, options).time_us for operator in OPERATORS] for one in (shipped, spec)]
    assert median(abs(after / before - 1) for before, after in zip(*times_us, strict=True)) <= most


def test_the_stated_fp16_peak_tells_boards_of_half_the_rate_apart(tmp_path: Path) -> None:
    t4 = Datasheet.of(load_spec("t4").gpu)
    assert t4.fp16_tflops == pytest.approx(65.1, abs=0.1)
    text = spec_of(t4, (), tmp_path, without={"T4"}).text
    assert "after Quadro-RTX-4000," in text
    half = spec_of(replace(t4, fp16_tflops=32.6), (), tmp_path, without={"T4"})
    assert half.like.startswith("RTX-20")
    with pytest.raises(InputError, match=r"^50 TFLOP/s of FP16: with 40 SMs at 1590 MHz a board of .* has 32\.6 or 65"):
        spec_of(replace(t4, fp16_tflops=50.0))


def test_clocks_above_boost_are_as_of_the_other_board(tmp_path: Path) -> None:
    rtx = Datasheet.of(load_spec("rtx-2070").gpu)
    assert made(rtx, tmp_path).gpu.clock.max_mhz == 2100
    assert made(replace(rtx, max_mhz=1700.0), tmp_path).gpu.clock.max_mhz == 1700
    h100 = Datasheet.of(load_spec("h100-pcie").gpu)
    slower = made(replace(h100, boost_mhz=1600.0, max_mhz=None, fp16_tflops=None), tmp_path).gpu.clock
    assert slower.max_mhz == 1600  # as H100 SXM runs no higher than its boost clock
    assert slower.tensor_boost_mhz == pytest.approx(1600 * 1830 / 1980, rel=1e-3)


def test_a_board_of_a_new_architecture_is_derived_from_a_named_one_and_calibrated_on_nothing(tmp_path: Path) -> None:
    sheet = replace(
        Datasheet.of(load_spec("rtx-3090").gpu), name="New", architecture="made-up", compute_capability="19.0"
    )
    with pytest.raises(InputError, match=r"^made-up 19\.0: no board to derive the rest from \(there are .*turing 7\.5"):
        spec_of(sheet)
    spec = made(sheet, tmp_path, like="rtx-3080")
    assert (spec.gpu.architecture, spec.gpu.compute_capability) == ("made-up", "19.0")
    assert spec.system.calibrated_on == "nothing"
    with pytest.raises(InputError, match=r"ampere: has compute capabilities 8\.0, 8\.6; state --compute-capability"):
        spec_of(replace(sheet, architecture="Ampere", compute_capability=""))
    with pytest.raises(InputError, match=r"^no --architecture and no --compute-capability"):
        spec_of(replace(sheet, architecture="", compute_capability=""))
