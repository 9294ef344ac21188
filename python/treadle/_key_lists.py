"""Keys chosen from data, for NumPy's Attention."""

from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np

from ._arrays import as_array, as_numpy


class KeyLists(NamedTuple):
    """Top-k tokens or blocks: for each block of queries, the keys it may see. A pair is visible if its key is listed and
    the mask shows it.

    `indices` is [batch, heads, query blocks, longest list] of int32 or int64, in any order; batch may be 1, heads 1 or the
    number of key heads. `counts`, [batch, heads, query blocks], says how many entries of each list count; without it all
    of them do. An entry stands for `key_block` keys, a list serves `query_block` queries.

    >>> import numpy as np, treadle
    >>> x = np.zeros((1, 1, 4, 2), np.float32)
    >>> v = np.arange(8, dtype=np.float32).reshape(1, 1, 4, 2)
    >>> keys = treadle.KeyLists(np.array([[[[0], [1]]]]), query_block=2, key_block=2)
    >>> treadle.Attention().forward(x, x, v, keys=keys).out[0, 0, :, 0]
    array([1., 1., 5., 5.], dtype=float32)
    """

    indices: np.ndarray
    counts: Optional[np.ndarray] = None
    query_block: int = 1
    key_block: int = 1

    def _layout(self, function, inputs: tuple, arrays: list, threads: int, extras: Optional[tuple]):
        counts = None if self.counts is None else as_array(as_numpy(self.counts))
        indices = as_array(as_numpy(self.indices))
        return function.listed_layout(
            *inputs, arrays, indices, counts, self.query_block, self.key_block, threads, extras
        )
