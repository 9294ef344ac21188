"""BlockMask: which pairs see each other, with the attributes and methods of torch's.

A mask is its mask_mod; blocks are computed only when somebody asks for them. What kernels use is a Layout, finer
than blocks, kept here between calls.
"""

from __future__ import annotations

import math
from typing import Callable, Optional

import torch
from torch import Tensor
from torch.nn.attention import flex_attention

from .._layouts import Layouts
from ._arrays import needs_dispatcher
from ._block_lists import BY_COLUMN, BY_ROW, BlockLists, pair
from ._block_text import blocks_as_text
from ._evaluate import block_kinds
from ._graph_trace import fixed
from ._masks import mask_of_blocks, noop_mask

DEFAULT_BLOCK = 128
_ANY_LENGTH = 1 << 30  # torch's block size of a mask that hides nothing


def _blocks_of(length: int, block: int) -> int:
    return -(-length // block)


def _sliced(*ignored):
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask; give it one of its own: mask.mask_mod = ...")


class BlockMask(flex_attention.BlockMask):
    """Which pairs see each other, as create_block_mask makes it.

    It is one of torch's, too, for those who ask with isinstance, and is flattened by the same methods. What is made of its
    leaves has the lists as they are then.

    dq_write_order and its like say in which order a GPU kernel adds up gradients. Treadle's order is always the same.

    >>> from treadle.torch import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 1024, 1024)
    >>> mask.shape, mask.sparsity()
    ((1, 1, 1024, 1024), 43.75)
    >>> mask.kv_num_blocks
    tensor([[[1, 1, 1, 1, 1, 1, 1, 1]]], dtype=torch.int32)
    """

    dq_write_order = dq_write_order_full = dq_kv_order = dq_kv_order_spt = None
    ranks = None  # who makes its calls together; treadle.torch.distributed has masks with such

    def __init__(
        self,
        seq_lengths: tuple,
        kv_num_blocks: Optional[Tensor],
        kv_indices: Optional[Tensor],
        full_kv_num_blocks: Optional[Tensor] = None,
        full_kv_indices: Optional[Tensor] = None,
        q_num_blocks: Optional[Tensor] = None,
        q_indices: Optional[Tensor] = None,
        full_q_num_blocks: Optional[Tensor] = None,
        full_q_indices: Optional[Tensor] = None,
        BLOCK_SIZE: tuple = (DEFAULT_BLOCK, DEFAULT_BLOCK),
        mask_mod: Callable = noop_mask,
        dq_write_order=None,
        dq_write_order_full=None,
        dq_kv_order=None,
        dq_kv_order_spt=None,
    ):
        self.seq_lengths = tuple(seq_lengths)
        self.BLOCK_SIZE = pair(BLOCK_SIZE)
        self.mask_mod = mask_mod
        self._lists = BlockLists(
            kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
            by_column=(q_num_blocks, q_indices, full_q_num_blocks, full_q_indices),
            columns=_blocks_of(self.seq_lengths[1], self.BLOCK_SIZE[1]),
        )  # fmt: skip
        # Given lists say which blocks exist. Without them the mask_mod alone decides, and `_made_for` is batch, heads.
        self._made_for: Optional[tuple] = None
        self._separate_full = True
        self.layouts = Layouts()  # what kernels use
        self._listed: Optional[tuple] = None  # mask_mod, state of the lists, and the mask_mod made of both

    @classmethod
    def _of_mask(cls, mask_mod, batch, heads, q_length, kv_length, block_size, separate_full=True) -> BlockMask:
        mask = cls((q_length, kv_length), None, None, BLOCK_SIZE=block_size, mask_mod=mask_mod)
        mask._made_for = (batch, heads)
        mask._separate_full = separate_full
        return mask

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Optional[Tensor] = None,
        full_kv_indices: Optional[Tensor] = None,
        BLOCK_SIZE=DEFAULT_BLOCK,
        mask_mod: Optional[Callable] = None,
        seq_lengths: Optional[tuple] = None,
        compute_q_blocks: bool = True,
        *,
        dq_write_order=None,
        dq_write_order_full=None,
        dq_kv_order=None,
    ) -> BlockMask:
        """A mask from lists of blocks: those listed as full are visible, in the others mask_mod decides."""
        lists = BlockLists(kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        block = pair(BLOCK_SIZE)
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * block[0], kv_indices.shape[-1] * block[1])
        lists.columns = _blocks_of(seq_lengths[1], block[1])
        if compute_q_blocks:
            lists.add_columns()
        return cls(
            seq_lengths, *lists.by_row(), *lists.by_column(), BLOCK_SIZE=block, mask_mod=mask_mod or noop_mask
        )

    def __getstate__(self) -> dict:
        """Of copies and pickles: lists of their own, and without what was made for kernels, which is made again."""
        return {**self.__dict__, "_lists": self._lists.copy(), "layouts": Layouts(), "_listed": None}

    # --- what kernels use ----------------------------------------------------------------------------------------

    @property
    def any_length(self) -> bool:
        return self.BLOCK_SIZE[0] >= _ANY_LENGTH

    @property
    def is_listed(self) -> bool:
        """Whether lists say which blocks exist, and not the mask_mod alone."""
        return self._made_for is None and not self.any_length

    @property
    def batch_and_heads(self) -> tuple:
        if self._made_for is not None:
            return self._made_for
        return ((1, 1) + tuple(self._lists.kv_indices.shape[:-2]))[-2:]

    @property
    def kv_batch(self) -> int:
        return self.batch_and_heads[0]

    @property
    def kv_heads(self) -> int:
        return self.batch_and_heads[1]

    def compiled_mask_mod(self) -> Optional[Callable]:
        """The whole mask as a mask_mod: its own, or blocks and, inside the partial ones, its own. None: all is visible."""
        if self.mask_mod is noop_mask and (self._made_for is not None or self.any_length):
            return None
        if self._made_for is not None:
            return self.mask_mod
        if torch.compiler.is_compiling() or needs_dispatcher(*[t for t in self._lists.by_row() if t is not None]):
            # Part of a graph: other lists compile nothing anew, and nothing of it is kept for calls outside.
            block_size = fixed(self.BLOCK_SIZE[0]), fixed(self.BLOCK_SIZE[1])
            return mask_of_blocks(self._lists.kinds(), block_size, self.mask_mod)
        state = self._lists.state()
        if self._listed is not None and self._listed[0] is self.mask_mod and self._listed[1] == state:
            return self._listed[2]
        blocks = mask_of_blocks(self._lists.kinds(), self.BLOCK_SIZE, self.mask_mod)
        self._listed = (self.mask_mod, state, blocks) if state is not None else None
        return blocks

    def check_not_sliced(self):
        if self.mask_mod is _sliced:
            _sliced()

    # --- blocks --------------------------------------------------------------------------------------------------

    def block_kinds(self, q_block: int, kv_block: int) -> Tensor:
        """[batch, heads, rows, columns] of any grid: 0 nothing is visible, 1 something, 2 everything."""
        mask_mod = self.compiled_mask_mod() or noop_mask
        return block_kinds(mask_mod, (*self.batch_and_heads, *self.seq_lengths), q_block, kv_block)

    def _all_lists(self) -> BlockLists:
        """The lists, computed if they were not given."""
        if self._made_for is not None and self._lists.kv_num_blocks is None:
            self._lists = BlockLists.of_kinds(self.block_kinds(*self.BLOCK_SIZE), self._separate_full)
        return self._lists

    @property
    def shape(self) -> tuple:
        if self._made_for is not None:
            return (*self._made_for, *self.seq_lengths)
        return (*self._lists.kv_indices.shape[:-2], *self.seq_lengths)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def contiguous(self) -> BlockMask:
        """Itself: there is no memory of pairs. Models ask for it before a step with a static cache."""
        return self

    def numel(self) -> int:
        """How many pairs there are."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The part of the mask that blocks leave out, in percent."""
        pairs = self._all_lists().count() * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - pairs / self.numel())

    def to_dense(self) -> Tensor:
        """1 where a block is visited, by block."""
        return self._all_lists().dense()

    def as_tuple(self, flatten: bool = True) -> tuple:
        lists = self._all_lists()
        block = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        lengths = self.seq_lengths if flatten else (self.seq_lengths,)
        return (*lengths, *lists.by_row(), *lists.by_column(), None, None, None, None, *block, self.mask_mod)

    # --- masks made of this one ----------------------------------------------------------------------------------

    def __getitem__(self, index) -> BlockMask:
        """Batches, heads and rows of blocks. The result has no mask_mod until it is given one."""
        index = index if isinstance(index, tuple) else (index,)
        given = tuple([slice(i, i + 1 or None) if isinstance(i, int) else i for i in index])
        lists = self._all_lists()
        return BlockMask.from_kv_blocks(
            *lists.sliced(given), BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced, seq_lengths=self.seq_lengths,
            compute_q_blocks=lists.q_indices is not None,
        )  # fmt: skip

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left part, for shorter lengths."""
        if self._made_for is not None:
            return BlockMask._of_mask(
                self.mask_mod, *self._made_for, new_q_len, new_kv_len, self.BLOCK_SIZE, self._separate_full
            )
        rows, columns = _blocks_of(new_q_len, self.BLOCK_SIZE[0]), _blocks_of(new_kv_len, self.BLOCK_SIZE[1])
        return BlockMask.from_kv_blocks(
            *self._lists.cropped(rows, columns), self.BLOCK_SIZE, self.mask_mod, seq_lengths=(new_q_len, new_kv_len)
        )

    def to(self, device) -> BlockMask:
        """A copy; Treadle's masks are on the CPU."""
        if torch.device(device).type != "cpu":
            raise ValueError(f"Treadle runs on the CPU; a mask cannot go to {device}")
        copy = BlockMask(self.seq_lengths, None, None, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)
        copy._lists = self._lists.copy()
        copy._made_for, copy._separate_full = self._made_for, self._separate_full
        return copy

    # --- pictures ------------------------------------------------------------------------------------------------

    def to_string(self, grid_size=(20, 20), limit: int = 4) -> str:
        """Blocks as characters: all of them visited, some, none. A grid_size of -1 draws every block."""
        return blocks_as_text(self.to_dense(), grid_size, limit)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        mask_mod = getattr(self.mask_mod, "__name__", self.mask_mod)
        return f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE}, mask_mod={mask_mod})"

    def plot(self, *, batch: int = 0, head: int = 0, ax=None):
        """The mask as a picture, with matplotlib."""
        from ..plot import plot_mask

        return plot_mask(self, batch=batch, head=head, ax=ax)

    def _repr_png_(self):
        from ..plot import mask_png

        return mask_png(self)


def _list_property(name: str):
    def get(self):
        return getattr(self._all_lists(), name)

    def set_(self, value):
        setattr(self._lists, name, value)

    return property(get, set_)


for _name in (*BY_ROW, *BY_COLUMN):
    setattr(BlockMask, _name, _list_property(_name))
