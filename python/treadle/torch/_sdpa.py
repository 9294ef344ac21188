"""scaled_dot_product_attention with torch's arguments and meaning."""

from __future__ import annotations

import math
from typing import Optional

import torch
from torch import Tensor

from ._attention import flex_attention
from ._masks import and_masks

_NAME = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * query @ key.T + mask) @ value, as torch.nn.functional.scaled_dot_product_attention.

    `attn_mask` is broadcast to [..., queries, keys]: bool, where True takes part, or floats that are added and may require
    gradients. `is_causal` shows query i the keys up to i, of those that the mask shows. A query that sees nothing gets
    zeros. `dropout_p` is that of flex_attention.

    >>> import torch
    >>> from treadle.torch import scaled_dot_product_attention
    >>> q, k, v = (torch.randn(2, 4, 10, 16) for _ in range(3))
    >>> bias = torch.randn(4, 1, 10, requires_grad=True)
    >>> scaled_dot_product_attention(q, k, v, bias).sum().backward()
    >>> bias.grad.shape
    torch.Size([4, 1, 10])
    """
    _check(query, key, value, attn_mask, enable_gqa)
    key, value = _with_heads_of(query, key, value) if enable_gqa else (key, value)
    lead = query.shape[:-2]
    if not (query.dim() == key.dim() == value.dim() == 4 and key.shape[:2] == value.shape[:2] == lead):
        query, key, value, lead = _broadcast(query, key, value, enable_gqa)
    score_mod, mask_mod = None, _causal if is_causal else None
    if attn_mask is not None:
        read = _reader(attn_mask, lead, query.shape[2], key.shape[2])
        if attn_mask.dtype == torch.bool:
            mask_mod = and_masks(_causal, read) if is_causal else read
        else:

            def score_mod(score, b, h, q, kv):
                return score + read(b, h, q, kv)

    out = flex_attention(query, key, value, score_mod, mask_mod, scale, enable_gqa, dropout_p=dropout_p)
    return out if len(lead) == 2 else out.reshape(*lead, *out.shape[2:])


def _causal(b, h, q, kv):
    return q >= kv


def _check(query, key, value, attn_mask, enable_gqa: bool):
    """In torch's kinds of errors."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{_NAME}: {name} must be a tensor, got {type(x).__name__}")
        if x.is_nested:
            raise NotImplementedError(
                f"{_NAME}: nested tensors are not supported; varlen_attention takes those of layout torch.jagged"
            )
        if x.dim() < 2 or (enable_gqa and x.dim() < 3):
            raise RuntimeError(
                f"{_NAME}: {name} has {x.dim()} dimensions; it must have at least {3 if enable_gqa else 2}"
                f"{' for enable_gqa' if enable_gqa else ''}"
            )
    if not query.dtype == key.dtype == value.dtype and not torch.is_autocast_enabled("cpu"):
        raise RuntimeError(
            f"{_NAME}: query, key and value must have one type, got {query.dtype}, {key.dtype} and {value.dtype}"
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"{_NAME}: query and key must have one head dim and key and value one length, got query {tuple(query.shape)}, "
            f"key {tuple(key.shape)} and value {tuple(value.shape)}"
        )
    if attn_mask is None:
        return
    if not isinstance(attn_mask, Tensor):
        raise TypeError(f"{_NAME}: attn_mask must be a tensor, got {type(attn_mask).__name__}")
    if attn_mask.dtype != torch.bool and attn_mask.dtype not in (torch.float32, query.dtype):
        if not torch.is_autocast_enabled("cpu"):
            raise RuntimeError(
                f"{_NAME}: attn_mask must be bool, float32 or of query's type, {query.dtype}; got {attn_mask.dtype}"
            )


def _with_heads_of(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    """Key and value with the same number of heads, a divisor of query's."""
    heads, of_keys, of_values = query.shape[-3], key.shape[-3], value.shape[-3]
    if of_keys == 0 or of_values == 0 or heads % of_keys or heads % of_values:
        raise RuntimeError(
            f"{_NAME}: query has {heads} heads, key {of_keys} and value {of_values}; with enable_gqa the first must be a "
            "multiple of the others"
        )
    if of_keys != of_values:
        key = key.repeat_interleave(heads // of_keys, -3)
        value = value.repeat_interleave(heads // of_values, -3)
    return key, value


def _broadcast(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple:
    """As [batch, heads, length, dim], and the dimensions before the last two."""
    fixed = 3 if enable_gqa else 2  # dimensions from the end that are not broadcast
    try:
        lead = torch.broadcast_shapes(query.shape[:-fixed], key.shape[:-fixed], value.shape[:-fixed])
    except RuntimeError:
        raise RuntimeError(
            f"{_NAME}: the first dimensions of query {tuple(query.shape)}, key {tuple(key.shape)} and value "
            f"{tuple(value.shape)} do not broadcast{'' if enable_gqa else '; set enable_gqa=True for fewer key heads'}"
        ) from None

    def flat(x: Tensor) -> Tensor:
        x = x.expand(*lead, *x.shape[-fixed:])
        heads = x.shape[-3] if x.dim() > 2 else 1
        return x.reshape(math.prod(x.shape[:-3]), heads, *x.shape[-2:])

    return flat(query), flat(key), flat(value), (*lead, *query.shape[-fixed:-2])


def _reader(mask: Tensor, lead: tuple, queries: int, keys: int):
    """mask(b, h, q, kv) for the batch and heads that `lead` was made into."""
    shape = (*lead, queries, keys)
    if mask.dim() > len(shape) or any(
        [size != 1 and size != full for size, full in zip(reversed(mask.shape), reversed(shape))]
    ):
        raise RuntimeError(f"{_NAME}: attn_mask has shape {tuple(mask.shape)}; it does not broadcast to {tuple(shape)}")
    mask = mask[(None,) * max(0, 4 - mask.dim())]
    if mask.dim() > 4:
        before = (1,) * (len(shape) - mask.dim()) + tuple(mask.shape[:-3])
        mask = mask.reshape(before + tuple(mask.shape[-3:]))
        if any([size != 1 for size in before]):
            mask = mask.expand(*lead[:-1], *mask.shape[-3:])
        mask = mask.reshape(math.prod(mask.shape[:-3]), *mask.shape[-3:])
    elif len(lead) > 2 and mask.shape[0] != 1:  # of the last of several batch dimensions
        mask = mask.expand(*lead[:-1], *mask.shape[1:])
        mask = mask.reshape(math.prod(lead[:-1]), *mask.shape[-3:])
    one = [size == 1 for size in mask.shape]
    return lambda *at: mask[tuple([0 if is_one else i for is_one, i in zip(one, at)])]
