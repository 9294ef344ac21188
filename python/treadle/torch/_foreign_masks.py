"""torch's own BlockMasks as Treadle's."""

from __future__ import annotations

import weakref
from typing import Optional

import torch

from ._block_lists import BY_ROW
from ._block_mask import BlockMask

_known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # torch's: ours


def is_mask_mod(mask) -> bool:
    """Whether it is a function of pairs or a text, and no mask of blocks."""
    return isinstance(mask, str) or (callable(mask) and not hasattr(mask, "BLOCK_SIZE"))


def as_block_mask(mask) -> Optional[BlockMask]:
    """A BlockMask of ours; torch's are taken as its compiled kernels take them: only listed blocks exist, and full
    ones are visible whatever mask_mod says."""
    if mask is None or isinstance(mask, BlockMask):
        return mask
    if not all(hasattr(mask, name) for name in ("kv_num_blocks", "kv_indices", "mask_mod", "BLOCK_SIZE")):
        hint = "; create_block_mask makes one of a bool tensor" if isinstance(mask, torch.Tensor) else ""
        raise TypeError(f"block_mask must be a BlockMask or a mask_mod, got {type(mask).__name__}{hint}")
    if torch.compiler.is_compiling():  # which would compile again for every mask that is known
        return _converted(mask)
    try:
        found = _known.get(mask)
    except TypeError:
        found = None
    same = found is not None and found.mask_mod is mask.mask_mod
    if not same or any(getattr(found, name) is not getattr(mask, name) for name in BY_ROW):
        found = _converted(mask)
        try:
            _known[mask] = found
        except TypeError:
            pass
    return found


def _converted(mask) -> BlockMask:
    lists = [getattr(mask, name) for name in BY_ROW]
    return BlockMask(mask.seq_lengths, *lists, BLOCK_SIZE=mask.BLOCK_SIZE, mask_mod=mask.mask_mod)
