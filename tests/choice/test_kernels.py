"""Kernel catalogues: they load, kernels fit their SMs, and names are those of the libraries."""

import hashlib
import pickle
import re
from pathlib import Path

import pytest
from conftest import REPOSITORY
from gemm_kernels import BOARDS, BOARDS_OF_LIBRARIES, made_for

from gpusim.files.yamlfile import SpecError
from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import WgmmaLoop
from gpusim.lowering.gemm.kernel_table import table_of
from gpusim.lowering.gemm.plan import plan
from gpusim.lowering.gemm.problem import problem_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.specs import load_spec, with_overrides
from gpusim.specs.catalogues import (
    catalogue_files,
    load_attention_kernels,
    load_convolution_kernels,
    load_convolution_transforms,
    load_kernels,
    load_vector_kernels,
)
from gpusim.specs.folders import ARCH_PATH_VARIABLE, search_folders
from gpusim.workloads.gemm import LAYOUTS, Gemm, Layout

REDUCTION = "split_k_reduction"
"""The catalogue of the second kernel, without which no family splits k with one."""
CATALOGUES = sorted((REPOSITORY / "arch_specs" / "kernels").glob("*.yaml"))


def named(*names: str) -> tuple[Path, ...]:
    """Catalogues where the environment says that specs lie, or shipped ones."""
    folders = search_folders(())
    return catalogue_files(names, folders, folders[-1])


def kernels_of(name: str) -> tuple[Gpu, tuple[Kernel, ...]]:
    system = load_spec(name).system
    return system.gpu, system.library.kernels


def refusal(arch: Gpu, kernel: Kernel, dtype: Dtype) -> str:
    """Why a kernel does not fit an SM; empty if it does."""
    try:
        plan(arch, made_for(arch, kernel, dtype), kernel)
    except DoesNotFitError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.stem)
def test_every_catalogue_loads_and_names_the_source_of_each_family(path: Path) -> None:
    found = named(path.stem, REDUCTION)
    kernels, vector_kernels = (*load_kernels(found), *load_convolution_kernels(found)), load_vector_kernels(found)
    attention_kernels = load_attention_kernels(found)
    transforms = load_convolution_transforms(found)
    assert kernels or vector_kernels or attention_kernels or transforms or path.stem == REDUCTION
    assert all(kernel.family.source for kernel in kernels)
    assert all(kernel.family.source for kernel in attention_kernels)
    assert all(kernel.source for kernel in vector_kernels)


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.stem)
def test_every_catalogue_is_used_by_a_board(path: Path) -> None:
    assert any(path.stem in load_spec(name).library_record.kernel_catalogues for name in BOARDS)


@pytest.mark.parametrize("name", BOARDS_OF_LIBRARIES)
def test_every_family_multiplies_with_an_instruction_that_the_board_has(name: str) -> None:
    arch, kernels = kernels_of(name)
    assert {kernel.family.instruction for kernel in kernels} <= set(arch.instructions)


@pytest.mark.parametrize("name", BOARDS_OF_LIBRARIES)
def test_every_kernel_fits_the_sm_or_is_left_out_for_a_stated_reason(name: str) -> None:
    arch, kernels = kernels_of(name)
    for kernel in kernels:
        for dtype in kernel.family.inputs:
            reason = refusal(arch, kernel, dtype)
            gemm = made_for(arch, kernel, dtype)
            assert bool(table_of(arch, (kernel,), problem_of(gemm)).kernels) == (not reason)
            if reason:
                assert re.search(r"\d+ .* a CTA, .* allows \d+$|one CTA needs more", reason)


