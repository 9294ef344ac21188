"""Dropout of attention weights: what a call is given, and which pairs it keeps."""

from __future__ import annotations

import operator
from typing import Optional

import numpy as np

from . import _core
from ._arrays import as_array

_SEEDS = 2**64


def dropout_of(dropout_p: float, seed) -> Optional[tuple]:
    """Probability, seed and offset as kernels take them; None if nothing is dropped."""
    check_probability(dropout_p)
    pair = seed if isinstance(seed, tuple) else (seed, 0)
    if len(pair) != 2:
        raise ValueError(f"seed has {len(pair)} numbers; it must be an int, or a pair of seed and offset")
    for number in pair:
        if not 0 <= operator.index(number) < _SEEDS:
            raise ValueError(f"seed is {seed}; its numbers must be from 0 to 2**64 - 1")
    return None if dropout_p == 0 else (float(dropout_p), *map(operator.index, pair))


def check_probability(dropout_p: float) -> None:
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p is {dropout_p}; it must be from 0 to 1")


def dropout_mask(shape: tuple, dropout_p: float, seed=0, *, q_offset: int = 0, kv_offset: int = 0) -> np.ndarray:
    """Whether calls with this `dropout_p` and `seed` keep the weights of pairs: [batch, heads, queries, keys]. The first
    query stands at `q_offset`, the first key at `kv_offset`. For tests: calls decide for themselves.

    >>> import treadle
    >>> kept = treadle.dropout_mask((1, 2, 64, 64), 0.25, seed=1)
    >>> kept.shape, bool(abs(kept.mean() - 0.75) < 0.03)
    ((1, 2, 64, 64), True)
    """
    given = dropout_of(dropout_p, seed)
    kept = np.ones(shape, np.bool_)
    if kept.ndim != 4:
        raise ValueError(f"shape has {kept.ndim} dimensions; it must have 4: batch, heads, queries, keys")
    if given is not None:
        _core.find_kept(as_array(kept), *given, operator.index(q_offset), operator.index(kv_offset))
    return kept
