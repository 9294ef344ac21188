"""Sequences of different lengths in one call, for NumPy's Attention: where their keys lie."""

from __future__ import annotations

from typing import NamedTuple, Optional, Union

import numpy as np

from ._arrays import as_array, as_numpy

ORDERS = ("heads_first", "tokens_first")


class PackedKeys(NamedTuple):
    """Keys of all sequences, one after the other: k [keys, key heads, dim], v [keys, key heads, value dim], and `starts`
    [sequences + 1] of int32 or int64, which begins with 0 and ends with the number of all keys."""

    k: np.ndarray
    v: np.ndarray
    starts: np.ndarray


class PagedKeys(NamedTuple):
    """Keys in pages of a pool: those of sequence s are in pages table[s, 0], table[s, 1], ..., page after page.

    Pools k and v are [pages, key heads, page size, dim], or [pages, page size, key heads, dim] if `order` is
    "tokens_first"; their last strides are 1. `table` is [sequences, pages of the longest] of int32, where entries behind a
    sequence mean nothing; `lengths` [sequences] of int32 or int64 are the keys of each. Sequences may share pages.

    `k_scales` and `v_scales` are what rows of the pools are multiplied with, such as those of 8 bits: float32, one for each
    token and head ([pages, key heads, page size], or [pages, page size, key heads] if tokens come first) or for each page
    and head ([pages, key heads]). For treadle.torch.paged_attention all of these are tensors.
    """

    k: np.ndarray
    v: np.ndarray
    table: np.ndarray
    lengths: np.ndarray
    order: str = "heads_first"
    k_scales: Optional[np.ndarray] = None
    v_scales: Optional[np.ndarray] = None


Keys = Union[PackedKeys, PagedKeys]


def keys_of(call: str, keys) -> Keys:
    """The same, of NumPy arrays. They have to be kept while the call uses their memory."""
    if isinstance(keys, PackedKeys):
        return PackedKeys(*map(as_numpy, keys))
    if not isinstance(keys, PagedKeys):
        raise TypeError(f"{call}: keys must be PackedKeys or PagedKeys, got {type(keys).__name__}")
    check_order(call, keys.order)
    scales = [None if s is None else as_numpy(s) for s in (keys.k_scales, keys.v_scales)]
    return PagedKeys(*map(as_numpy, keys[:4]), keys.order, *scales)


def check_order(call: str, order) -> None:
    if order not in ORDERS:
        raise ValueError(f"{call}: order is {order!r}; it must be 'heads_first' or 'tokens_first'")


def sequences_of(q: np.ndarray, q_starts: np.ndarray, keys: Keys) -> tuple:
    """What a compiled function takes for sequences."""
    first = as_array(q), as_array(q_starts)
    if isinstance(keys, PackedKeys):
        return *first, *map(as_array, keys)
    scales = [None if s is None else as_array(s) for s in (keys.k_scales, keys.v_scales)]
    return *first, *map(as_array, keys[:4]), keys.order == "tokens_first", *scales
