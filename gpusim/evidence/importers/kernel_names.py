"""Parsing of the names of matrix-multiplication kernels: data types, layout, CTA tile, steps of k.

Names follow no published grammar; the patterns cover what cuBLAS, cuBLASLt and CUTLASS print on Volta to
Hopper (``ampere_fp16_s16816gemm_fp16_128x64_..._tn``, ``sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize...``,
``cutlass_80_tensorop_s1688gemm_...``, ``nvjet_hsh_...``). What a name does not state is left empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gpusim.numbers.formats import (
    DTYPE_IN_KERNEL_NAME,
    DTYPE_IN_TEMPLATE,
    DTYPE_OF_BLAS,
    DTYPE_OF_NVJET,
    FORMAT_IN_KERNEL_NAME,
    FORMATS,
    Dtype,
)


def _any_of(names: Iterable[str]) -> str:
    """A pattern that matches one of several names, longer ones first."""
    return "|".join(sorted(names, key=len, reverse=True))


_ELEMENT = _any_of(DTYPE_IN_KERNEL_NAME)
_NARROW = _any_of(name for name, dtype in DTYPE_IN_KERNEL_NAME.items() if dtype.bits <= FORMATS["fp16"].bits)
"""Inputs that the name of a Tensor Core kernel states beside its instruction."""
_LETTERS = "".join(DTYPE_OF_BLAS)

NO_PRODUCT = "kernel whose name is not that of a matrix multiplication"
"""Why a kernel makes no row."""
LONGEST_NAME = 8192
"""Characters of a name that are parsed: CUTLASS templates have some 2,000."""

_CONVOLUTION = re.compile(r"fprop|dgrad|wgrad|conv(?!ert)|winograd|cudnn")
_PRODUCT = re.compile(r"gemm|gemv(?!tensor|params)|nvjet|matmul")  # cublasGemvTensor: an argument of cuBLAS's dot too
_REDUCTION = re.compile(r"split_?k_?reduce|reduce_?split_?k")
_XMMA = re.compile(
    rf"gemm_(?:[a-z]+\d+)+?_(?P<element>{_ELEMENT})[a-z\d]*?"
    r"(?P<accumulator>f64|f32|f16|i32)_"
)
_CUTLASS_3 = re.compile(
    r"cutlass3x_sm\d+_\w*?(?P<tf32>tf32)?gemm_(?P<element>[a-z]+\d(?:\d*|m\d))_[a-z\d]+_(?P<accumulator>f64|f32|f16|s32)_"
)
_CORE = re.compile(
    rf"(?:(?P<before>{_NARROW})_)?(?P<letter>[{_LETTERS}])\d{{3,6}}(?P<converts_to>tf32|bf16|f16)?(?:sp)?gemm"
    rf"(?:_(?P<after>{_NARROW}))?(?![a-z\d])"
)
_BLAS = re.compile(rf"(?<![a-z\d])(?P<letter>[{_LETTERS}])gemm(?:_(?P<element>{_NARROW})_)?")
_NVJET = re.compile(rf"nvjet_(?:sm\d+_)?(?P<letters>{_any_of(DTYPE_OF_NVJET)})[a-z]{{2,3}}_")
_ARGUMENT = re.compile(rf"(?<!\w)({'|'.join(DTYPE_IN_TEMPLATE)})(?!\w)")
_QUANTISED = re.compile(r"fp[48]|int[48]|float[468]_t|e2m1|w\d+a\d+|quant|marlin")  # the arguments are not the inputs'
_LAYOUT = re.compile(r"_([nt]{2})[nt]{0,2}(?:_|$|>)")
_TILE = re.compile(r"(?:_|tilesize)(\d+)x(\d+)(?:x(?P<tile_k>\d+))?(?![\dx])(?:_stage(?P<stages>\d+))?")
_INT = r", (?:\(int\)|int=)?"
_FEW_COLUMNS = re.compile(
    rf"gemmsn_[nt]{{2}}_kernel<\w+{_INT}(?P<threads>\d+){_INT}(?P<sharing>\d+)(?:{_INT}\d+){{2}}{_INT}(?P<columns>\d+)"
)
"""Threads, those of them that share a row of C, and columns."""
_PERSISTENT = re.compile(r"nvjet|cutlass3x|sm(?:9|1\d)\d|stream_?k")
_RING = re.compile(r"_(?P<tile_k>\d+)x(?P<stages>\d+)(?=_|>|$)")
_SLICES = re.compile(r"_sliced1x(\d+)(?=_|$)")
_INSTRUCTION = re.compile(rf"[{_LETTERS}](\d{{3,6}})(?:tf32|bf16|f16)?(?:sp)?gemm")


@dataclass(frozen=True, slots=True)
class ProductKernel:
    """Facts that the name of a GEMM kernel states."""

    dtype: Dtype | None
    accumulate: str
    layout: str
    """Layout in BLAS column-major terms, as libraries name kernels."""
    tile: tuple[int, int] | None
    """Tile in the order of the name: column-major."""
    sparsity: str
    instruction: str = ""
    """Its shape of a Tensor Core's instruction (``16816``), or ``simt``."""
    tile_k: int | None = None
    stages: int | None = None
    slices: int = 1
    """Warps that share a tile's k."""
    persistent: bool = False
    """CTAs may go from tile to tile: a grid does not tell how many there are."""
    converts_to: Dtype | None = None
    """Type that each warp converts its FP32 operands to, between shared memory and the instruction."""

    def covers(self, grid: tuple[int, int, int], results: int) -> bool:
        """Whether a grid has tiles for so many results, as far as the name tells.

        >>> product_kernel("ampere_sgemm_32x128_nn").covers((4, 4, 1), 128 * 512)
        True
        >>> product_kernel("ampere_sgemm_32x128_nn").covers((1, 4, 1), 128 * 512)
        False
        """
        if self.tile is None or self.persistent:
            return True
        return math.prod(grid) * math.prod(self.tile) >= results

    def may_be(self, other: ProductKernel) -> bool:
        """Whether two names may be of one kernel: of tile, steps of k and instruction they state nothing different.

        Libraries of two versions print one kernel in two ways, and add its epilogue.

        >>> ours = product_kernel("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn")
        >>> ours.may_be(product_kernel("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x4_tn_align8"))
        True
        >>> ours.may_be(product_kernel("ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_stages_64x3_tn"))
        False
        """
        stated = (
            (self.instruction, other.instruction),
            (self.tile_k, other.tile_k),
            (self.stages, other.stages),
        )
        same_tile = self.tile is not None and self.tile == other.tile and self.slices == other.slices
        return same_tile and all(not ours or not theirs or ours == theirs for ours, theirs in stated)


