"""What Treadle makes of mods that call torch's functions."""

from __future__ import annotations

from typing import Callable, Optional, Union

from .._explain import explain_program
from ._block_mask import BlockMask
from ._foreign_masks import as_block_mask, is_mask_mod
from ._tracing import trace


def explain(
    score_mod: Optional[Callable] = None,
    mask: Union[BlockMask, Callable, None] = None,
    sizes: tuple = (1, 1, 1024, 1024),
) -> str:
    """Graphs of mods, simplified, and the captures and numbers that they read. `mask` is a mask_mod or a BlockMask;
    `sizes` are batch, heads, queries and keys, where no BlockMask says them.

    >>> import torch
    >>> from treadle.torch import explain
    >>> print(explain(lambda s, b, h, q, kv: 20 * torch.tanh(s / 20), lambda b, h, q, kv: q >= kv))
    score mod:
      float(s1) * tanh(score / float(s0))
    mask:
      q >= kv
    numbers:
      s0 = 20
      s1 = 20
    """
    if mask is not None and not is_mask_mod(mask):
        block_mask = as_block_mask(mask)
        mask, sizes = block_mask.compiled_mask_mod(), (*block_mask.batch_and_heads, *block_mask.seq_lengths)
    return explain_program(trace(score_mod, mask, sizes))