def test_kernels_are_too_large_only_for_the_smaller_sms_of_ga10x_and_later_geforce_boards() -> None:
    # boards of one library whose SMs have the same limits refuse the same kernels
    different = {
        (system.library.name, system.gpu.compute_capability, SmLimits.of(system.gpu)._replace(gpu="")): system
        for system in (load_spec(name).system for name in BOARDS)
    }
    too_large = {
        (arch.compute_capability, kernel.family.instruction, kernel.tile_m, kernel.tile_n, kernel.tile_k, kernel.stages)
        for arch, kernels in ((system.gpu, system.library.kernels) for system in different.values())
        for kernel in kernels
        for dtype in kernel.family.inputs
        if refusal(arch, kernel, dtype)
    }
    assert {one[0] for one in too_large} == {"8.6", "8.9", "12.0"}
    # 3 x (256 + 128) x 128 B = 144 KiB; a CTA on 8.6 may have 99
    dense = {one[2:] for one in too_large if one[1] == "hmma_16816_f32"}
    assert dense == {(256, 128, 64, 3), (128, 256, 64, 3)}
    # the 2:4 kernels that CUTLASS limits to compute capability 8.0 for their shared memory
    limited = {(256, 128, 64, 3), (128, 256, 64, 3), (128, 128, 128, 3), (256, 64, 128, 3), (128, 64, 128, 4)}
    assert limited <= {one[2:] for one in too_large if one[1] == "hmma_sp_16832_f32"}
    # 5 x (256 + 128) x 64 B = 120 KiB
    assert (128, 256, 64, 5) in {one[2:] for one in too_large if one[1] == "imma_16832"}


@pytest.mark.parametrize("name", BOARDS_OF_LIBRARIES)
def test_no_two_kernels_of_a_board_print_the_same_name(name: str) -> None:
    _, kernels = kernels_of(name)
    for layout in LAYOUTS:
        reading = [kernel for kernel in kernels if layout in kernel.layouts]
        of_kernels = [{kernel.printed_name(layout, dtype) for dtype in kernel.family.inputs} for kernel in reading]
        assert len(set().union(*of_kernels)) == sum(map(len, of_kernels))


@pytest.mark.parametrize(
    ("tile", "quicker", "slower"),
    [
        ("128x64x8", "nt", "nn"),
        ("128x32x32_sliced1x4", "nn", "tn"),  # 67 and 91 instructions an iteration beside multiply-adds and fragments
        ("64x32x32_sliced1x4", "nn", "tn"),
    ],
)
def test_a_tile_may_be_two_kernels_that_read_different_layouts(tile: str, quicker: Layout, slower: Layout) -> None:
    arch, kernels = kernels_of("V100-PCIe-32GB")
    of_tile = [one for one in kernels if one.label == f"ffma_{tile}" and Dtype.FP32 in one.family.inputs]
    assert sorted(layout for kernel in of_tile for layout in kernel.layouts) == sorted(LAYOUTS)
    shares = {kernel.layouts[0]: kernel.fill_pipe_share for kernel in of_tile}
    assert shares[quicker] < shares[slower]
    steps = {}
    for kernel in of_tile:
        gemm = Gemm(1024, 1024, 1024, Dtype.FP32, layout=kernel.layouts[0])
        launch = plan(arch, gemm, kernel).main
        steps[kernel.layouts[0]] = launch.step.pipe_slots - launch.kernel.loop.mma_instructions
    assert steps[quicker] / steps[slower] == pytest.approx(shares[quicker] / shares[slower])


@pytest.mark.parametrize("width", [1024, 1023])
@pytest.mark.parametrize(
    ("board", "layout", "rows"),  # rows of A and B in a tile whose elements take slots
    [
        ("A100-SXM4-80GB", "tn", 128 + 128),
        ("A100-SXM4-80GB", "nn", 128),  # asynchronous copies of what is not turned take none
        ("A100-SXM4-80GB", "nt", 0),
        ("T4", "nt", 128 + 128),
    ],
)
def test_what_moving_an_element_takes_of_the_pipe_does_not_depend_on_how_wide_it_is_loaded(
    board: str, layout: Layout, rows: int, width: int
) -> None:
    arch, kernels = kernels_of(board)
    kernel = next(one for one in kernels if one.label == "ffma_128x128x8" and layout in one.layouts)
    launch = plan(arch, Gemm(1024, width, 1024, Dtype.FP32, layout=layout), kernel).main
    lost = (launch.step.pipe_slots - launch.kernel.loop.mma_instructions) * kernel.warps
    elements = 8 * rows  # of a step: of one round of CTAs, the largest tile ends last
    slots = arch.load_store.staging_fma_slots * kernel.fill_pipe_share
    assert lost == pytest.approx(elements / 32 * slots)


