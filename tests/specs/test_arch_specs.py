"""The shipped specs: they load, every number has a source, and peaks agree with the vendors'."""

import re
from collections import Counter

import pytest
from conftest import REPOSITORY, golden_rows, unfitted
from gemm_kernels import BOARDS

from gpusim.cuda_version import CudaVersion
from gpusim.library.library import Library
from gpusim.numbers.formats import Dtype
from gpusim.prediction.predict import predict
from gpusim.specs import ArchEntry, Spec, list_archs, load_spec
from gpusim.specs.sourced import KINDS
from gpusim.workloads.gemm import Gemm

VENDOR_PEAKS = golden_rows("vendor_peaks.csv")
SPECS = REPOSITORY / "arch_specs"
VENDOR_TOLERANCE = 0.01  # vendors round to two digits: 14 TFLOP/s for the V100's 14.13


def derived(spec: Spec, quantity: str) -> float:
    if quantity == "dram_bandwidth":
        return spec.gpu.dram.peak_bandwidth_gb_per_s
    return spec.gpu.peak_tflops(spec.gpu.instructions[quantity])


@pytest.mark.parametrize("name", BOARDS)
def test_every_shipped_spec_loads_under_its_own_name(name: str) -> None:
    assert load_spec(name).gpu.name == name


@pytest.mark.parametrize("row", VENDOR_PEAKS, ids=lambda row: f"{row['arch']}-{row['quantity']}")
def test_derived_peak_is_within_one_percent_of_the_vendor(row: dict[str, str]) -> None:
    assert row["source"]
    assert row["unit"] in {"TFLOP/s", "TOP/s", "GB/s"}
    assert derived(load_spec(row["arch"]), row["quantity"]) == pytest.approx(float(row["value"]), rel=VENDOR_TOLERANCE)


def test_every_board_but_the_textbook_has_vendor_figures() -> None:
    assert {row["arch"] for row in VENDOR_PEAKS} == set(BOARDS) - {"teaching"}


@pytest.mark.parametrize("name", BOARDS)
def test_no_value_is_without_source_and_kind(name: str) -> None:
    for key_path, origin in load_spec(name).provenance.items():
        assert origin.kind in KINDS, key_path
        assert len(origin.source) > 2, key_path
        assert origin.file is not None
        assert origin.line >= 1


@pytest.mark.parametrize("name", BOARDS)
def test_every_number_of_the_model_has_a_provenance(name: str) -> None:
    spec = load_spec(name)
    numbers = {
        f"{part}.{key}"
        for part in ("clock", "sm", "shared_memory", "load_store", "l2", "dram", "front_end", "power")
        for key, value in getattr(spec.gpu, part)
        if value is not None and not isinstance(value, str | dict)
    }
    numbers |= {f"instructions.{key}.issue_interval_cycles" for key in spec.gpu.instructions}
    assert numbers <= set(spec.provenance)


@pytest.mark.parametrize("name", BOARDS)
def test_a_fitted_value_says_by_which_data_and_what_it_was(name: str) -> None:
    for key_path, origin in load_spec(name).provenance.items():
        if origin.kind == "fitted":
            assert re.match(r"[^:]*, data sha256 [0-9a-f]{12}: ", origin.source), key_path
        if origin.source.startswith("gpusim calibrate"):
            assert re.match(r"gpusim calibrate( --library nvidia)?, \d{4}-\d\d-\d\d, data sha256 ", origin.source), (
                key_path
            )
            if not key_path.startswith("library."):
                assert re.search(
                    r"was \S+ \((measured|assumed|fitted)\);( \S+ ± \d+ % by microbenchmarks;)? 95 % \S+ to \S+$",
                    origin.source,
                ), key_path


def test_no_other_simulators_config_is_the_source_of_a_value() -> None:
    for name in BOARDS:
        for key_path, origin in load_spec(name).provenance.items():
            if key_path != "sm.cta_launch_cycles":  # names the disagreement of simulators, takes neither
                assert not any(word in origin.source for word in ("GPGPU-Sim", "Accel-Sim", "PPT")), key_path


