"""create_block_mask for the ranks of a process group."""

from __future__ import annotations

from typing import Callable, Optional

import torch

from .._block_mask import DEFAULT_BLOCK, BlockMask
from .._create import create_block_mask as create_local_mask
from ._attend import attend
from ._context import current
from ._group import group_of
from ._plans import Options, Plan, Plans
from ._shards import starts_of

_SUMS = ("same_bits", "per_rank")


class GroupBlockMask(BlockMask):
    """A BlockMask of a whole sequence, whose rows are on the ranks of a process group."""

    @property
    def plan(self) -> Plan:
        """Of the calls that were made first."""
        made = self.plans
        if not made:
            raise RuntimeError("the mask has no plan yet; the first call makes it, from the shapes and types of its inputs")
        return made[0]

    @property
    def plans(self) -> list:
        """Of each kind of call that was made with the mask: other shapes, types, gradients of captures."""
        return self.ranks.made()

    def check_rows(self, query, key):
        queries, keys = self.ranks.rows()
        for name, got, own, length in (
            ("query", query.shape[2], queries, self.seq_lengths[0]), ("key", key.shape[2], keys, self.seq_lengths[1]),
        ):  # fmt: skip
            if got != own:
                group = self.ranks.group
                whole = ", which is the whole sequence" if got == length else ""
                raise ValueError(
                    f"{name} has {got} rows{whole}; rank {group.rank} of the block_mask's {group.ranks} has {own} of "
                    f"{length}: give its own rows, as shard() of td.context_parallel cuts them"
                )

    def attend(self, query, key, value, *rest):
        return attend(query, key, value, self, *rest)

    def to(self, device) -> GroupBlockMask:
        BlockMask.to(self, device)  # refuses devices
        return self

    def _adjust(self, new_q_len: int, new_kv_len: int):
        raise RuntimeError("a block_mask of a process group has its lengths; make another with create_block_mask")


def create_block_mask(
    mask_mod: Callable,
    B: Optional[int],
    H: Optional[int],
    Q_LEN: int,
    KV_LEN: int,
    device=None,
    BLOCK_SIZE=DEFAULT_BLOCK,
    *,
    group=None,
    shards: Optional[list] = None,
    kv_shards: Optional[list] = None,
    gigabits: float = 25,
    teraflops: float = 0,
    head_groups: int = 0,
    sums: str = "same_bits",
    patience: float = 600,
) -> GroupBlockMask:
    """A BlockMask for flex_attention calls that the ranks of `group` (the default group if it is None) make together, each
    with its own rows of queries and keys. Lengths are those of the whole sequence, and mods see its positions. All ranks
    of the group call it, in the same order among their calls.

    `shards` are the rows of each rank, torch.chunk's split if they are not given; `kv_shards` those of the keys, if they
    differ. `gigabits` per second of a rank's network, `teraflops` of its processor and `head_groups` (0: what is best)
    are for the plan. `sums="per_rank"` sends fewer bytes in backward, for bits that depend on the number of ranks.
    A rank that is silent for `patience` seconds ends the call of the others with an error that names it.
    """
    if torch.compiler.is_compiling():
        raise RuntimeError("create_block_mask of a group is a call of all ranks; make it outside of the compiled function")
    context = current()
    if context is not None and group is None:
        group = context.group
        if shards is None and Q_LEN == context.length:
            shards = context.lengths
    if sums not in _SUMS:
        raise ValueError(f"sums is {sums!r}; it must be one of {_SUMS}")
    if not patience > 0:
        raise ValueError(f"patience is {patience} s; it must be more than 0")
    ranks = group_of(group, patience)
    if kv_shards is None and Q_LEN == KV_LEN:
        kv_shards = shards
    queries, keys = starts_of("queries", Q_LEN, ranks, shards), starts_of("keys", KV_LEN, ranks, kv_shards)
    local = create_local_mask(mask_mod, B, H, Q_LEN, KV_LEN, device, BLOCK_SIZE)
    mask = GroupBlockMask._of_mask(local.mask_mod, *local.batch_and_heads, Q_LEN, KV_LEN, local.BLOCK_SIZE)
    milliseconds = max(1, round(patience * 1000))
    options = Options(float(gigabits), float(teraflops), int(head_groups), sums == "per_rank", milliseconds)
    mask.ranks = Plans(ranks, queries, keys, options)
    mask.key = mask.ranks.key
    return mask
