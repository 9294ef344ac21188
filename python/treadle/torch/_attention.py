"""flex_attention: checks what it is given, and attends."""

from __future__ import annotations

import warnings
from typing import Callable, NamedTuple, Optional, Union

import torch
from torch import Tensor

from .._layouts import Layouts
from .._offsets import offsets_of
from ._attend import attend, autocast
from ._block_mask import BlockMask
from ._check import check_lengths, check_options, check_shapes, check_sinks, check_tensors
from ._foreign_masks import as_block_mask, is_mask_mod
from ._run import NO_EXTRAS, Extras
from ._seed import seed_for

_warned: list = []  # of return_lse, which is enough once


class AuxRequest(NamedTuple):
    """Which outputs besides the result are wanted."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The outputs that were asked for; None for the others."""

    lse: Optional[Tensor] = None
    max_scores: Optional[Tensor] = None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Optional[Callable] = None,
    block_mask=None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Optional[dict] = None,
    *,
    return_aux: Optional[AuxRequest] = None,
    sinks: Optional[Tensor] = None,
    q_offset=None,
    kv_offset=None,
    dropout_p: float = 0,  # an int: a float becomes a symbol of dynamic graphs
) -> Union[Tensor, tuple]:
    """softmax(score_mod(scale * query @ key.T), where the mask shows) @ value, in fused kernels for the CPU.

    The arguments are those of torch.nn.attention.flex_attention.flex_attention; what differs is in docs/python.md.
    Gradients of query, key, value and of every float tensor that score_mod reads are there, too.

    Beyond torch's: block_mask may be a mask_mod, which then alone decides. `sinks` [heads] are attention sinks, a logit per
    head that takes part in the softmax and has no value; they may require gradients. `q_offset` and `kv_offset` say where
    the first query and the first key stand, for all batch entries or for each: mods see q and kv from there on, and a row
    has the bits that it has in the whole sequence. Rows before position 0 are padding. With `dropout_p`, weights are 0 with
    this probability after the softmax, and the others are divided by 1 - dropout_p, in every call, as for torch's
    scaled_dot_product_attention; lse and max are those without. The seed is drawn from torch's default generator.

    >>> import torch
    >>> from treadle.torch import flex_attention, create_block_mask
    >>> q, k, v = (torch.randn(1, 2, 64, 16, requires_grad=True) for _ in range(3))
    >>> slopes = torch.tensor([0.5, 0.25], requires_grad=True)
    >>> causal = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 64, 64)
    >>> out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + slopes[h] * (kv - q), causal)
    >>> out.sum().backward()
    >>> slopes.grad.shape
    torch.Size([2])

    One mask for training and for the next token of a sequence:

    >>> window = lambda b, h, q, kv: (q >= kv) & (q - kv < 16)
    >>> all_rows = flex_attention(q, k, v, block_mask=window)
    >>> torch.equal(flex_attention(q[:, :, 63:], k, v, block_mask=window, q_offset=63), all_rows[:, :, 63:])
    True
    """
    given = (
        query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux, sinks,
        q_offset, kv_offset, dropout_p,
    )  # fmt: skip
    if isinstance(block_mask, BlockMask) and block_mask.ranks is not None and not torch.compiler.is_compiling():
        return block_mask.ranks.together(lambda: _flex_attention(*given))  # an error of one rank is one of all
    return _flex_attention(*given)


def _flex_attention(
    query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux, sinks, q_offset,
    kv_offset, dropout_p,
):  # fmt: skip
    mask, mask_mod = None, None
    if is_mask_mod(block_mask):
        mask_mod = block_mask
    else:
        mask = as_block_mask(block_mask)
    check_tensors(query, key, value)
    check_shapes(query, key, value, enable_gqa, mask)
    check_options(kernel_options, return_lse, return_aux)
    if mask is not None:
        mask.check_not_sliced()
        if mask.ranks is None:
            check_lengths(query, key, mask)
        else:
            mask.check_rows(query, key)
    if return_lse and not _warned:
        _warned.append(True)
        warnings.warn("return_lse is deprecated; use return_aux=AuxRequest(lse=True)", FutureWarning, stacklevel=3)
    query, key, value = autocast(query, key, value)
    want_lse = return_lse or (return_aux is not None and return_aux.lse)
    want_max = return_aux is not None and return_aux.max_scores
    extras = NO_EXTRAS
    if sinks is not None or q_offset is not None or kv_offset is not None or dropout_p:
        extras = Extras(
            sinks is not None, offsets_of("q_offset", q_offset), offsets_of("kv_offset", kv_offset),
            dropout_p=float(dropout_p),
        )  # fmt: skip
        if sinks is not None:
            check_sinks(sinks)
    seed = seed_for(extras.dropout_p)
    if mask is not None:
        if mask.is_listed and (extras.q_offsets or extras.kv_offsets):
            raise ValueError("block_mask lists blocks of rows, which have no positions; use create_block_mask or a mask_mod")
        if mask.ranks is None:
            mask_mod = mask.compiled_mask_mod()

    last = seed if sinks is None else (sinks, *seed)
    if mask is not None and mask.ranks is not None:
        out, lse, most = mask.attend(query, key, value, score_mod, scale, last, extras, want_lse, want_max)
    else:
        layouts = _of_functions if mask is None else mask.layouts
        out, lse, most = attend(query, key, value, score_mod, mask_mod, layouts, scale, last, extras, want_lse, want_max)
    if return_aux is not None:
        return out, AuxOutput(lse=lse if want_lse else None, max_scores=most if want_max else None)
    return (out, lse) if return_lse else out


_of_functions = Layouts(64)  # of mask_mods that are given without a BlockMask
