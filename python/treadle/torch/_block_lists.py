"""FlexAttention's lists of blocks: how many of a row or column are visited, and which ones first.

    lists = BlockLists.of_kinds(kinds)     0 nothing is visible, 1 something, 2 everything, by block
    lists.kv_num_blocks, lists.kv_indices  the blocks of a row where the mask decides
    lists.full_kv_num_blocks, ...          those that are visible throughout
    lists.q_num_blocks, ...                the same by column
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

BY_ROW = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
BY_COLUMN = ("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices")


def pair(block_size) -> tuple:
    return (block_size, block_size) if isinstance(block_size, int) else tuple(block_size)


def ordered(dense: Tensor) -> tuple:
    """Counts, and the numbers of kept blocks first, in ascending order."""
    dense = dense.to(torch.int32)
    return dense.sum(-1, dtype=torch.int32), torch.argsort(dense, dim=-1, descending=True, stable=True).to(torch.int32)


def dense_of(num: Tensor, indices: Tensor, columns: int) -> Tensor:
    """0 and 1 by block, from a list. It may have fewer entries than there are columns: as many as are used."""
    listed = torch.arange(indices.shape[-1], device="cpu") < num.unsqueeze(-1)
    result = torch.zeros(*indices.shape[:-1], columns, dtype=torch.int32, device="cpu")
    if columns == 0:
        return result
    try:
        return result.scatter_reduce(-1, torch.where(listed, indices.to(torch.int64), 0), listed.to(torch.int32), "amax")
    except RuntimeError:
        wrong = indices[listed & ((indices < 0) | (indices >= columns))]
        if not wrong.numel():
            raise
        raise RuntimeError(
            f"BlockMask: the lists name block {wrong[0].item()} of a row; there are {columns} blocks, 0 to {columns - 1}"
        ) from None


class BlockLists:
    """The eight lists of a mask; None where there is none. A row has `columns` blocks, or as many as are listed."""

    __slots__ = (*BY_ROW, *BY_COLUMN, "columns")

    def __init__(
        self, *by_row: Optional[Tensor], by_column: tuple = (None, None, None, None), columns: Optional[int] = None
    ):
        self.columns = columns
        self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices = by_row
        self.q_num_blocks, self.q_indices, self.full_q_num_blocks, self.full_q_indices = by_column
        if self.kv_indices is not None and self.kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        assert (self.full_kv_num_blocks is None) == (self.full_kv_indices is None), (
            "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
        )
        assert (self.full_q_num_blocks is None) == (self.full_q_indices is None), (
            "full_q_num_blocks and full_q_indices must be both provided or omitted"
        )

    @classmethod
    def of_kinds(cls, kinds: Tensor, separate_full: bool = True) -> BlockLists:
        """Of blocks that are empty, partial or full: 0, 1, 2. Full ones are listed with the partial ones if so asked."""
        partial, full = (kinds == 1, kinds == 2) if separate_full else (kinds != 0, None)
        by_row, by_column = ordered(partial), ordered(partial.transpose(-2, -1))
        if full is None:
            return cls(*by_row, None, None, by_column=(*by_column, None, None))
        return cls(*by_row, *ordered(full), by_column=(*by_column, *ordered(full.transpose(-2, -1))))

    def add_columns(self) -> None:
        """The lists by column, from those by row."""
        self.q_num_blocks, self.q_indices = ordered(self._dense_partial().transpose(-2, -1))
        if self.full_kv_num_blocks is not None:
            self.full_q_num_blocks, self.full_q_indices = ordered(self._dense_full().transpose(-2, -1))

    def _dense(self, num: Tensor, indices: Tensor) -> Tensor:
        listed = [t.shape[-1] for t in (self.kv_indices, self.full_kv_indices) if t is not None]
        return dense_of(num, indices, max(self.columns or 0, *listed))

    def _dense_partial(self) -> Tensor:
        return self._dense(self.kv_num_blocks, self.kv_indices)

    def _dense_full(self) -> Tensor:
        return self._dense(self.full_kv_num_blocks, self.full_kv_indices)

    def dense(self) -> Tensor:
        """1 where a block is visited."""
        partial = self._dense_partial()
        return partial if self.full_kv_num_blocks is None else partial | self._dense_full()

    def kinds(self) -> Tensor:
        """[batch, heads, rows, columns]: 0 not listed, 1 partial, 2 full."""
        kinds = self._dense_partial().to(torch.int8)
        if self.full_kv_num_blocks is not None:
            kinds = torch.where(self._dense_full() == 1, torch.full_like(kinds, 2), kinds)
        while kinds.dim() < 4:
            kinds = kinds.unsqueeze(0)
        return kinds.contiguous()

    def count(self) -> int:
        """How many blocks are visited."""
        full = 0 if self.full_kv_num_blocks is None else self.full_kv_num_blocks.sum().item()
        return self.kv_num_blocks.sum().item() + full

    def sliced(self, index: tuple) -> tuple:
        """The lists by row of some batches, heads and rows of blocks."""
        return tuple([None if t is None else t[index] for t in self.by_row()])

    def cropped(self, rows: int, columns: int) -> tuple:
        """The lists by row of the upper left blocks."""
        partial = ordered(self._dense_partial()[..., :rows, :columns])
        if self.full_kv_num_blocks is None:
            return *partial, None, None
        return *partial, *ordered(self._dense_full()[..., :rows, :columns])

    def by_row(self) -> tuple:
        return tuple([getattr(self, name) for name in BY_ROW])

    def by_column(self) -> tuple:
        return tuple([getattr(self, name) for name in BY_COLUMN])

    def copy(self) -> BlockLists:
        return BlockLists(*self.by_row(), by_column=self.by_column(), columns=self.columns)

    def state(self) -> Optional[tuple]:
        """Changes when a list by row does; None if changes go unnoticed."""
        try:
            return tuple([None if t is None else (id(t), t._version) for t in self.by_row()])
        except RuntimeError:  # inference tensors do not count their changes
            return None
