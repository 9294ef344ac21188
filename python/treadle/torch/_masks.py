"""mask_mods made of others: noop_mask, and_masks, or_masks, and those of listed blocks."""

from __future__ import annotations

from typing import Callable


def noop_mask(batch, head, token_q, token_kv):
    """Shows everything."""
    return token_q == token_q


def _check_callables(masks):
    if not all(callable(m) for m in masks):
        raise RuntimeError(f"All inputs should be callable mask_mods: {masks}")


def and_masks(*mask_mods: Callable) -> Callable:
    """What all of them show."""
    _check_callables(mask_mods)

    def and_mask(b, h, q_idx, kv_idx):
        result = noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: Callable) -> Callable:
    """What any of them shows."""
    _check_callables(mask_mods)

    def or_mask(b, h, q_idx, kv_idx):
        result = q_idx != q_idx
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def mask_of_blocks(kinds, block_size: tuple, mask_mod: Callable) -> Callable:
    """A mask_mod of listed blocks, [batch or 1, heads or 1, rows, columns]: nothing is visible in those of kind 0, what
    mask_mod shows in those of kind 1, everything in those of kind 2."""
    q_block, kv_block = block_size
    one_batch, one_head = kinds.shape[0] == 1, kinds.shape[1] == 1
    shows_all = mask_mod is noop_mask

    def blocks(b, h, q, kv):
        kind = kinds[0 if one_batch else b, 0 if one_head else h, q // q_block, kv // kv_block]
        if shows_all:
            return kind != 0
        return (kind == 2) | ((kind == 1) & mask_mod(b, h, q, kv))

    return blocks
