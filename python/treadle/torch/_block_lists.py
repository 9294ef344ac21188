"""Lists of blocks, as torch has them: how many, and which ones first."""

from __future__ import annotations

import torch
from torch import Tensor


def pair(block_size) -> tuple:
    return (block_size, block_size) if isinstance(block_size, int) else tuple(block_size)


def ordered(dense: Tensor) -> tuple:
    """Counts, and the numbers of kept blocks first, in ascending order."""
    dense = dense.to(torch.int32)
    return dense.sum(-1, dtype=torch.int32), torch.argsort(dense, dim=-1, descending=True, stable=True).to(torch.int32)


def dense_of(num: Tensor, indices: Tensor) -> Tensor:
    """0 and 1 by block, from a list."""
    columns = indices.shape[-1]
    listed = torch.arange(columns, device="cpu") < num.unsqueeze(-1)
    result = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.int32, device="cpu")
    places = torch.where(listed, indices.to(torch.int64), columns)
    result.scatter_(-1, places, 1)
    return result[..., :columns]
