"""PagedAttention: torch's experimental page table, for flex_attention over a cache of pages."""

from __future__ import annotations

from typing import Callable, Optional

import torch
from torch import Tensor

from ._block_mask import BlockMask
from ._create import check_device
from ._masks import noop_mask


class PagedAttention:
    """Where the keys of a batch lie in a cache of pages, with the methods of torch's experimental class of that name.

    The cache is (1, H, n_pages * page_size, D), and flex_attention sees all of it: masks and score_mods are converted, so
    that they know the logical position behind a physical one. treadle.torch.paged_attention reads pages without all that.

    >>> import torch
    >>> from treadle.torch import PagedAttention, create_block_mask, flex_attention
    >>> k, v = torch.randn(2, 2, 1, 4, 32, 16)
    >>> q = torch.randn(2, 4, 32, 16)[:1]
    >>> pages = PagedAttention(n_pages=8, page_size=16, max_batch_size=2)
    >>> cache_k, cache_v = torch.zeros(2, 1, 4, 8 * 16, 16)
    >>> pages.reserve(torch.tensor([0]), torch.tensor([32]))
    >>> pages.assign(torch.tensor([0]), torch.arange(32)[None], k[0], v[0], cache_k, cache_v)
    >>> causal = create_block_mask(lambda b, h, q, kv: q >= kv, 1, None, 32, 32, BLOCK_SIZE=16)
    >>> paged = flex_attention(q, cache_k, cache_v, block_mask=pages.convert_logical_block_mask(causal))
    >>> torch.allclose(paged, flex_attention(q, k[0], v[0], block_mask=causal), atol=1e-6)
    True
    """

    def __init__(self, n_pages: int, page_size: int, max_batch_size: int, device="cpu"):
        check_device(device)
        self.n_pages = n_pages
        self.page_size = page_size
        # The physical page of each logical one, and back; -1: none.
        self.page_table = torch.full((max_batch_size, n_pages), -1, dtype=torch.int64)
        self.physical_to_logical = torch.full((max_batch_size, n_pages), -1, dtype=torch.int64)
        self.capacity = torch.zeros(max_batch_size, dtype=torch.int64)  # tokens that fit into the pages of each
        self.empty_pages = list(range(n_pages - 1, -1, -1))  # the next is the last

    def reserve(self, batch_idx: Tensor, seq_len: Tensor) -> None:
        """Pages for at least `seq_len` (1) tokens of batch entry `batch_idx` (1)."""
        b, wanted = int(batch_idx), int(seq_len)
        capacity = int(self.capacity[b])
        if wanted <= capacity:
            return
        count = -(-(wanted - capacity) // self.page_size)
        if len(self.empty_pages) < count:
            raise AssertionError(f"requested {count} pages but there are only {len(self.empty_pages)} empty pages")
        first = capacity // self.page_size
        pages = torch.tensor(self.empty_pages[-count:])
        self.empty_pages = self.empty_pages[:-count]
        self.page_table[b, first : first + count] = pages
        self.physical_to_logical[b, pages] = torch.arange(first, first + count)
        self.capacity[b] += count * self.page_size

    def erase(self, batch_idx: Tensor) -> None:
        """Frees the pages of batch entry `batch_idx` (1)."""
        b = int(batch_idx)
        pages = self.page_table[b]
        self.empty_pages += pages[pages != -1].tolist()
        self.capacity[b] = 0
        self.physical_to_logical[b] = -1
        self.page_table[b] = -1

    def assign(
        self, batch_idx: Tensor, input_pos: Tensor, k_val: Tensor, v_val: Tensor, k_cache: Tensor, v_cache: Tensor
    ) -> None:
        """Writes keys and values (B, H, S, D) of batch entries `batch_idx` (B) at positions `input_pos` (B, S) into the
        caches (1, H, n_pages * page_size, D)."""
        if k_val.requires_grad or v_val.requires_grad:
            raise RuntimeError("val must not require gradient")
        B, H, S, K_D = k_val.shape
        V_D = v_val.shape[3]
        _expect("val and batch_idx have the same batch size", "B", B, batch_idx.shape[0])
        _expect("val and cache has the same number of heads", "H", H, k_cache.shape[1])
        _expect("val and input_pos has the same length", "S", S, input_pos.shape[1])
        _expect("k_val and k_cache has the same hidden dim", "D", K_D, k_cache.shape[3])
        _expect("v_val and v_cache has the same hidden dim", "D", V_D, v_cache.shape[3])
        pages = torch.gather(self.page_table[batch_idx], 1, (input_pos // self.page_size).to(torch.int64))
        if bool((pages < 0).any()):  # torch would write to the end of the cache
            raise RuntimeError("Expect pages to be reserved for all of input_pos")
        rows = (pages * self.page_size + input_pos % self.page_size).view(-1)
        k_cache[:, :, rows] = k_val.transpose(0, 1).reshape(1, H, B * S, K_D)
        v_cache[:, :, rows] = v_val.transpose(0, 1).reshape(1, H, B * S, V_D)

    def convert_logical_block_mask(
        self, block_mask: BlockMask, batch_idx: Optional[Tensor] = None, kv_len: Optional[Tensor] = None
    ) -> BlockMask:
        """The mask over the cache that shows what a mask over logical positions does. `batch_idx` (B) are the batch entries
        that the mask is for, its first ones if not given; `kv_len` (B) are the lengths of their keys."""
        if block_mask.BLOCK_SIZE[1] != self.page_size:
            raise RuntimeError(
                f"Expect block_mask has the same column block size as page_size"
                f"but got size={block_mask.BLOCK_SIZE[1]} and size={self.page_size}"
            )
        table = self.page_table[torch.arange(block_mask.kv_indices.shape[0]) if batch_idx is None else batch_idx]
        lists = [*self._physical(table, block_mask.kv_num_blocks, block_mask.kv_indices), None, None]
        if block_mask.full_kv_num_blocks is not None:
            if block_mask.full_kv_indices is None:
                raise AssertionError("block_mask.full_kv_indices must not be None when full_kv_num_blocks is not None")
            lists[2:] = self._physical(table, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
        return BlockMask.from_kv_blocks(
            *lists, block_mask.BLOCK_SIZE, self._physical_mask(block_mask.mask_mod, kv_len, batch_idx),
            seq_lengths=(block_mask.seq_lengths[0], self.n_pages * self.page_size),
        )  # fmt: skip

    def _physical(self, table: Tensor, counts: Tensor, indices: Tensor) -> tuple:
        """The same blocks, by their pages, in the same order; those without a page are left out."""
        B, H, rows, columns = indices.shape
        pages = torch.gather(table, 1, indices.reshape(B, -1).to(torch.int64)).view(indices.shape)
        kept = (torch.arange(columns) < counts.unsqueeze(-1)) & (pages >= 0)
        order = torch.argsort(kept.to(torch.int8), dim=-1, descending=True, stable=True)
        physical = torch.zeros((B, H, rows, self.n_pages), dtype=torch.int32)
        physical[..., :columns] = pages.gather(-1, order).to(torch.int32)
        return kept.sum(-1, dtype=torch.int32), physical

    def get_mask_mod(self, mask_mod: Optional[Callable], kv_len: Optional[Tensor] = None) -> Callable:
        """A mask_mod of logical positions as one of physical ones."""
        return self._physical_mask(noop_mask if mask_mod is None else mask_mod, kv_len, None)

    def _physical_mask(self, mask_mod: Callable, kv_len: Optional[Tensor], batch_idx: Optional[Tensor]) -> Callable:
        def physical_mask(b, h, q_idx, physical_kv_idx):
            entry = b if batch_idx is None else batch_idx[b]
            logical, valid = self._logical(entry, b, physical_kv_idx, kv_len)
            return torch.where(valid, mask_mod(b, h, q_idx, logical), False)

        return physical_mask

    def get_score_mod(self, score_mod: Optional[Callable], kv_len: Optional[Tensor] = None) -> Callable:
        """A score_mod of logical positions as one of physical ones."""

        def physical_score(score, b, h, q_idx, physical_kv_idx):
            logical, valid = self._logical(b, b, physical_kv_idx, kv_len)
            modified = score if score_mod is None else score_mod(score, b, h, q_idx, logical)
            return torch.where(valid, modified, float("-inf"))

        return physical_score

    def _logical(self, entry, b, physical, kv_len: Optional[Tensor]) -> tuple:
        """The logical position of an entry of the page table behind a physical one, and whether there is one."""
        block = self.physical_to_logical[entry, physical // self.page_size]
        logical = block * self.page_size + physical % self.page_size
        valid = block >= 0
        return logical, valid if kv_len is None else valid & (logical < kv_len[b])


def _expect(what: str, axis: str, a: int, b: int) -> None:
    if a != b:
        raise RuntimeError(f"Expect {what} but got {axis}={a} and {axis}={b}.")