@pytest.mark.parametrize("name", BOARDS_OF_LIBRARIES)
def test_the_warps_of_a_kernel_share_its_tile_evenly(name: str) -> None:
    for kernel in kernels_of(name)[1]:
        for tile, warps in (
            (kernel.tile_m, kernel.warps_m),
            (kernel.tile_n, kernel.warps_n),
            (kernel.tile_k, kernel.warps_k),
        ):
            assert tile % warps == 0, kernel
        # Hopper's: a producer's warpgroup, and where warps take turns, two sets of them
        loop = kernel.family.main_loop
        schedule = loop.schedule if isinstance(loop, WgmmaLoop) else None
        others, sets = {None: (0, 1), "cooperative": (4, 1), "pingpong": (4, 2), "one_tile": (4, 1)}[schedule]
        assert kernel.threads == 32 * (kernel.warps_m * kernel.warps_n * kernel.warps_k * sets + others)


# Names as nvprof and Nsight print them for cuBLAS and CUTLASS.
PRINTED = [
    ("V100-SXM2-16GB", Dtype.FP32, "tn", "volta_sgemm_128x64_tn"),
    ("V100-SXM2-16GB", Dtype.FP32, "nn", "volta_sgemm_128x128_nn"),
    ("T4", Dtype.FP32, "nt", "volta_sgemm_128x128_nt"),  # cuBLAS runs the Volta SIMT kernels on Turing
    ("V100-SXM2-16GB", Dtype.FP16, "tn", "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn"),
    ("V100-SXM2-16GB", Dtype.FP16, "nn", "volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_nn"),
    ("T4", Dtype.FP16, "tn", "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn"),
    ("A100-SXM4-80GB", Dtype.FP32, "tn", "ampere_sgemm_128x64_tn"),
    ("A100-SXM4-80GB", Dtype.FP16, "tn", "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"),
    ("V100-SXM2-16GB", Dtype.FP16, "nn", "volta_h884gemm_256x128_ldg8_nn"),
    ("V100-SXM2-16GB", Dtype.FP64, "nt", "volta_dgemm_128x64_nt"),
    ("A100-SXM4-80GB", Dtype.FP16, "tn", "ampere_h16816gemm_256x128_ldg8_stages_32x3_tn"),
    ("A100-SXM4-80GB", Dtype.TF32, "nn", "cutlass_80_tensorop_s1688gemm_128x256_32x3_nn_align4"),
    ("A100-SXM4-80GB", Dtype.FP64, "nn", "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1"),
    ("A100-SXM4-80GB", Dtype.INT8, "tn", "cutlass_80_tensorop_i16832gemm_s8_128x256_64x3_tn_align16"),
    ("A100-SXM4-80GB", Dtype.FP16, "tn", "cutlass_80_tensorop_f16_s16832spgemm_f16_128x128_64x3_tn_align8"),
    ("RTX-3090", Dtype.BF16, "tn", "cutlass_80_tensorop_bf16_s16832spgemm_bf16_128x128_64x3_tn_align8"),
    ("H100-SXM5-80GB", Dtype.FP16, "nn", "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT"),
    ("H200-SXM-141GB", Dtype.BF16, "tn", "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"),
    ("H200-SXM-141GB", Dtype.BF16, "tn", "nvjet_tst_128x160_64x5_2x1_v_bz_TNT"),
    ("RTX-3090", Dtype.BF16, "nn", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn"),
]


@pytest.mark.parametrize(("name", "dtype", "layout", "printed"), PRINTED)
def test_kernels_print_the_names_that_profilers_do(name: str, dtype: Dtype, layout: str, printed: str) -> None:
    _, kernels = kernels_of(name)
    names = {kernel.printed_name(layout, dtype) for kernel in kernels if dtype in kernel.family.inputs}
    assert printed in names


def test_shared_memory_holds_all_stages_of_both_operand_tiles() -> None:
    _, kernels = kernels_of("A100-SXM4-80GB")
    printed = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
    kernel = next(kernel for kernel in kernels if kernel.printed_name("tn", Dtype.FP16) == printed)
    assert kernel.shared_bytes(16, 16) == 81920  # 5 x (128 + 128) x 32 x 2 B
    vector = next(kernel for kernel in kernels if kernel.family.main_loop.kind == "direct")
    assert vector.shared_bytes(16, 16) == 0  # operands go straight to registers


@pytest.mark.parametrize(
    ("tile", "shared_bytes"),
    # as compiled for sm_75 in cuBLAS 11.11: a step of 64, or two of 32; what narrow tiles have beyond is for sums
    [((256, 128), 49152), ((128, 128), 32768), ((256, 64), 40960), ((128, 64), 24576), ((64, 64), 16384)],
)
def test_half_precision_kernels_of_turing_hold_one_step_and_wait_in_registers(
    tile: tuple[int, int], shared_bytes: int
) -> None:
    gpu, kernels = kernels_of("T4")
    kernel = next(
        kernel
        for kernel in kernels
        if kernel.printed_name("tn", Dtype.FP16).startswith("turing_fp16_s1688")
        and (kernel.tile_m, kernel.tile_n) == tile
    )
    assert kernel.shared_bytes(16, 16) == shared_bytes
    gemm = Gemm(4096, 4096, 4096, Dtype.FP16, layout="tn", order="column")
    assert plan(gpu, gemm, kernel).main.kernel.occupancy.ctas == (1 if tile[0] == 256 else 2)


FAMILY = """\
families:
  - name: "mine_{tile_m}x{tile_n}_{layout}"
    source: "a test"
    instruction: ffma
    inputs: [fp32]
    main_loop:
      kind: simt
      staging: async
      load_bytes: 16
      pipelined: true
      setup_instructions: &none {value: 0, kind: assumed, source: "a test"}
      step_instructions: *none
      load_overhead_instructions: *none
    stores_result: true
    split_k: []
    swizzle_width: 0
    kernels:
      - {tile: [64, 64, 8], warps: [2, 2, 1], stages: 2, registers: 64}
      - {tile: [32, 32, 8], warps: [1, 1, 1], stages: 2, registers: 64}
"""
SIMT_LOOP = FAMILY[FAMILY.index("      kind: simt") : FAMILY.index("    stores_result")]
WGMMA_LOOP = """\
      kind: wgmma
      schedule: cooperative
      setup_instructions: &none {value: 0, kind: assumed, source: "a test"}
      step_instructions: *none
      bulk_load_instructions: *none
"""


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> Path:
    """A catalogue in a folder of the user's own."""
    path = folder / "kernels" / f"{name}.yaml"
    path.parent.mkdir()
    path.write_text(text)
    monkeypatch.setenv(ARCH_PATH_VARIABLE, str(folder))
    return path


def test_a_catalogue_of_ones_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, monkeypatch, "good_catalogue", FAMILY)
    names = [kernel.printed_name("nt", Dtype.FP32) for kernel in load_kernels(named("good_catalogue"))]
    assert names == ["mine_64x64_nt", "mine_32x32_nt"]
    assert not load_convolution_kernels(named("good_catalogue"))


