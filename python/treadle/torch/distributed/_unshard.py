"""Rows of all ranks on every rank, with a gradient: an operation of torch's."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from .._arrays import as_array
from ._group import Group

_groups: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # by key, which graphs hold

torch.library.define(
    "treadle::unshard", "(Tensor x, int dim, int[] starts, int rank, str group_key, int patience) -> Tensor"
)


@torch.library.impl("treadle::unshard", "cpu")
def _unshard(x: Tensor, dim: int, starts, rank: int, group_key: str, patience: int) -> Tensor:
    """Rows come first, so that each rank's lie together; shorter shards are filled up."""
    group = _groups[group_key]
    longest = max([b - a for a, b in zip(starts, starts[1:])])
    rest = [n for d, n in enumerate(x.shape) if d != dim]
    own = x.new_zeros((longest, *rest))
    own[: x.shape[dim]] = x.movedim(dim, 0)
    every = x.new_empty((len(starts) - 1, longest, *rest))
    if own.numel():
        group.exchange.gather(as_array(own.view(torch.uint8)), as_array(every.view(torch.uint8)), patience)
    parts = [every[r, : b - a] for r, (a, b) in enumerate(zip(starts, starts[1:]))]
    return torch.cat(parts).movedim(0, dim).contiguous()


@torch.library.register_fake("treadle::unshard")
def _shape(x: Tensor, dim: int, starts, rank: int, group_key: str, patience: int) -> Tensor:
    return x.new_empty([starts[-1] if d == dim else n for d, n in enumerate(x.shape)])


def _setup(ctx, inputs, output):
    _, ctx.dim, ctx.starts, ctx.rank, *_ = inputs


def _differentiate(ctx, gradient):
    begin, end = ctx.starts[ctx.rank], ctx.starts[ctx.rank + 1]
    return gradient.narrow(ctx.dim, begin, end - begin), None, None, None, None, None


torch.library.register_autograd("treadle::unshard", _differentiate, setup_context=_setup)


def unshard(x: Tensor, dim: int, starts: tuple, group: Group, patience: int) -> Tensor:
    _groups[group.key] = group
    return torch.ops.treadle.unshard(x, dim % x.dim(), list(starts), group.rank, group.key, patience)