@pytest.mark.parametrize("name", BOARDS)
def test_a_register_only_benchmark_stays_below_the_peak_rate(name: str) -> None:
    for instruction in load_spec(name).gpu.instructions.values():
        assert 0.5 < instruction.sustained_fraction <= 1
        assert instruction.latency_cycles >= instruction.issue_interval_cycles or instruction.unit == "cuda"


SPELLINGS = [
    ("v100-sxm2-16gb", "V100-SXM2-16GB"),
    ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
    ("NVIDIA Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
    ("Tesla V100-PCIE-32GB", "V100-PCIe-32GB"),
    ("v100-pcie-32gb", "V100-PCIe-32GB"),
    ("v100_pcie_16gb", "V100-PCIe-16GB"),
    ("t4", "T4"),
    ("Tesla T4", "T4"),
    ("NVIDIA T4", "T4"),
    ("rtx-2080-ti", "RTX-2080-Ti"),
    ("NVIDIA GeForce RTX 2080 Ti", "RTX-2080-Ti"),
    ("titan-rtx", "TITAN-RTX"),
    ("NVIDIA TITAN RTX", "TITAN-RTX"),
    ("GeForce RTX 2060 SUPER", "RTX-2060-Super"),
    ("rtx_2070", "RTX-2070"),
    ("NVIDIA GeForce GTX 1660 Ti", "GTX-1660-Ti"),
    ("NVIDIA GeForce GTX 1660 SUPER", "GTX-1660-Super"),
    ("NVIDIA GeForce RTX 2080", "RTX-2080"),
    ("NVIDIA GeForce RTX 2080 SUPER", "RTX-2080-Super"),
    ("Quadro RTX 6000", "Quadro-RTX-6000"),
    ("NVIDIA TITAN V", "TITAN-V"),
    ("Tesla V100S-PCIE-32GB", "V100S-PCIe-32GB"),
    ("a100-pcie-40gb", "A100-PCIe-40GB"),
    ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
    ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
    ("a100-pcie-80gb", "A100-PCIe-80GB"),
    ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
    ("a100-sxm4-80gb", "A100-SXM4-80GB"),
    ("A100-SXM4-80GB", "A100-SXM4-80GB"),
    ("rtx-3090", "RTX-3090"),
    ("NVIDIA GeForce RTX 3080", "RTX-3080"),
    ("NVIDIA GeForce RTX 3080 Ti", "RTX-3080-Ti"),
    ("NVIDIA RTX A6000", "RTX-A6000"),
    ("NVIDIA RTX A2000 12GB", "RTX-A2000-12GB"),
    ("NVIDIA A30", "A30"),
    ("NVIDIA A800-SXM4-80GB", "A800-SXM4-80GB"),
    ("NVIDIA A40", "A40"),
    ("a10", "A10"),
    ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
    ("h100-sxm5-80gb", "H100-SXM5-80GB"),
    ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
    ("NVIDIA H200", "H200-SXM-141GB"),
    ("h200-sxm-141gb", "H200-SXM-141GB"),
    ("NVIDIA GH200 480GB", "GH200-480GB"),
    ("gh200", "GH200-480GB"),
    ("Teaching", "teaching"),
]


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS)
def test_nvidia_smi_strings_and_board_ids_name_the_board(spelling: str, name: str) -> None:
    assert load_spec(spelling).gpu.name == name


@pytest.mark.parametrize("entry", list_archs(), ids=lambda entry: entry.name)
def test_every_alias_and_stem_names_its_own_board_only(entry: ArchEntry) -> None:
    for spelling in (*entry.aliases, entry.path.stem):
        assert load_spec(spelling).gpu.name == entry.name