def test_a_family_with_traits_of_convolutions_is_for_these_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convolving = FAMILY.replace("split_k: []", "split_k: []\n    convolution: {ops: [conv_fwd], images: nchw}")
    written(tmp_path, monkeypatch, "convolving_catalogue", convolving)
    assert not load_kernels(named("convolving_catalogue"))
    assert len(load_convolution_kernels(named("convolving_catalogue"))) == 2


# A right text of FAMILY, a wrong one in its place, and what the one line says: line, key path, problem.
MALFORMED = [
    (
        "tile: [32, 32, 8]",
        "tile: [32, 0, 8]",
        "19: families.0.kernels.1.tile.1: Input should be greater than or equal to 1",
    ),
    ("warps: [1, 1, 1]", "warps: [1, 1]", "19: families.0.kernels.1.warps.2: Field required"),
    (
        "stages: 2, registers: 64}\n      -",
        "registers: 64}\n      -",
        "18: families.0.kernels.0.stages: Field required",
    ),
    (
        "1, 1], stages: 2",
        "1, 1], stages: 0",
        "19: families.0.kernels.1.stages.0: Input should be greater than or equal to 1",
    ),
    ("1, 1], stages: 2", "1, 1], stages: []", "19: families.0.kernels.1.stages: Tuple should have at least 1 item"),
    ("1, 1], stages: 2", "1, 1], stages: 1", "2: families.0: a ring of 1 stage in shared memory, where one is filled"),
    ("inputs: [fp32]", "inputs: [fp33]", "5: families.0.inputs.0: Input should be 'fp64'"),
    ("staging: async", "staging: psychic", "8: families.0.main_loop.staging: Input should be 'registers' or 'async'"),
    (
        "kind: simt",
        "kind: psychic",
        "7: families.0.main_loop.kind: Input tag 'psychic' found using 'kind' does",
    ),
    ("kind: simt", "kind: direct", "8: families.0.main_loop.staging: Extra inputs are not permitted"),
    ("kind: simt", "kind: mma", "6: families.0.main_loop.epilogue_pass_rows: Field required"),
    (
        '{value: 0, kind: assumed, source: "a test"}',
        "0",
        "11: families.0.main_loop.setup_instructions: Input",
    ),
    ("kind: assumed, ", "", "11: families.0.main_loop.setup_instructions.kind: Field required"),
    ('source: "a test"}', 'source: ""}', "11: families.0.main_loop.setup_instructions.source: String should have"),
    ("registers: 64}\n      -", "registers: 64, cluster: [2, 1]}\n      -", "2: families.0: cluster: only kernels of"),
    (
        "split_k: []",
        "split_k: [reduce]",
        "15: families.0.split_k: 'reduce' needs a second kernel",
    ),
    (
        "split_k: []",
        "split_k: []\n    min_n: 17\n    max_n: 16",
        "2: families.0: min_n 17 is more than max_n 16; correct either",
    ),
    (
        SIMT_LOOP,
        WGMMA_LOOP,
        "2: families.0: warps [2, 2, 1] of tile [64, 64, 8] are not whole warpgroups",
    ),
    (
        "split_k: []",
        "split_k: []\n    convolution: {images: nhwc}",
        "16: families.0.convolution.ops: Field required",
    ),
    (
        "split_k: []",
        "split_k: []\n    convolution:\n      ops: [conv_fwd]\n      images: nhcw",
        "18: families.0.convolution.images: Input should be 'nchw' or 'nhwc'",
    ),
    ("split_k: []", "split_k: []\n    max_taps: 1", "16: families.0.max_taps: Extra inputs are not permitted"),
    ("load_bytes: 16", "load_bytes: many", "9: families.0.main_loop.load_bytes: Input should be a valid integer"),
    (
        "pipelined: true",
        "pipelined: true\n      colour: red",
        "11: families.0.main_loop.colour: Extra inputs are",
    ),
    (
        "      load_bytes: 16\n",
        "      load_bytes: 16\n      load_bytes: 8\n",
        "10: families.0.main_loop.load_bytes: also set in line 9",
    ),
    ("    split_k: []", "\tsplit_k: []", "15: not YAML"),
    (
        "registers: 64}\n      -",
        "registers: true}\n      -",
        "18: families.0.kernels.0.registers: Input should",
    ),
    (
        "load_bytes: 16",
        "load_bytes: 1000000",
        "9: families.0.main_loop.load_bytes: Input should be less than or",
    ),
    (FAMILY, "", "1: Input should be a valid dictionary"),
    (
        "registers: 64}\n      -",
        'registers: 64, loads_at: {value: [0, 1], kind: assumed, source: "a test"}}\n      -',
        "2: families.0: loads_at: only kernels whose staging is registers",
    ),
    (
        "registers: 64}\n      -",
        "registers: 64, shared_stages: 3}\n      -",
        "2: families.0: shared_stages: at most the stages",
    ),
    # 64 rows over 3 warps: each would have 21.33
    ("warps: [2, 2, 1]", "warps: [3, 2, 1]", "18: families.0.kernels.0.warps"),
    ("{layout}", "{colour}", "2: families.0.name"),
]


