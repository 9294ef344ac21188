"""PagedKV: a cache of keys and values in pages of the caller's arrays, for NumPy."""

from __future__ import annotations

from operator import index
from typing import Optional

from . import _core
from ._arrays import as_array, as_numpy, check_result
from ._sequences import PagedKeys, check_order


class PagedKV:
    """Hands out the pages of two pools to sequences that grow, fork, are trimmed and end.

    Pools are [pages, key heads, page size, dim], or [pages, page size, key heads, dim] if `order` is "tokens_first"; what
    they hold is free to be overwritten, and the cache keeps them alive. At most `sequences` are in use at a time, each with
    at most `pages_per_sequence`. Rows are rounded once to the type of the pools, to nearest even.

    With scales, pools of int8, float8_e4m3fn and float8_e5m2 are quantised: `k_scales` and `v_scales` are float32, written
    by append, for each token and head ([pages, key heads, page size], or [pages, page size, key heads] if tokens come
    first) or for each page and head ([pages, key heads]). With `scales_given` they are the caller's, [pages, key heads], the
    same for all pages of a head.

    A call that raises a treadle.Error has changed nothing. No call that changes a cache may run beside an attention call
    that reads its pages. For torch's tensors there is treadle.torch.PagedKV.

    >>> import numpy as np, treadle
    >>> k_pool, v_pool = (np.empty((64, 2, 16, 32), np.float32) for _ in range(2))
    >>> cache = treadle.PagedKV(k_pool, v_pool, sequences=8, pages_per_sequence=32)
    >>> prompt = cache.add()
    >>> k = v = np.ones((20, 2, 32), np.float32)
    >>> cache.append(prompt, k, v)
    >>> other = cache.fork(prompt)  # shares both pages
    >>> cache.append(other, k[:1], v[:1])  # copies the second page first, which is not full
    >>> cache.pages_of(prompt), cache.pages_of(other)
    ([0, 1], [0, 2])
    >>> keys = cache.batch([prompt, other])
    >>> causal = treadle.Attention(mask_mod=lambda b, h, q, kv: q >= kv)
    >>> causal.forward_sequences(np.ones((2, 4, 32), np.float32), np.array([0, 1, 2]), keys).out.shape
    (2, 4, 32)
    """

    def __init__(
        self,
        k_pool,
        v_pool,
        *,
        sequences: int,
        pages_per_sequence: int,
        order: str = "heads_first",
        k_scales=None,
        v_scales=None,
        scales_given: bool = False,
    ):
        check_order("PagedKV", order)
        self._order = order
        pools = self._kept("k_pool", k_pool, True), self._kept("v_pool", v_pool, True)
        self._memory = *pools, *[
            None if scales is None else self._kept(name, scales, not scales_given)
            for name, scales in (("k_scales", k_scales), ("v_scales", v_scales))
        ]
        self._arrays = [None if x is None else self._array(x) for x in self._memory]
        self._cache = _core.PagedKV(
            *self._arrays, index(sequences), index(pages_per_sequence), order == "tokens_first", bool(scales_given)
        )

    # The border: treadle.torch has its own of these four.

    _array = staticmethod(as_array)

    @staticmethod
    def _kept(name: str, x, written: bool):
        """The memory of a pool or of scales, as an array of our own: nobody can resize theirs meanwhile."""
        if written:
            check_result(f"PagedKV: {name}", x)
        return as_numpy(x).view()

    @staticmethod
    def _read(name: str, x):
        return as_numpy(x)

    @staticmethod
    def _made(array):
        """What was made for a batch."""
        return array

    def add(self) -> int:
        """Begins an empty sequence; its slot is the first that is not in use."""
        return self._cache.add()

    def append(self, slot, k, v, *, starts=None) -> None:
        """Stores rows of new tokens behind those of the sequence: k [tokens, key heads, dim] and v [tokens, key heads, value
        dim]. A page that other sequences have, too, is copied before it is written to.

        With `starts` [slots + 1], int32 or int64, `slot` is a list of slots: the i-th gets the rows from starts[i] up to
        starts[i + 1], all of them or, if there is an error, none.
        """
        k, v = self._read("k", k), self._read("v", v)
        if starts is None:
            self._cache.append(index(slot), self._array(k), self._array(v))
        else:
            starts = self._read("starts", starts)
            self._cache.append_packed(_numbers(slot), self._array(starts), self._array(k), self._array(v))

    def fork(self, slot: int, length: Optional[int] = None) -> int:
        """Begins a sequence with the first `length` tokens of another, or with all of them; it shares their pages."""
        return self._cache.fork(index(slot), None if length is None else index(length))

    def trim(self, slot: int, length: int) -> None:
        """Forgets the tokens from `length` on, such as drafts that were refused. Pages that hold no others are given
        back."""
        self._cache.trim(index(slot), index(length))

    def free(self, slot: int) -> None:
        """Ends a sequence: its slot, and the pages that no other sequence has, are given back."""
        self._cache.free(index(slot))

    def length(self, slot: int) -> int:
        """How many tokens a sequence has."""
        return self._cache.length(index(slot))

    def pages_of(self, slot: int) -> list:
        """The pages of a sequence, in their order."""
        return self._cache.pages_of(index(slot))

    def batch(self, slots) -> PagedKeys:
        """The keys of these slots, in this order, as they are now: what is appended, trimmed or freed later is not seen by
        its table and lengths."""
        k, v, k_scales, v_scales = self._memory
        table, lengths = map(self._made, self._cache.batch(_numbers(slots)))
        return PagedKeys(k, v, table, lengths, self._order, k_scales, v_scales)

    @property
    def sequences(self) -> int:
        """How many are in use."""
        return self._cache.sequences

    @property
    def pages(self) -> int:
        """Of the pools."""
        return self._cache.pages

    @property
    def free_pages(self) -> int:
        """How many no sequence has."""
        return self._cache.free_pages

    @property
    def page_size(self) -> int:
        """In tokens."""
        return self._cache.page_size

    def __repr__(self) -> str:
        used = self.pages - self.free_pages
        return f"<PagedKV: {self.sequences} sequences in {used} of {self.pages} pages of {self.page_size} tokens>"


def _numbers(slots) -> list:
    return [index(slot) for slot in slots]
