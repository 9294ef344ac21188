"""flex_attention over the ranks of a process group of torch.distributed: each has some rows of a sequence.

    import treadle.torch.distributed as td
    from treadle.torch import flex_attention

    with td.context_parallel(group, length=S) as cp:
        tokens, labels = cp.shard(tokens, labels, dim=1)
        mask = td.create_block_mask(causal, None, None, S, S)     # of the whole sequence
        out = flex_attention(q, k, v, score_mod, mask)            # local rows in, local rows out

Tokens stay where they are. Mods see positions of the whole sequence, results have the bits of one process's call.
docs/distributed.md says more.
"""

from ._context import ContextParallel, context_parallel
from ._mask import GroupBlockMask, create_block_mask
from ._plans import Plan

__all__ = ["ContextParallel", "GroupBlockMask", "Plan", "context_parallel", "create_block_mask"]
