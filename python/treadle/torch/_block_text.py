"""Blocks as characters."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def blocks_as_text(dense: Tensor, grid_size=(20, 20), limit: int = 4) -> str:
    """A picture of at most `grid_size` for each of the first `limit` batches and heads: all blocks visited, some, none.

    >>> import torch
    >>> print(blocks_as_text(torch.tensor([[1, 0], [1, 1]])).strip())
    ()
    ██  
    ████
    """
    *batch_dims, rows, columns = dense.shape
    most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
    step = [1 if m < 0 else max(1, -(-n // m)) for n, m in zip((rows, columns), most)]
    pool = torch.nn.AvgPool2d(step, ceil_mode=True, count_include_pad=False)
    pictures = []
    for number, where in enumerate(itertools.product(*[range(n) for n in batch_dims])):
        if number == limit:
            pictures += ["...", "To see more, use to_string(limit=N), or mask[batch, head]"]
            break
        small = pool(dense[where][None].float())[0].tolist()
        lines = ["".join("██" if x == 1 else "  " if x == 0 else "░░" for x in row) for row in small]
        pictures.append("\n".join([str(where), *lines, ""]))
    return "\n".join(pictures)
