"""Keys that a model has chosen itself, as arguments of its attention: mask_mods of them."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor


def chosen_tokens(indices: Tensor, query: Tensor, key: Tensor):
    """[batch, queries, keys of each] or with heads, as DeepSeek's indexer makes them."""
    return _listed("indices", indices, 1, query, key)


def chosen_blocks(indices: Tensor, module, query: Tensor, key: Tensor):
    """[batch, heads of an indexer, queries, blocks of each], -1 behind the last, as MiniMax's indexer makes them."""
    block = _block_size(module)
    if block is None:
        raise ValueError(
            f"{type(module).__name__} passes block_indices to its attention, and neither its indexer nor its config says "
            'how many keys a block has. Use attn_implementation="eager" or "sdpa" for this model'
        )
    return _listed("block_indices", indices, block, query, key)


def _block_size(module) -> Optional[int]:
    block = getattr(getattr(module, "indexer", None), "block_size", None)
    return getattr(getattr(module, "config", None), "index_block_size", None) if block is None else block


def _listed(name: str, indices: Tensor, block: int, query: Tensor, key: Tensor):
    if indices.dim() == 3:
        indices = indices[:, None]
    (batch, heads, queries), columns = query.shape[:3], -(-key.shape[2] // block)
    shape = tuple(indices.shape)
    if len(shape) != 4 or shape[0] not in (1, batch) or shape[2] != queries or shape[1] == 0 or heads % shape[1] != 0:
        raise ValueError(
            f"{name} has shape {shape}; it must be [batch, heads, queries, keys of each] for batch {batch}, a divisor of "
            f"{heads} heads and {queries} queries"
        )
    indices = indices.detach().to(torch.int64)
    if not torch.compiler.is_compiling() and indices.numel() and type(indices) is Tensor:
        low, high = int(indices.min()), int(indices.max())
        if low < -1 or high >= columns:
            raise ValueError(
                f"{name} lists {low if low < -1 else high}; {key.shape[2]} keys in blocks of {block} are numbered from 0 to "
                f"{columns - 1}, and -1 is none"
            )
    # -1 goes into a column behind the last.
    listed = indices.new_zeros((*shape[:3], columns + 1), dtype=torch.bool)
    listed = listed.scatter(-1, torch.where(indices < 0, columns, indices), True)
    one_batch, group = shape[0] == 1, heads // shape[1]

    def mask_mod(b, h, q, kv):
        return listed[0 if one_batch else b, h // group, q, kv // block]

    return mask_mod