@pytest.mark.parametrize(("right", "wrong", "complaint"), MALFORMED, ids=[row[2][:40] for row in MALFORMED])
def test_a_malformed_catalogue_is_one_line_with_its_place(
    right: str, wrong: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert right in FAMILY
    path = written(tmp_path, monkeypatch, "malformed_catalogue", FAMILY.replace(right, wrong))
    with pytest.raises(SpecError) as error:
        load_kernels(named("malformed_catalogue"))
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"{path}:{complaint}")


@pytest.mark.parametrize("bodies", ["[]", "[4, 16]", "[8, 8]"])
def test_bodies_of_a_second_kernel_are_named_once_widest_first(bodies: str, tmp_path: Path) -> None:
    shipped = next(path for path in CATALOGUES if path.name == "split_k_reduction.yaml")
    (tmp_path / shipped.name).write_text(shipped.read_text("utf-8").replace("[16, 8, 4]", bodies), "utf-8")
    with pytest.raises(SpecError, match=r"split_k_reduction\.yaml:\d+: .*parts_at_once: .*widest first"):
        load_kernels([tmp_path / shipped.name])


def test_all_problems_of_a_catalogue_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = FAMILY.replace("load_bytes: 16", "load_bytes: many").replace("[32, 32, 8]", "[32, 0, 8]")
    path = written(tmp_path, monkeypatch, "wrong_twice", text)
    with pytest.raises(SpecError) as raised:
        load_kernels(named("wrong_twice"))
    assert [problem.split(": ")[0] for problem in raised.value.problems] == [f"{path}:9", f"{path}:19"]


