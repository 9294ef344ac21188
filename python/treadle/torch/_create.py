"""create_block_mask and create_mask: masks from functions."""

from __future__ import annotations

import inspect
import warnings
from types import FunctionType
from typing import Callable, Optional

import torch
from torch import Tensor

from .._mods import as_mask_mod, as_score_mod
from ._block_lists import pair
from ._block_mask import DEFAULT_BLOCK, BlockMask
from ._evaluate import visible_pairs
from ._tracing import trace


def check_device(device):
    if device is not None and torch.device(device).type != "cpu":
        raise ValueError(f"Treadle runs on the CPU; device is {device}")


def _arity(function) -> int:
    if type(function) is FunctionType and not function.__dict__:
        return function.__code__.co_argcount - len(function.__defaults__ or ())
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(1 for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty)


def create_block_mask(
    mask_mod: Callable,
    B: Optional[int],
    H: Optional[int],
    Q_LEN: int,
    KV_LEN: int,
    device=None,
    BLOCK_SIZE=DEFAULT_BLOCK,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """A BlockMask of mask_mod, which may also be a text or a bool tensor [queries, keys], or with heads and batches before
    them. Takes microseconds: nothing is evaluated before it is needed.

    >>> from treadle.torch import create_block_mask
    >>> window = create_block_mask(lambda b, h, q, kv: (q >= kv) & (q - kv < 256), None, None, 4096, 4096)
    >>> window.numel()
    16777216
    """
    check_device(device)
    if not isinstance(dq_kv_order, bool):
        raise ValueError("dq_kv_order must be a bool")
    if _compile:
        warnings.warn("_compile has no effect: nothing is evaluated here", DeprecationWarning, stacklevel=2)
    batch, heads = 1 if B is None else B, 1 if H is None else H
    if not callable(mask_mod):
        mask_mod = as_mask_mod(mask_mod, torch.as_tensor)
    if not torch.compiler.is_compiling():  # there it is traced in the call, and nothing is lost
        assert _arity(mask_mod) == 4, f"create_block_mask requires a mask_mod function, which has 4 arguments; got {mask_mod}"
        trace(None, mask_mod, (batch, heads, Q_LEN, KV_LEN))  # reports mistakes here, not later
    return BlockMask._of_mask(mask_mod, batch, heads, Q_LEN, KV_LEN, pair(BLOCK_SIZE), separate_full_blocks)


def create_mask(mod_fn: Callable, B: Optional[int], H: Optional[int], Q_LEN: int, KV_LEN: int, device=None) -> Tensor:
    """[B, H, Q_LEN, KV_LEN] of bool: what a mask_mod shows, or where a score_mod does not make -inf of 0.

    >>> from treadle.torch import create_mask
    >>> create_mask(lambda b, h, q, kv: q >= kv, 1, 1, 2, 3)[0, 0]
    tensor([[ True, False, False],
            [ True,  True, False]])
    """
    check_device(device)
    batch, heads = 1 if B is None else B, 1 if H is None else H
    if not callable(mod_fn):
        is_score_text = isinstance(mod_fn, str) and "score" in mod_fn
        mod_fn = as_score_mod(mod_fn) if is_score_text else as_mask_mod(mod_fn, torch.as_tensor)
    is_score_mod = _arity(mod_fn) == 5
    assert is_score_mod or _arity(mod_fn) == 4, f"create_mask takes a score_mod or a mask_mod; got {mod_fn}"
    sizes = (batch, heads, Q_LEN, KV_LEN)
    return visible_pairs(mod_fn, None, sizes) if is_score_mod else visible_pairs(None, mod_fn, sizes)
