"""dot_product_attention, by the names and arguments of jax.nn's."""

from __future__ import annotations

from typing import Optional, Union

import jax.numpy as jnp

from ._attention import attend, capture

_NAME = "dot_product_attention"


def dot_product_attention(
    query, key, value, bias=None, mask=None, *, scale: Optional[float] = None, is_causal: bool = False,
    query_seq_lengths=None, key_value_seq_lengths=None, local_window_size: Union[int, tuple, None] = None,
):  # fmt: skip
    """jax.nn.dot_product_attention on the CPU: arrays are [batch, length, heads, dim], or without batch.

    `bias` is added to scores and gets a gradient; `mask` says which pairs see each other. Both are [batch, heads, queries,
    keys], each of them the size or 1. A query that sees nothing gets zeros (jax's: the mean of all values).

    >>> import jax.numpy as jnp
    >>> from treadle.jax import dot_product_attention
    >>> x = jnp.ones((2, 10, 4, 8))
    >>> dot_product_attention(x, x, x, is_causal=True).shape
    (2, 10, 4, 8)
    """
    query, key, value = jnp.asarray(query), jnp.asarray(key), jnp.asarray(value)
    has_batch = query.ndim != 3
    if not has_batch:
        query, key, value = (x[None] if x.ndim == 3 else x for x in (query, key, value))
    shape = ()
    if query.ndim == 4 and key.ndim == 4:
        shape = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    add = None if bias is None else _reader("bias", bias, shape, False)
    shown = [] if mask is None else [_reader("mask", mask, shape, True)]
    if is_causal:
        shown.append(lambda b, h, q, kv: q >= kv)
    if local_window_size is not None:
        shown.append(_window(local_window_size))
    if query_seq_lengths is not None:
        of_queries = _lengths("query_seq_lengths", query_seq_lengths, shape)
        shown.append(lambda b, h, q, kv: q < of_queries[b])
    if key_value_seq_lengths is not None:
        of_keys = _lengths("key_value_seq_lengths", key_value_seq_lengths, shape)
        shown.append(lambda b, h, q, kv: kv < of_keys[b])

    def score_mod(score, *at):
        return score + add(*at)

    def mask_mod(*at):
        result = shown[0](*at)
        for one in shown[1:]:
            result = result & one(*at)
        return result

    out, _ = attend(
        _NAME, query, key, value, score_mod if add is not None else None, mask_mod if shown else None, scale, False
    )
    return out if has_batch else out[0]


def _reader(name: str, x, shape: tuple, of_bools: bool):
    """x(b, h, q, kv)."""
    x = jnp.asarray(x)
    if (x.dtype == jnp.bool_) != of_bools or not (of_bools or jnp.issubdtype(x.dtype, jnp.floating)):
        raise TypeError(f"{_NAME}: {name} is {x.dtype}; it must be {'bool' if of_bools else 'float'}")
    x = x[(None,) * (4 - x.ndim)] if x.ndim < 4 else x
    if shape and (x.ndim != 4 or any(size != 1 and size != full for size, full in zip(x.shape, shape))):
        raise ValueError(
            f"{_NAME}: {name} has shape {x.shape}; it must broadcast to [batch, heads, queries, keys], {shape}"
        )
    read = capture(x)
    one = [size == 1 for size in x.shape]
    return lambda *at: read[tuple([0 if is_one else i for is_one, i in zip(one, at)])]


def _window(size: Union[int, tuple]):
    left, right = (size, size) if isinstance(size, int) else size
    if left < 0 or right < 0:
        raise ValueError(f"{_NAME}: local_window_size is {size}; it must be 0 or more to both sides")
    return lambda b, h, q, kv: (q - kv <= left) & (kv - q <= right)


def _lengths(name: str, x, shape: tuple):
    x = jnp.asarray(x)
    if shape and x.shape != (shape[0],):
        raise ValueError(f"{_NAME}: {name} has shape {x.shape}; there must be a length for each of {shape[0]} sequences")
    return capture(x)
