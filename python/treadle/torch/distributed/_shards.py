"""Which rank has which rows."""

from __future__ import annotations

import operator
from typing import Optional

from ._group import Group


def starts_of(what: str, length: int, group: Group, shards: Optional[list]) -> tuple:
    """Where each rank's rows begin, and at last where they end: torch.chunk's split, or shards of these lengths."""
    if length < 0:
        raise ValueError(f"{what} has length {length}; it must be 0 or more")
    if shards is None:
        count = -(-length // group.ranks)
        return tuple([min(rank * count, length) for rank in range(group.ranks + 1)])
    lengths = [operator.index(n) for n in shards]
    if len(lengths) != group.ranks or min(lengths) < 0 or sum(lengths) != length:
        raise ValueError(
            f"shards of {what} are {lengths}; there must be one length, 0 or more, for each of {group.ranks} ranks, and "
            f"their sum must be {length}"
        )
    starts = [0]
    for n in lengths:
        starts.append(starts[-1] + n)
    return tuple(starts)