def test_geforce_accumulates_fp32_at_half_the_rate_of_the_datacenter_board() -> None:
    geforce, datacenter = load_spec("RTX-3090").gpu, load_spec("A40").gpu
    key = "hmma_16816_f32"
    assert geforce.instructions[key].issue_interval_cycles == 2 * datacenter.instructions[key].issue_interval_cycles


def test_a_turing_board_without_tensor_cores_multiplies_fp16_on_cuda_cores_at_twice_the_fp32_rate() -> None:
    spec = load_spec("GTX-1660-Ti")
    table = spec.gpu.instructions
    assert {one.unit for one in table.values()} == {"cuda"}
    assert spec.gpu.peak_tflops(table["hfma2"]) == 2 * spec.gpu.peak_tflops(table["ffma"])
    assert {kernel.family.instruction for kernel in spec.system.library.kernels} <= set(table)


@pytest.mark.parametrize(("accumulate", "family"), [("fp32", "volta_fp16_sgemm_fp16"), ("fp16", "cutlass_simt_hgemm")])
def test_a_turing_board_without_tensor_cores_runs_fp16_products(accumulate: str, family: str) -> None:
    result = predict(load_spec("GTX-1650").system, Gemm(512, 512, 512, Dtype.FP16, accumulate=accumulate))
    assert result.launch.kernel.startswith(family)


def test_small_k_sparse_shapes_fall_short_of_twice_the_dense_rate_on_a100() -> None:
    table = unfitted("A100-SXM4-80GB").gpu.instructions
    # Sun et al.: m16n8k16 sparse 1290 multiply-adds a cycle and SM, k32 1979, dense 1004
    rates = {
        key: 4 * table[key].fma / table[key].issue_interval_cycles * table[key].sustained_fraction
        for key in ("hmma_16816_f32", "hmma_sp_16816_f32", "hmma_sp_16832_f32")
    }
    assert rates["hmma_sp_16816_f32"] == pytest.approx(1290, rel=0.001)
    assert rates["hmma_sp_16832_f32"] == pytest.approx(1979, rel=0.001)
    assert rates["hmma_16816_f32"] == pytest.approx(1004, rel=0.001)


def test_textbook_machine_adds_up_to_the_textbook_cycles() -> None:
    arch = load_spec("teaching").gpu
    memory = arch.l2.latency_cycles
    shared = arch.shared_memory.latency_cycles
    assert memory == arch.dram.latency_ns * arch.clock.boost_mhz / 1000
    assert memory + shared + arch.instructions["mma_teaching"].latency_cycles == 221
    # 32^3 multiply-adds / (64 warps x 64 each) = 8 steps a warp
    steps = 32**3 // (64 * arch.instructions["ffma"].fma)
    assert memory + steps * (shared + arch.instructions["ffma"].latency_cycles) == 392


@pytest.mark.parametrize("name", ["T4", "V100-SXM2-16GB"])
def test_the_newest_library_as_of_an_older_version_of_cuda_has_the_kernels_of_the_older_one(name: str) -> None:
    newest, older = load_spec(name).system.library, load_spec(name, cuda=10).system.library

    def kernels(library: Library) -> Counter[tuple[str, int, int]]:
        return Counter((one.family.name, one.family.swizzle_width, one.tile_m) for one in library.kernels)

    assert kernels(newest.as_of(CudaVersion(10))) == kernels(older) != kernels(newest)


@pytest.mark.parametrize("cuda", [10, 11, "11.8", "12.4", 12, 13])
def test_every_board_has_a_library_for_every_version_of_cuda(cuda: int | str) -> None:
    for entry in list_archs():
        assert load_spec(entry.name, cuda=cuda).system.library.split_k_search is not None


def test_the_readme_counts_the_boards_that_ship() -> None:
    (stated,) = re.findall(r"Specs of (\d+) boards", (REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert int(stated) == sum(
        load_spec(entry.name).gpu.architecture not in ("teaching", "blackwell") for entry in list_archs()
    )