def test_a_catalogue_that_does_not_exist_is_named_with_the_file_it_would_be() -> None:
    with pytest.raises(SpecError, match=r"no catalogue 'nowhere'; expected a file like .*nowhere\.yaml"):
        named("nowhere")


def test_a_catalogue_beside_the_callers_specs_wins(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    shipped = load_spec("t4")
    own = tmp_path / "kernels" / f"{shipped.library_record.kernel_catalogues[0]}.yaml"
    own.write_text(FAMILY, encoding="utf-8")
    kernels = load_spec("t4", (tmp_path,)).system.library.kernels
    assert [one.printed_name("nt", Dtype.FP32) for one in kernels[:2]] == ["mine_64x64_nt", "mine_32x32_nt"]
    assert kernels[-1] == shipped.system.library.kernels[-1]


def test_the_hash_of_a_board_covers_its_catalogues_where_they_were_found(tmp_path: Path) -> None:
    shipped = load_spec("t4")
    name = shipped.library_record.kernel_catalogues[0]
    own = tmp_path / "kernels" / f"{name}.yaml"
    own.parent.mkdir()
    hashes = [shipped.sha256]
    for text in (FAMILY, FAMILY.replace("registers: 64", "registers: 96")):
        own.write_text(text, encoding="utf-8")
        spec = load_spec("t4", (tmp_path,))
        assert (own, hashlib.sha256(text.encode()).hexdigest()) in spec.decided_by
        assert not any(path != own and path.name == own.name for path, _ in spec.decided_by)
        hashes.append(spec.sha256)
    assert len(set(hashes)) == 3


def test_every_file_that_decides_a_shipped_board_is_listed_once() -> None:
    for name in BOARDS:
        spec = load_spec(name)
        files = [path for path, _ in spec.decided_by]
        assert files[: len(spec.files)] == list(spec.files)
        assert len(set(files)) == len(files)
        kinds = [path.parent.name for path in files[len(spec.files) :]]
        fitted = ["confidence"] if spec.system.confidence else []
        assert sorted(set(kinds), key=kinds.index) == ["libraries", "hosts", "kernels", *fitted]
        catalogues = list(spec.library_record.kernel_catalogues)
        listed = [path.stem for path in files if path.parent.name == "kernels"]
        assert [stem for stem in listed if stem in catalogues] == catalogues
        assert set(listed) - set(catalogues) <= {
            "convolution_simt_volta",
            "flash_attention_1",
            "vllm_vector",
            "weight_only_ampere",
        }  # what others extend


def with_catalogue(folder: Path, text: str) -> Path:
    """A spec whose library has one catalogue, beside the shipped one of split-K reductions."""
    (folder / "mine.yaml").write_text("extends: t4\nname: Mine\nlibrary: mine\n", encoding="utf-8")
    for kind, content in (
        ("libraries", "extends: turing\nkernel_catalogues: [own, split_k_reduction]\n"),
        ("kernels", text),
    ):
        (folder / kind).mkdir()
        (folder / kind / ("mine.yaml" if kind == "libraries" else "own.yaml")).write_text(content, encoding="utf-8")
    return folder / "mine.yaml"


def test_a_catalogue_extends_another_under_other_names(tmp_path: Path) -> None:
    shipped = (REPOSITORY / "arch_specs/kernels/simt_volta.yaml").read_text(encoding="utf-8")
    spec = with_catalogue(tmp_path, "extends: theirs\nrenamed: {volta_: my_}\n")
    (tmp_path / "kernels" / "theirs.yaml").write_text(shipped, encoding="utf-8")
    found = load_spec(spec)
    names = {kernel.family.name for kernel in found.system.library.kernels}
    assert "my_sgemm_{tile_m}x{tile_n}{suffix}_{layout}" in names
    assert not any(name.startswith("volta_") for name in names)
    assert "theirs.yaml" in {path.name for path, _ in found.decided_by}


@pytest.mark.parametrize(
    ("base", "problem"),
    [
        ("own", "the catalogue extends itself; remove one 'extends'"),
        ("nowhere", "no catalogue 'nowhere' beside this one"),
    ],
)
def test_a_catalogue_that_extends_none_is_refused_at_its_line(tmp_path: Path, base: str, problem: str) -> None:
    spec = with_catalogue(tmp_path, f"extends: {base}\n")
    with pytest.raises(SpecError, match=rf"own\.yaml:1: extends: {problem}"):
        load_spec(spec)


def test_a_library_that_names_no_catalogue_there_is_refused_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: teaching\nname: Mine\nlibrary: mine\n", encoding="utf-8")
    path = tmp_path / "libraries" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("extends: teaching\nkernel_catalogues: [nowhere]\n", encoding="utf-8")
    with pytest.raises(SpecError, match=rf"^{path}:2: kernel_catalogues: no catalogue 'nowhere'; expected a file like"):
        load_spec(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("instruction: ffma", "instruction: fmaa", r"T4 has no instruction 'fmaa' for mine_.*; nearest: .*ffma"),
        (
            "instruction: ffma",
            "instruction: hmma_1688_f32",
            r"mine_.*: main_loop.kind simt multiplies on CUDA cores, but hmma_1688_f32 of T4 runs on Tensor Cores",
        ),
    ],
)
def test_a_family_whose_instruction_its_board_or_main_loop_cannot_use_is_refused(
    right: str, wrong: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch, "wrong_instruction", FAMILY.replace(right, wrong))
    mine = with_overrides(load_spec("t4"), {"library.kernel_catalogues": ["wrong_instruction"]})
    with pytest.raises(UnsupportedError, match=complaint):
        usable_kernels(mine.system, Gemm(64, 64, 64, Dtype.FP32))


