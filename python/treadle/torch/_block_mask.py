"""BlockMask: which pairs see each other, with the attributes and methods of torch's.

A mask is its mask_mod; blocks are worked out only when somebody asks for them. What kernels use is a Layout, finer
than blocks, kept here between calls.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Callable, Optional

import torch
from torch import Tensor

from .. import _core
from .._layouts import Layouts
from ._arrays import arrays_of, as_array
from ._block_lists import dense_of, ordered, pair
from ._masks import noop_mask
from ._tracing import trace

DEFAULT_BLOCK = 128
_KV_LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
_ANY_LENGTH = 1 << 30  # torch's block size of a mask that hides nothing


def _sliced(*ignored):
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask; give it one of its own: mask.mask_mod = ...")


class BlockMask:
    """Which pairs see each other, as create_block_mask makes it.

    dq_write_order and its like say in which order a GPU kernel adds up gradients. Treadle's order is always the same.

    >>> from treadle.torch import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 1024, 1024)
    >>> mask.shape, mask.sparsity()
    ((1, 1, 1024, 1024), 43.75)
    >>> mask.kv_num_blocks
    tensor([[[1, 1, 1, 1, 1, 1, 1, 1]]], dtype=torch.int32)
    """

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
        if kv_indices is not None and kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        assert (full_kv_num_blocks is None) == (full_kv_indices is None), (
            "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
        )
        assert (full_q_num_blocks is None) == (full_q_indices is None), (
            "full_q_num_blocks and full_q_indices must be both provided or omitted"
        )
        self.seq_lengths = tuple(seq_lengths)
        self.BLOCK_SIZE = pair(BLOCK_SIZE)
        self.mask_mod = mask_mod
        self._lists = {
            "kv_num_blocks": kv_num_blocks, "kv_indices": kv_indices,
            "full_kv_num_blocks": full_kv_num_blocks, "full_kv_indices": full_kv_indices,
            "q_num_blocks": q_num_blocks, "q_indices": q_indices,
            "full_q_num_blocks": full_q_num_blocks, "full_q_indices": full_q_indices,
        }  # fmt: skip
        # Given lists say which blocks exist. Without them the mask_mod alone decides, and `_made_for` is batch, heads.
        self._made_for: Optional[tuple] = None
        self._separate_full = True
        self._kinds: Optional[Tensor] = None
        self.layouts = Layouts()  # what kernels use
        self._compiled: Optional[tuple] = None

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
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        assert (full_kv_num_blocks is None) == (full_kv_indices is None), (
            "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
        )
        block = pair(BLOCK_SIZE)
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * block[0], kv_indices.shape[-1] * block[1])
        mask = cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
            BLOCK_SIZE=block, mask_mod=mask_mod or noop_mask,
        )  # fmt: skip
        if compute_q_blocks:
            mask._transpose()
        return mask

    def _transpose(self):
        lists = self._lists
        lists["q_num_blocks"], lists["q_indices"] = ordered(
            dense_of(lists["kv_num_blocks"], lists["kv_indices"]).transpose(-2, -1)
        )
        if lists["full_kv_num_blocks"] is not None:
            lists["full_q_num_blocks"], lists["full_q_indices"] = ordered(
                dense_of(lists["full_kv_num_blocks"], lists["full_kv_indices"]).transpose(-2, -1)
            )

    # --- what kernels use ---------------------------------------------------------------------------------------

    @property
    def any_length(self) -> bool:
        return self.BLOCK_SIZE[0] >= _ANY_LENGTH

    @property
    def batch_and_heads(self) -> tuple:
        if self._made_for is not None:
            return self._made_for
        return ((1, 1) + tuple(self._lists["kv_indices"].shape[:-2]))[-2:]

    @property
    def kv_batch(self) -> int:
        return self.batch_and_heads[0]

    @property
    def kv_heads(self) -> int:
        return self.batch_and_heads[1]

    def _block_kinds(self) -> Tensor:
        """[batch, heads, rows, columns]: 0 not listed, 1 partial, 2 full."""
        lists = self._lists
        kinds = dense_of(lists["kv_num_blocks"], lists["kv_indices"]).to(torch.int8)
        if lists["full_kv_num_blocks"] is not None:
            full = dense_of(lists["full_kv_num_blocks"], lists["full_kv_indices"]).to(torch.int8)
            kinds = torch.where(full == 1, torch.full_like(kinds, 2), kinds)
        while kinds.dim() < 4:
            kinds = kinds.unsqueeze(0)
        return kinds.contiguous()

    def compiled_mask_mod(self) -> Optional[Callable]:
        """The whole mask as a mask_mod: its own, or blocks and, inside the partial ones, its own."""
        if self._made_for is not None:
            return None if self.mask_mod is noop_mask else self.mask_mod
        if self.any_length and self.mask_mod is noop_mask:
            return None
        state = self._state_of_lists()
        if self._compiled is not None and self._compiled[0] is self.mask_mod and self._compiled[1] == state:
            return self._compiled[2]
        kinds = self._block_kinds()
        q_block, kv_block = self.BLOCK_SIZE
        mask_mod = self.mask_mod
        one_batch, one_head = kinds.shape[0] == 1, kinds.shape[1] == 1

        def blocks(b, h, q, kv):
            kind = kinds[0 if one_batch else b, 0 if one_head else h, q // q_block, kv // kv_block]
            if mask_mod is noop_mask:
                return kind != 0
            return (kind == 2) | ((kind == 1) & mask_mod(b, h, q, kv))

        self._compiled = (mask_mod, state, blocks) if state is not None else None
        return blocks

    def _state_of_lists(self) -> Optional[tuple]:
        """Changes when a list does; None if that cannot be told."""
        given = [self._lists[name] for name in _KV_LISTS]
        try:
            return tuple([None if t is None else (id(t), t._version) for t in given])
        except RuntimeError:  # inference tensors do not count their changes
            return None

    def check_not_sliced(self):
        if self.mask_mod is _sliced:
            _sliced()

    # --- blocks -------------------------------------------------------------------------------------------------

    def _list(self, name: str) -> Optional[Tensor]:
        if self._made_for is not None and self._lists["kv_num_blocks"] is None:
            self._work_out()
        return self._lists[name]

    def block_kinds(self, q_block: int, kv_block: int) -> Tensor:
        """[batch, heads, rows, columns] of any grid: 0 nothing is visible, 1 something, 2 everything."""
        batch, heads = self.batch_and_heads
        queries, keys = self.seq_lengths
        kinds = torch.empty(batch, heads, -(-queries // q_block), -(-keys // kv_block), dtype=torch.uint8, device="cpu")
        mask_mod = self.compiled_mask_mod() or noop_mask
        program = trace(None, mask_mod, (batch, heads, queries, keys)).counting_from_end()
        keep, arrays = arrays_of(program)
        _core.block_kinds(
            program.mask, program.declared(), arrays, queries, keys, q_block, kv_block, as_array(kinds),
            torch.get_num_threads(),
        )  # fmt: skip
        return kinds

    def _work_out(self):
        kinds = self.block_kinds(*self.BLOCK_SIZE)
        partial = (kinds == 1) if self._separate_full else (kinds != 0)
        lists = self._lists
        lists["kv_num_blocks"], lists["kv_indices"] = ordered(partial)
        lists["q_num_blocks"], lists["q_indices"] = ordered(partial.transpose(-2, -1))
        if self._separate_full:
            lists["full_kv_num_blocks"], lists["full_kv_indices"] = ordered(kinds == 2)
            lists["full_q_num_blocks"], lists["full_q_indices"] = ordered((kinds == 2).transpose(-2, -1))

    @property
    def shape(self) -> tuple:
        if self._made_for is not None:
            return (*self._made_for, *self.seq_lengths)
        return (*self._lists["kv_indices"].shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many pairs there are."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def sparsity(self) -> float:
        """The part of the mask that blocks leave out, in percent."""
        blocks = self.kv_num_blocks.sum().item()
        if self.full_kv_num_blocks is not None:
            blocks += self.full_kv_num_blocks.sum().item()
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """1 where a block is visited, by block."""
        dense = dense_of(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None:
            dense = dense | dense_of(self.full_kv_num_blocks, self.full_kv_indices)
        return dense

    def as_tuple(self, flatten: bool = True) -> tuple:
        block = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        lengths = self.seq_lengths if flatten else (self.seq_lengths,)
        return (
            *lengths, self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices,
            self.q_num_blocks, self.q_indices, self.full_q_num_blocks, self.full_q_indices,
            None, None, None, None, *block, self.mask_mod,
        )  # fmt: skip

    def __getitem__(self, index) -> BlockMask:
        """Batches, heads and rows of blocks. The result has no mask_mod until it is given one."""
        index = index if isinstance(index, tuple) else (index,)
        given = tuple([slice(i, i + 1 or None) if isinstance(i, int) else i for i in index])

        def cut(tensor):
            return None if tensor is None else tensor[given]

        return BlockMask.from_kv_blocks(
            cut(self.kv_num_blocks), cut(self.kv_indices), cut(self.full_kv_num_blocks), cut(self.full_kv_indices),
            BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced, seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left part, for shorter lengths."""
        if self._made_for is not None:
            return BlockMask._of_mask(
                self.mask_mod, *self._made_for, new_q_len, new_kv_len, self.BLOCK_SIZE, self._separate_full
            )
        rows = -(-new_q_len // self.BLOCK_SIZE[0])
        columns = -(-new_kv_len // self.BLOCK_SIZE[1])

        def cut(num, indices):
            return (None, None) if num is None else ordered(dense_of(num, indices)[..., :rows, :columns])

        partial = cut(self.kv_num_blocks, self.kv_indices)
        full = cut(self.full_kv_num_blocks, self.full_kv_indices)
        return BlockMask.from_kv_blocks(
            *partial, *full, self.BLOCK_SIZE, self.mask_mod, seq_lengths=(new_q_len, new_kv_len)
        )

    def to(self, device) -> BlockMask:
        """A copy; Treadle's masks are on the CPU."""
        if torch.device(device).type != "cpu":
            raise ValueError(f"Treadle runs on the CPU; a mask cannot go to {device}")
        copy = BlockMask(self.seq_lengths, None, None, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)
        copy._lists = dict(self._lists)
        copy._made_for, copy._separate_full = self._made_for, self._separate_full
        return copy

    def to_string(self, grid_size=(20, 20), limit: int = 4) -> str:
        """Blocks as characters: all of them visited, some, none. A grid_size of -1 draws every block."""
        dense = self.to_dense().float()
        *batch_dims, rows, columns = dense.shape
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        step = [1 if m < 0 else max(1, -(-n // m)) for n, m in zip((rows, columns), most)]
        pool = torch.nn.AvgPool2d(step, ceil_mode=True, count_include_pad=False)
        pictures = []
        for number, where in enumerate(itertools.product(*[range(n) for n in batch_dims])):
            if number == limit:
                pictures += ["...", "To see more, use to_string(limit=N), or mask[batch, head]"]
                break
            small = pool(dense[where][None])[0].tolist()
            lines = ["".join("██" if x == 1 else "  " if x == 0 else "░░" for x in row) for row in small]
            pictures.append("\n".join([str(where), *lines, ""]))
        return "\n".join(pictures)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE}, mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)})"

    def plot(self, *, batch: int = 0, head: int = 0, ax=None):
        """The mask as a picture, with matplotlib."""
        from ..plot import plot_mask

        return plot_mask(self, batch=batch, head=head, ax=ax)

    def _repr_png_(self):
        from ..plot import mask_png

        return mask_png(self)


def _list_property(name: str):
    return property(lambda self: self._list(name), lambda self, value: self._lists.__setitem__(name, value))


for _name in (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
    "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices",
):  # fmt: skip
    setattr(BlockMask, _name, _list_property(_name))


_known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def as_block_mask(mask) -> Optional[BlockMask]:
    """A BlockMask of ours; torch's are taken as its compiled kernels take them: only listed blocks exist, and full
    ones are visible whatever mask_mod says."""
    if mask is None or isinstance(mask, BlockMask):
        return mask
    if not all(hasattr(mask, name) for name in ("kv_num_blocks", "kv_indices", "mask_mod", "BLOCK_SIZE")):
        raise TypeError(f"block_mask must be a BlockMask, got {type(mask).__name__}")
    try:
        found = _known.get(mask)
    except TypeError:
        found = None
    same = found is not None and found.mask_mod is mask.mask_mod
    if not same or any(found._lists[name] is not getattr(mask, name) for name in _KV_LISTS):
        found = BlockMask(
            mask.seq_lengths, mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices,
            BLOCK_SIZE=mask.BLOCK_SIZE, mask_mod=mask.mask_mod,
        )  # fmt: skip
        try:
            _known[mask] = found
        except TypeError:
            pass
    return found