def product_kernel(name: str) -> ProductKernel | None:
    """What a kernel's name states, or None if it is not a matrix multiplication.

    >>> product_kernel("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x5_tn").tile
    (128, 64)
    >>> product_kernel("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x32x64_stage3").dtype
    <Dtype.TF32: 'tf32'>
    >>> product_kernel("cudnn::winograd_nonfused::winogradForwardData4x4")
    """
    text = name[:LONGEST_NAME].lower()
    if not _PRODUCT.search(text) or _CONVOLUTION.search(text) or is_reduction(text):
        return None
    dtype, accumulate = _types(text)
    layout, tile = _LAYOUT.search(text), _TILE.search(text)
    ring = tile if tile and tile["tile_k"] else _RING.search(text, tile.end()) if tile else None
    core, slices = _INSTRUCTION.search(text), _SLICES.search(text)
    converted = None if _XMMA.search(text) or _CUTLASS_3.search(text) else _CORE.search(text)
    return ProductKernel(
        dtype,
        accumulate,
        layout[1] if layout else "",
        (int(tile[1]), int(tile[2])) if tile else _few_columns(text),
        "2:4" if "spgemm" in text or "sparse" in text else "dense",
        core[1] if core else "simt" if _BLAS.search(text) else "",
        int(ring["tile_k"]) if ring else None,
        int(ring["stages"]) if ring and ring["stages"] else None,
        int(slices[1]) if slices else 1,
        _PERSISTENT.search(text) is not None,
        DTYPE_IN_KERNEL_NAME[converted["converts_to"]] if converted and converted["converts_to"] else None,
    )


def converting(fact: ProductKernel) -> str:
    """Why a kernel that converts on the way makes no row.

    >>> converting(product_kernel("cutlass_tensorop_s1688f16gemm_256x128_16x3_nn_align4"))
    'CUTLASS kernel that converts FP32 operands to FP16 on the way, which is not modelled'
    """
    name = fact.converts_to.value.upper() if fact.converts_to else "another type"
    return f"CUTLASS kernel that converts FP32 operands to {name} on the way, which is not modelled"


@lru_cache(maxsize=4096)
def same_kernel(name: str, other: str) -> bool:
    """Whether two names are of one kernel: equal, or with nothing different in tile, steps of k and instruction."""
    if name == other:
        return True
    one, another = product_kernel(name), product_kernel(other)
    return one is not None and another is not None and one.may_be(another)


def _few_columns(text: str) -> tuple[int, int] | None:
    """The tile of cuBLAS's kernels for few columns, whose name has it as template arguments."""
    found = _FEW_COLUMNS.search(text)
    return (int(found["threads"]) // int(found["sharing"]), int(found["columns"])) if found else None


def is_reduction(name: str) -> bool:
    """Whether a kernel adds up the partial results of the split-K kernel before it."""
    return _REDUCTION.search(name[:LONGEST_NAME].lower()) is not None


def _types(text: str) -> tuple[Dtype | None, str]:
    """Input and accumulator type of a kernel."""
    if found := _XMMA.search(text) or _CUTLASS_3.search(text):
        element = found.groupdict().get("tf32") or found["element"]
        return DTYPE_IN_KERNEL_NAME.get(element), FORMAT_IN_KERNEL_NAME[found["accumulator"]]
    if found := _CORE.search(text):
        return _core_types(found)
    if found := _BLAS.search(text):
        dtype, accumulate = _of_letter(found["letter"])
        return (DTYPE_IN_KERNEL_NAME[found["element"]] if found["element"] else dtype), accumulate
    if found := _NVJET.search(text):
        dtype = DTYPE_OF_NVJET[found["letters"]]
        return dtype, dtype.default_accumulate
    if (found := _ARGUMENT.search(text)) and not _QUANTISED.search(text):
        return DTYPE_IN_TEMPLATE[found[1]], ""
    return None, ""


def _core_types(found: re.Match[str]) -> tuple[Dtype, str]:
    """Types of a Tensor Core kernel that is named by its instruction (``s16816gemm_bf16``).

    The letter is the accumulator's; FP32 accumulation without a named input is TF32 (``s1688gemm``).
    """
    dtype, accumulate = _of_letter(found["letter"])
    element = found["after"] or found["before"]
    if found["converts_to"]:
        return DTYPE_IN_KERNEL_NAME[found["converts_to"]], accumulate
    if element:
        return DTYPE_IN_KERNEL_NAME[element], accumulate
    return dtype.on_tensor_cores, accumulate


def _of_letter(letter: str) -> tuple[Dtype, str]:
    """Input and accumulator type of a BLAS routine by its letter; floating-point types accumulate in themselves."""
    dtype = DTYPE_OF_BLAS[letter]
    return dtype, dtype.default_accumulate if dtype.format.is_integer else dtype.value
