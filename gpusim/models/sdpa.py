"""Which kernels PyTorch's ``scaled_dot_product_attention`` launches: by version, GPU and what it is called with.

The function asks its implementations in an order that depends on the version, and takes the first that can run the
call. Source: ``priority_order`` and ``select_sdp_backend`` in pytorch/pytorch
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: before FlashAttention-2 came (2.0 and 2.1), after cuDNN's
attention was made optional (2.5.1), and in versions that prefer it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from gpusim.numbers.formats import Dtype

Choice = Literal["flash1", "flash2", "cudnn", "memory_efficient", "math"]

FIRST = Version("2.0")
"""First PyTorch with scaled_dot_product_attention; before, models spell attention out."""
_MASKED = Version("2.1")
"""First PyTorch whose memory-efficient kernel takes a mask and dropout, and whose FlashAttention-1 runs on Hopper."""
_FLASH_2 = Version("2.2")
"""First PyTorch with FlashAttention-2, which comes before the memory-efficient kernel whatever the sizes."""
_SHARED_HEADS = Version("2.5")
"""First PyTorch that takes fewer heads of keys than of queries; the memory-efficient kernel does since 2.14."""
_SHARED_HEADS_EFFICIENT = Version("2.14")
_LARGE_GRADIENTS = Version("2.5")
"""First PyTorch with gradients of heads of more than 224 elements on such GPUs, without dropout."""
_HALF = (Dtype.FP16, Dtype.BF16)
_BF16 = (8, 0)
"""First compute capability with fused attention in BF16."""
_SMALL = ((8, 6), (8, 9))
"""Compute capabilities whose shared memory holds no tile of FlashAttention's gradients for large heads."""
_ALIGNED_BYTES = 16
_FEW_HEADS = 60
"""Heads of all sequences below which FlashAttention-1 leaves SMs idle: pytorch/pytorch, priority_order, of xFormers."""
_QUERY_TILE = 64
_LENGTH_BY_HEADS = 6
"""Training prefers FlashAttention-1 from so many queries for each head of all sequences on (pull request 99644)."""
_LARGE_HEAD_DIM = 128
_CUDNN_HEAD_DIM = 128
_CUDNN_DROPOUT_STEPS = 16
"""cuDNN drops by sixteenths."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call of ``scaled_dot_product_attention`` whose tensors have the elements of a head side by side."""

    batch: int
    heads: int
    queries: int
    keys: int
    head_dim: int
    """Elements of a query and a key."""
    value_dim: int
    """Elements of a value."""
    dtype: Dtype
    key_heads: int
    """Heads of keys, which queries may share."""
    trains: bool
    """Whether gradients will be asked for."""
    causal: bool = False
    mask: bool = False
    """Whether a mask or a bias is given."""
    dropout: float = 0.0
    """Probability [0 to 1]."""


def choice(version: Version, capability: tuple[int, int], called: Called) -> Choice:
    """The implementation that a version of PyTorch takes on a GPU.

    >>> call = Called(8, 16, 512, 512, 64, 64, Dtype.FP16, 16, trains=False)
    >>> [choice(Version(one), (9, 0), call) for one in ("2.1", "2.2", "2.5.0", "2.5.1", "2.9")]
    ['flash1', 'flash2', 'cudnn', 'flash2', 'cudnn']
    >>> choice(Version("2.2"), (7, 5), call)
    'memory_efficient'
    """
    if version < FIRST or (called.key_heads != called.heads and version < _SHARED_HEADS):
        return "math"
    for name in _order(version, capability, called):
        if _ABLE[name](version, capability, called):
            return name
    return "math"


def _order(version: Version, capability: tuple[int, int], called: Called) -> tuple[Choice, ...]:
    if version < _FLASH_2:
        if _prefers_efficient(version, called):
            return "memory_efficient", "flash1"
        return "flash1", "memory_efficient"
    first: tuple[Choice, ...] = ("cudnn",) if capability[0] == 9 and _prefers_cudnn(version) else ()
    return *first, "flash2", "memory_efficient"


