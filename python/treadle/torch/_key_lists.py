"""Keys chosen from data, as a BlockMask."""

from __future__ import annotations

from typing import Callable, Optional

import torch
from torch import Tensor

from ._block_lists import BlockLists
from ._block_mask import BlockMask


def create_key_mask(
    indices: Tensor,
    counts: Optional[Tensor] = None,
    *,
    lengths: tuple,
    query_block: int = 1,
    key_block: int = 1,
    mask_mod: Optional[Callable] = None,
) -> BlockMask:
    """A BlockMask of listed keys: top-k tokens or blocks, chosen from data. A pair is visible if its key is listed and
    mask_mod shows it; flex_attention's backward uses the same lists.

    `indices` is [batch or 1, heads or 1, query blocks, longest list], in any order, without duplicates; `counts`, without
    the last axis, says how many entries of each list count. `lengths` are those of queries and keys.
    """
    if indices.dim() != 4:
        raise ValueError(f"create_key_mask: indices has shape {tuple(indices.shape)}; it must have 4 axes")
    rows, columns = -(-lengths[0] // query_block), -(-lengths[1] // key_block)
    if indices.shape[2] != rows:
        raise ValueError(
            f"create_key_mask: indices has {indices.shape[2]} lists; {lengths[0]} queries in blocks of {query_block} need {rows}"
        )
    listed = torch.ones(indices.shape, dtype=torch.bool)
    if counts is not None:
        listed = torch.arange(indices.shape[3]) < counts.unsqueeze(-1)
    chosen = indices[listed]
    if chosen.numel() and (int(chosen.min()) < 0 or int(chosen.max()) >= columns):
        raise ValueError(
            f"create_key_mask: indices lists block {int(chosen.min())} to {int(chosen.max())}; "
            f"{lengths[1]} keys in blocks of {key_block} make {columns} blocks"
        )
    kinds = torch.zeros(*indices.shape[:3], columns + 1, dtype=torch.int32)
    kinds.scatter_add_(-1, torch.where(listed, indices.to(torch.int64), columns), torch.ones_like(indices, dtype=torch.int32))
    if bool((kinds[..., :columns] > 1).any()):
        raise ValueError("create_key_mask: indices lists a block twice")
    lists = BlockLists.of_kinds(kinds[..., :columns], separate_full=False)
    return BlockMask.from_kv_blocks(
        lists.kv_num_blocks, lists.kv_indices, BLOCK_SIZE=(query_block, key_block), mask_mod=mask_mod,
        seq_lengths=tuple(lengths),
    )  # fmt: skip
