"""Mask functions made of others."""

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