def _prefers_efficient(version: Version, called: Called) -> bool:
    """FlashAttention-1 has few CTAs for few heads; the memory-efficient kernel has one for 64 queries of a head."""
    heads = called.batch * called.heads
    if called.trains and version >= _MASKED:
        return _LENGTH_BY_HEADS * heads > called.queries
    splits = called.queries // _QUERY_TILE >= 2
    return (heads < _FEW_HEADS and splits) or called.head_dim == _LARGE_HEAD_DIM


def _prefers_cudnn(version: Version) -> bool:
    """On Hopper: in 2.5.0, not from 2.5.1 on, in 2.9 (pull request 162073), and once cuDNN 9.15.1 comes with it.

    2.10 asks for that version of cuDNN, but comes with an older one; 2.11 has it.
    """
    release = version.release[:2]
    return version.release[:3] in ((2, 5), (2, 5, 0)) or release == (2, 9) or release >= (2, 11)


def _flash_1(version: Version, capability: tuple[int, int], called: Called) -> bool:
    """Heads of up to 128 elements, on Turing in FP16 alone, from 2.1 on on Hopper."""
    if called.mask or called.head_dim != called.value_dim:
        return False
    newest = (9, 0) if version >= _MASKED else (8, 9)
    least = _BF16 if called.dtype is Dtype.BF16 else (7, 5)
    if called.dtype not in _HALF or not least <= capability <= newest:
        return False
    if called.head_dim > _LARGE_HEAD_DIM or called.head_dim % 8:
        return False
    small = _SMALL[0] <= capability <= _SMALL[1]
    return not (called.trains and small and called.head_dim > 64)


def _flash_2(version: Version, capability: tuple[int, int], called: Called) -> bool:
    """Heads of up to 256 elements, padded; causal only where queries are as many as keys."""
    if called.mask or called.head_dim != called.value_dim or (called.causal and called.queries != called.keys):
        return False
    if called.dtype not in _HALF or capability < _BF16 or called.head_dim > 256:
        return False
    small = _SMALL[0] <= capability <= _SMALL[1]
    if not called.trains or not small or called.head_dim <= 192:
        return True
    return version >= _LARGE_GRADIENTS and called.head_dim > 224 and not called.dropout


def _cudnn(version: Version, capability: tuple[int, int], called: Called) -> bool:
    """Heads of up to 128 elements, with a mask or without; more than one query and key."""
    if called.dtype not in _HALF or capability < _BF16:
        return False
    if any(size > _CUDNN_HEAD_DIM or size % 8 for size in (called.head_dim, called.value_dim)):
        return False
    dropped = called.dropout * _CUDNN_DROPOUT_STEPS
    return min(called.queries, called.keys) > 1 and (version < Version("2.9") or dropped == int(dropped))


def _efficient(version: Version, capability: tuple[int, int], called: Called) -> bool:
    """FP32 and FP16, from compute capability 8.0 on BF16; on Tensor Cores, heads of a multiple of 16 bytes."""
    if (called.mask or called.dropout) and version < _MASKED:
        return False
    if called.key_heads != called.heads and version < _SHARED_HEADS_EFFICIENT:
        return False
    if called.dtype is Dtype.FP64 or (called.dtype is Dtype.BF16 and capability < _BF16):
        return False
    if version < _MASKED and capability == (8, 6) and called.head_dim == _LARGE_HEAD_DIM:
        return False
    half = called.dtype is not Dtype.FP32
    on_tensor_cores = capability >= (8, 0) or (half and capability >= (7, 0))
    aligned = _ALIGNED_BYTES // (2 if half else 4) if on_tensor_cores else 1
    return called.head_dim % aligned == 0 and called.value_dim % aligned == 0


_ABLE: dict[Choice, Callable[[Version, tuple[int, int], Called], bool]] = {
    "flash1": _flash_1,
    "flash2": _flash_2,
    "cudnn": _cudnn,
    "memory_efficient": _efficient,
}
