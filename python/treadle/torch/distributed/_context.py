"""context_parallel: which rows of a sequence are this rank's."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Optional

import torch
from torch import Tensor

from ._group import group_of
from ._shards import starts_of
from ._unshard import unshard

_current: ContextVar = ContextVar("context_parallel", default=None)


def current() -> Optional[ContextParallel]:
    """That of the innermost `with`."""
    return _current.get()


class ContextParallel:
    """Rows of a sequence of `length` on the ranks of a group; made by context_parallel."""

    def __init__(self, group, length: int, shards: Optional[list], patience: float):
        self.group = group
        self._ranks = group_of(group, patience)
        self.length = length
        self.starts = starts_of("the sequence", length, self._ranks, shards)
        self._patience = max(1, round(patience * 1000))

    @property
    def rank(self) -> int:
        return self._ranks.rank

    @property
    def ranks(self) -> int:
        return self._ranks.ranks

    @property
    def lengths(self) -> list:
        """How many rows each rank has."""
        return [b - a for a, b in zip(self.starts, self.starts[1:])]

    @property
    def rows(self) -> range:
        """Positions of this rank's rows."""
        return range(self.starts[self.rank], self.starts[self.rank + 1])

    def shard(self, *tensors: Tensor, dim: int):
        """This rank's rows of each tensor, along `dim`; they are views. One tensor alone comes as it is, others as a
        tuple."""
        rows = self.rows
        for t in tensors:
            if t.shape[dim] != self.length:
                raise ValueError(
                    f"shard: a tensor of shape {tuple(t.shape)} has {t.shape[dim]} rows in dimension {dim}; it must have "
                    f"all {self.length} of the sequence"
                )
        cut = tuple([t.narrow(dim, rows.start, len(rows)) for t in tensors])
        return cut[0] if len(cut) == 1 else cut

    def unshard(self, tensor: Tensor, dim: int) -> Tensor:
        """All ranks' rows of a tensor, in the order of positions, on every rank; all ranks call it.

        What every rank computes from them must be the same: the gradient of a rank's rows is the part of the gradient that
        belongs to them. So a mean over the whole sequence has the same gradients on any number of ranks, and so has what
        a score_mod reads, whose gradient every rank gets as a whole."""
        if tensor.shape[dim] != len(self.rows):
            raise ValueError(
                f"unshard: a tensor of shape {tuple(tensor.shape)} has {tensor.shape[dim]} rows in dimension {dim}; rank "
                f"{self.rank} has {len(self.rows)} of {self.length}"
            )
        return unshard(tensor, dim, self.starts, self._ranks, self._patience)

    def __enter__(self) -> ContextParallel:
        self._token = _current.set(self)
        return self

    def __exit__(self, *ignored) -> None:
        _current.reset(self._token)


def context_parallel(group=None, *, length: int, shards: Optional[list] = None, patience: float = 600) -> ContextParallel:
    """A sequence of `length` cut into contiguous rows for the ranks of `group`, without a permutation: torch.chunk's split,
    or `shards` with so many rows for each rank. All ranks of the group call it.

    In its `with`, create_block_mask takes its group and, for masks of this length, its shards.
    """
    return ContextParallel(group, length, shards, patience)
