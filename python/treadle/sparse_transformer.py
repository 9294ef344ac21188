"""The Sparse Transformer's attention, with the names and arguments of openai/sparse_attention, on torch tensors.

    from treadle.sparse_transformer import SparseAttention, attention_impl, blocksparse_attention

    out = blocksparse_attention(q, k, v, heads=8, attn_mode="strided", local_attn_ctx=128, recompute=True)

q, k and v are [batch, time, heads * dim]. Docs: docs/python.md.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Callable, ClassVar, Optional

import torch
from torch import Tensor

from . import _sparse_patterns as patterns
from ._core import Error
from .torch import BlockMask, create_block_mask, flex_attention
from .torch._recompute import recomputed_attention

__all__ = ["SparseAttention", "attention_impl", "blocksparse_attention", "blocksparse_attention_impl"]


def attention_impl(
    q: Tensor, k: Tensor, v: Tensor, *, heads: int, attn_mode: str, local_attn_ctx: Optional[int] = None, recompute: bool
) -> Tensor:
    """Attention of a mode that knows no blocks, on any length: "all", "local" or "strided".

    With `recompute` nothing but q, k and v is kept for backward, which runs the forward again.

    >>> import torch
    >>> from treadle.sparse_transformer import attention_impl
    >>> zero, v = torch.zeros(1, 6, 1), torch.arange(6.0).view(1, 6, 1)
    >>> attention_impl(zero, zero, v, heads=1, attn_mode="local", local_attn_ctx=2, recompute=False).flatten()
    tensor([0.0000, 0.5000, 1.5000, 2.5000, 3.5000, 4.5000])
    """
    call = "attention_impl"
    heads = patterns.integer(call, "heads", heads)
    if local_attn_ctx is not None:
        local_attn_ctx = patterns.integer(call, "local_attn_ctx", local_attn_ctx)
    mask_mod = patterns.dense_mask(call, attn_mode, local_attn_ctx)
    _check_tensors(call, q, k, v, heads)
    return _attend(q, k, v, heads, mask_mod, recompute)


def blocksparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    heads: int,
    attn_mode: str,
    local_attn_ctx: Optional[int] = None,
    blocksize: int = 32,
    num_verts: Optional[int] = None,
    vertsize: Optional[int] = None,
    recompute: bool,
) -> Tensor:
    """Attention of a mode in whole blocks: "all", "local", "strided" or "fixed", which needs num_verts and vertsize.

    The same result as `attention_impl`'s where both have the mode; blocks only say which lengths and numbers are taken.

    >>> import torch
    >>> from treadle.sparse_transformer import blocksparse_attention
    >>> zero, v = torch.zeros(1, 8, 1), torch.arange(8.0).view(1, 8, 1)
    >>> how = dict(heads=1, attn_mode="fixed", local_attn_ctx=4, blocksize=2, num_verts=1, vertsize=1, recompute=False)
    >>> blocksparse_attention(zero, zero, v, **how).flatten()
    tensor([0.0000, 0.5000, 1.0000, 1.5000, 3.0000, 3.5000, 4.0000, 4.5000])
    """
    attend = _OneCall(
        heads=heads, attn_mode=attn_mode, local_attn_ctx=local_attn_ctx, blocksize=blocksize, num_verts=num_verts,
        vertsize=vertsize, recompute=recompute,
    )  # fmt: skip
    return attend(q, k, v)


blocksparse_attention_impl = blocksparse_attention  # the original's name of it


@dataclass(frozen=True, kw_only=True)
class SparseAttention:
    """blocksparse_attention with its arguments fixed: a value, to be compared, hashed, copied and pickled.

    Same arguments, same function: what is made for one is kept by value, and serves all that equal it.

    >>> import torch
    >>> from treadle.sparse_transformer import SparseAttention
    >>> attend = SparseAttention(heads=4, attn_mode="strided", local_attn_ctx=32)
    >>> attend == SparseAttention(attn_mode="strided", local_attn_ctx=32, heads=4)
    True
    >>> x = torch.randn(2, 1024, 256)
    >>> attend(x, x, x).shape
    torch.Size([2, 1024, 256])
    """

    _call: ClassVar[str] = "SparseAttention"  # as errors name it

    heads: int
    attn_mode: str = "all"
    local_attn_ctx: Optional[int] = None
    blocksize: int = 32
    num_verts: Optional[int] = None
    vertsize: Optional[int] = None
    recompute: bool = False

    def __post_init__(self):
        for name in ("heads", "blocksize", "local_attn_ctx", "num_verts", "vertsize"):
            value = getattr(self, name)
            if value is not None or name in ("heads", "blocksize"):
                # NumPy's integers become Python's: equal values have to be the same to whoever prints or stores them.
                object.__setattr__(self, name, patterns.integer(self._call, name, value))
        object.__setattr__(self, "recompute", bool(self.recompute))
        self.mask_mod  # reports mistakes here, not later

    @property
    def mask_mod(self) -> Callable:
        """Which pairs are visible, as a mask_mod: equal for equal numbers, and to be combined with others."""
        return patterns.block_mask(
            self._call, self.heads, self.attn_mode, self.local_attn_ctx, self.blocksize, self.num_verts, self.vertsize
        )

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[batch, time, heads * dim] of three such."""
        mask_mod = self.mask_mod
        _check_tensors(self._call, q, k, v, self.heads)
        patterns.check_length(self._call, mask_mod, q.shape[1], self.blocksize)
        return _attend(q, k, v, self.heads, mask_mod, self.recompute)


class _OneCall(SparseAttention):
    _call = "blocksparse_attention"


def _check_tensors(call: str, q: Tensor, k: Tensor, v: Tensor, heads: int) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{call}: {name} is {type(x).__name__}; it must be a tensor, and all but q, k, v keywords")
        if x.dim() != 3:
            raise Error(f"{call}: {name} has {x.dim()} dimensions; it must have 3: batch, time, heads * dim")
        patterns.check_multiple(call, f"the width of {name}", x.shape[2], "heads", heads)
    for name, x in (("k", k), ("v", v)):
        if x.shape[:2] != q.shape[:2]:
            raise Error(
                f"{call}: q has batch {q.shape[0]} and length {q.shape[1]}, {name} {x.shape[0]} and {x.shape[1]}; they must "
                "be the same"
            )
        if x.dtype != q.dtype and not torch.is_autocast_enabled("cpu"):
            raise Error(f"{call}: q is {q.dtype}, {name} {x.dtype}; they must be of one type")
    if q.shape[2] != k.shape[2]:
        raise Error(f"{call}: q has width {q.shape[2]}, k {k.shape[2]}; they must be the same")


def _attend(q: Tensor, k: Tensor, v: Tensor, heads: int, mask_mod: Callable, recompute: bool) -> Tensor:
    # Views: heads are read where they are, and the result's are written beside each other.
    q, k, v = [x.unflatten(2, (heads, x.shape[2] // heads)).transpose(1, 2) for x in (q, k, v)]
    length = q.shape[2]
    keep = type(length) is int and not torch.compiler.is_compiling()  # graphs keep what they need themselves
    mask = (_kept_mask if keep else _new_mask)(mask_mod, length)
    out = recomputed_attention(q, k, v, mask) if recompute else flex_attention(q, k, v, block_mask=mask)
    return out.transpose(1, 2).flatten(2)


def _new_mask(mask_mod: Callable, length: int) -> BlockMask:
    return create_block_mask(mask_mod, None, None, length, length)


# By value. Masks keep their layouts, which is why they are kept; nobody else gets to see these, so nobody changes them.
_kept_mask = functools.lru_cache(32)(_new_mask)