def test_families_share_tiles_by_the_bytes_of_k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = FAMILY.replace("  - name", "  - &first\n    name").replace("64, 64, 8]", "64, 64, 32B]")
    text = text.replace("stages: 2, registers: 64}", "stages: [2, 3], registers: 64}", 1)
    text += '  - {<<: *first, name: "other_{tile_k}x{stages}", instruction: hfma2, inputs: [fp16]}\n'
    written(tmp_path, monkeypatch, "shared_tiles", text)
    kernels = load_kernels(named("shared_tiles"))
    found = [(one.family.instruction, one.tile_m, one.tile_k, one.stages) for one in kernels]
    # 32 bytes: 8 of FP32, 16 of FP16
    first = [("ffma", 64, 8, 2), ("ffma", 64, 8, 3), ("ffma", 32, 8, 2)]
    assert found == [*first, ("hfma2", 64, 16, 2), ("hfma2", 64, 16, 3), ("hfma2", 32, 8, 2)]


@pytest.mark.parametrize("name", BOARDS_OF_LIBRARIES)
def test_kernels_travel_to_worker_processes(name: str) -> None:
    kernels = kernels_of(name)[1]
    assert pickle.loads(pickle.dumps(kernels)) == kernels  # noqa: S301 - our own


def test_accumulators_of_another_width_take_as_many_registers_more_or_less() -> None:
    _, kernels = kernels_of("A100-SXM4-80GB")
    printed = "ampere_h16816gemm_128x128_ldg8_stages_32x5_tn"
    kernel = next(kernel for kernel in kernels if kernel.printed_name("tn", Dtype.FP16) == printed)
    # 128 x 128 results on 128 threads: 128 each
    assert [kernel.registers_with(bits) for bits in (16, 32)] == [230 - 64, 230]
