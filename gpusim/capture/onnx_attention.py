"""Attention and rotary embeddings of ONNX."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 -- its usual name

from gpusim.capture.onnx_module import Node
from gpusim.capture.onnx_registry import RUNTIME, operator


def _heads(value: Any, heads: int) -> Any:
    """``batch x length x features`` as ``batch x heads x length x features of a head``."""
    return value if value.dim() == 4 else value.unflatten(-1, (heads, -1)).transpose(1, 2)


def _joined(value: Any) -> Any:
    return value.transpose(1, 2).flatten(2)


def _attended(query: Any, key: Any, value: Any, mask: Any, causal: bool) -> Any:
    if mask is not None:
        while mask.dim() < 4:
            mask = mask.unsqueeze(1 if mask.dim() == 2 else 0)
    gqa = query.shape[1] != key.shape[1]
    causal = causal and mask is None and query.shape[-2] > 1
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=gqa)


@operator("Attention")
def _attention(node: Node) -> Any:
    heads, of_keys = node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)
    query, key, value = (_heads(node.tensor(at), of_keys if at else heads) for at in range(3))
    if node.has(4):
        key, value = torch.cat([node.tensor(4), key], 2), torch.cat([node.tensor(5), value], 2)
    found = _attended(query, key, value, node.tensor(3), bool(node.attribute("is_causal", 0)))
    return _joined(found) if node.tensor(0).dim() == 3 else found, key, value


@operator(RUNTIME + "Attention")
def _packed_attention(node: Node) -> Any:
    heads = node.attribute("num_heads")
    together = F.linear(node.tensor(0), node.tensor(1).t(), node.tensor(2))
    sizes = node.attribute("qkv_hidden_sizes") or [together.shape[-1] // 3] * 3
    query, key, value = (_heads(one, heads) for one in together.split(list(sizes), -1))
    mask = node.tensor(3)
    mask = mask.bool() if mask is not None and mask.dim() > 1 else None
    mask = _with_bias(mask, node.tensor(5))
    return _joined(_attended(query, key, value, mask, bool(node.attribute("unidirectional", 0)))), None


def _with_bias(mask: Any, bias: Any) -> Any:
    if bias is None or mask is None:
        return mask if bias is None else bias
    return torch.where(mask[:, None, None, :] if mask.dim() == 2 else mask, bias, -math.inf)


@operator(RUNTIME + "MultiHeadAttention")
def _multi_head_attention(node: Node) -> Any:
    heads = node.attribute("num_heads")
    parts = [node.tensor(at) for at in range(3)]
    if parts[1] is None:
        raise ValueError("packed queries, keys and values are not supported; export them apart")
    if node.has(3):
        widths = [
            parts[0].shape[-1],
            *(one.shape[-1] if one.dim() == 3 else heads * one.shape[-1] for one in parts[1:]),
        ]
        biases = node.tensor(3).split(widths)
        parts = [one + bias if one.dim() == 3 else one for one, bias in zip(parts, biases, strict=True)]
    query, key, value = (_heads(one, heads) for one in parts)
    if node.has(6):
        key, value = torch.cat([node.tensor(6), key], 2), torch.cat([node.tensor(7), value], 2)
    mask = node.tensor(4)
    mask = _with_bias(mask.bool() if mask is not None else None, node.tensor(5))
    return _joined(_attended(query, key, value, mask, bool(node.attribute("unidirectional", 0)))), key, value


@operator(RUNTIME + "GroupQueryAttention")
def _group_query_attention(node: Node) -> Any:
    heads, of_keys = node.attribute("num_heads"), node.attribute("kv_num_heads")
    parts = [node.tensor(at) for at in range(3)]
    if parts[1] is None:
        size = parts[0].shape[-1] // (heads + 2 * of_keys)
        parts = list(parts[0].split([heads * size, of_keys * size, of_keys * size], -1))
    query, key, value = (_heads(one, count) for one, count in zip(parts, (heads, of_keys, of_keys), strict=True))
    if node.attribute("do_rotary", 0):
        past = node.tensor(3).shape[2] if node.has(3) else 0
        cosines, sines = (node.tensor(at)[past : past + query.shape[2]] for at in (7, 8))
        query, key = (
            _rotated(one, cosines, sines, bool(node.attribute("rotary_interleaved", 0))) for one in (query, key)
        )
    if node.has(3):
        key, value = torch.cat([node.tensor(3), key], 2), torch.cat([node.tensor(4), value], 2)
    return _joined(_attended(query, key, value, None, causal=True)), key, value


def _rotated(value: Any, cosines: Any, sines: Any, alternate: bool) -> Any:
    """Pairs of features of each head turned by the angle of their place."""
    width = 2 * cosines.shape[-1]
    turned, rest = value[..., :width], value[..., width:]
    first, second = (turned[..., ::2], turned[..., 1::2]) if alternate else turned.chunk(2, -1)
    real, imaginary = first * cosines - second * sines, second * cosines + first * sines
    found = torch.stack([real, imaginary], -1).flatten(-2) if alternate else torch.cat([real, imaginary], -1)
    return torch.cat([found, rest], -1) if rest.shape[-1] else found


@operator("RotaryEmbedding", RUNTIME + "RotaryEmbedding")
def _rotary(node: Node) -> Any:
    # X, cos, sin, positions of ONNX; X, positions, cos, sin of ONNX Runtime.
    places, cosines, sines = (1, 2, 3) if node.domain == "com.microsoft" else (3, 1, 2)
    value = node.tensor(0)
    heads = node.attribute("num_heads", 0)
    four = _heads(value, heads or value.shape[-1] // (2 * node.tensor(cosines).shape[-1]))
    tables = [node.tensor(at) for at in (cosines, sines)]
    if node.has(places):
        indices = node.tensor(places)
        if indices.numel() == 1 and four.shape[2] > 1:
            tables = [one[: four.shape[2]] for one in tables]
        else:
            tables = [F.embedding(indices, one).unsqueeze(1) for one in tables]
    else:
        tables = [one.unsqueeze(1) for one in tables]
    found = _rotated(four, tables[0], tables[1], bool(node.attribute("interleaved", 0)))
    return found if value.dim() == 4 else _joined(found)
