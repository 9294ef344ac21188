"""PagedKV for torch's tensors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from .. import _paged_kv
from ._arrays import are_plain, as_array, check_not_recorded
from ._check import check_index


class PagedKV(_paged_kv.PagedKV):
    """treadle.PagedKV for tensors on the CPU: a cache of keys and values in pages of two pools, for engines that have none.

    All methods and arguments are those of treadle.PagedKV; `batch` gives what paged_attention takes. There are no gradients.

    >>> import torch
    >>> from treadle.torch import PagedKV, paged_attention
    >>> k_pool, v_pool = (torch.empty(64, 2, 16, 32, dtype=torch.bfloat16) for _ in range(2))
    >>> cache = PagedKV(k_pool, v_pool, sequences=8, pages_per_sequence=32)
    >>> slots = [cache.add(), cache.add()]
    >>> k, v, q = torch.randn(21, 2, 32), torch.randn(21, 2, 32), torch.randn(21, 4, 32)
    >>> starts = torch.tensor([0, 20, 21])
    >>> cache.append(slots, k, v, starts=starts)
    >>> paged_attention(q, starts, cache.batch(slots), causal=True, enable_gqa=True).shape
    torch.Size([21, 4, 32])
    """

    _array = staticmethod(as_array)

    @staticmethod
    def _kept(name: str, x, written: bool) -> Tensor:
        check_index(f"PagedKV: {name}", x)
        if not are_plain([x]):
            raise TypeError(f"PagedKV: {name} is a negated view or a {type(x).__name__}; it must be a plain tensor")
        if x.requires_grad:
            raise ValueError(f"PagedKV: {name} requires grad; a cache has no gradients: give {name}.detach()")
        return x.detach()  # the same memory, also if x gets another: x.data = y

    @staticmethod
    def _read(name: str, x) -> Tensor:
        check_index(f"PagedKV.append: {name}", x)
        if torch.is_grad_enabled() and x.requires_grad:
            raise RuntimeError(f"PagedKV.append has no gradient, and {name} requires grad; call it in torch.no_grad()")
        return x.resolve_neg()

    _made = staticmethod(torch.from_numpy)

    def append(self, slot, k, v, *, starts=None) -> None:
        check_not_recorded("PagedKV.append")
        for x, array in zip(self._memory, self._arrays):
            if x is not None and x.data_ptr() != array[0]:
                raise RuntimeError(
                    "PagedKV.append: memory of the cache was moved, as by resize_ or share_memory_; make a new cache"
                )
        super().append(slot, k, v, starts=starts)
        for x in self._memory:  # so that torch knows of what was written
            if x is not None and not x.is_inference():
                increment_version(x)

    append.__doc__ = _paged_kv.PagedKV.append.__doc__
