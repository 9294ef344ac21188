"""What mods show, evaluated: by pair, and by block."""

from __future__ import annotations

from typing import Callable, Optional

import torch
from torch import Tensor

from .. import _core
from ._arrays import arrays_of, as_array, check_not_recorded
from ._tracing import trace


def visible_pairs(score_mod: Optional[Callable], mask_mod: Optional[Callable], sizes: tuple) -> Tensor:
    """[batch, heads, queries, keys] of bool: what a mask_mod shows, or where a score_mod does not make -inf of 0."""
    check_not_recorded("create_mask")
    program = trace(score_mod, mask_mod, sizes).counting_from_end()
    result = torch.empty(sizes, dtype=torch.bool, device="cpu")
    keep, arrays = arrays_of(program)
    if score_mod is not None:
        _core.unmasked_pairs(program.score_mod, program.declared(), arrays, as_array(result))
    else:
        _core.visible_pairs(program.mask, program.declared(), arrays, as_array(result))
    return result


def block_kinds(mask_mod: Callable, sizes: tuple, q_block: int, kv_block: int) -> Tensor:
    """[batch, heads, rows, columns] of a grid of blocks: 0 nothing is visible, 1 something, 2 everything."""
    check_not_recorded("making lists of blocks")
    program = trace(None, mask_mod, sizes).counting_from_end()
    batch, heads, queries, keys = sizes
    kinds = torch.empty(batch, heads, -(-queries // q_block), -(-keys // kv_block), dtype=torch.uint8, device="cpu")
    keep, arrays = arrays_of(program)
    _core.block_kinds(
        program.mask, program.declared(), arrays, queries, keys, q_block, kv_block, as_array(kinds),
        torch.get_num_threads(),
    )  # fmt: skip
    return kinds
