"""varlen_attention: sequences of different lengths, packed, in one call."""

from __future__ import annotations

from typing import Callable, Optional, Union

import torch
from torch import Tensor

from .._offsets import offsets_of
from ._attend import attend, autocast
from ._attention import AuxOutput, AuxRequest
from ._check import check_sequence_heads, check_sinks, check_index, check_tensors, check_types
from ._foreign_masks import is_mask_mod
from ._masks import and_masks
from ._run import Extras
from ._seed import seed_for


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    *,
    score_mod: Optional[Callable] = None,
    mask_mod: Optional[Callable] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_aux: Optional[AuxRequest] = None,
    sinks: Optional[Tensor] = None,
    q_offset=None,
    kv_offset=None,
    dropout_p: float = 0,  # an int: a float becomes a symbol of dynamic graphs
) -> Union[Tensor, tuple]:
    """Attention of packed sequences, with gradients: query is [all queries, heads, dim], key and value are [all keys, key
    heads, dim]. Sequence s has the rows from cu_seqlens[s] up to cu_seqlens[s + 1], int32 or int64; without cu_seqlens_k
    keys lie as queries do. Each sequence has the bits that it has alone. lse and max_scores are [all queries, heads].

    The last query stands at the last key of its sequence: with 50 keys and 5 queries mods see q = 45 .. 49, and `causal` is
    aligned at the bottom right, as flash-attention's is. `q_offset` and `kv_offset`, for all sequences or for each, say
    where else rows stand. b is the number of the sequence. `window_size` is (left, right), of which -1 is unlimited: a query
    sees keys from q - left to q + right. A pair is visible if causal, window_size and mask_mod all show it. `dropout_p` is
    flex_attention's.

    Nested tensors of layout torch.jagged are taken without cu_seqlens: [batch, lengths, heads, dim], or [batch, heads,
    lengths, dim] as for scaled_dot_product_attention. Results are nested in the same way.

    >>> import torch
    >>> from treadle.torch import varlen_attention
    >>> q, k, v = (torch.randn(90, 8, 64, requires_grad=True) for _ in range(3))
    >>> out = varlen_attention(q, k, v, torch.tensor([0, 40, 90]), causal=True)
    >>> alone = varlen_attention(q[40:], k[40:], v[40:], torch.tensor([0, 50]), causal=True)
    >>> torch.equal(out[40:], alone)
    True
    >>> out.sum().backward()
    >>> q.grad.shape
    torch.Size([90, 8, 64])
    """
    if isinstance(query, Tensor) and query.is_nested:
        if cu_seqlens_q is not None or cu_seqlens_k is not None:
            raise ValueError(
                "varlen_attention: nested tensors know where their sequences begin; cu_seqlens is for packed ones"
            )
        rest = dict(
            score_mod=score_mod, mask_mod=mask_mod, causal=causal, window_size=window_size, scale=scale,
            enable_gqa=enable_gqa, return_aux=return_aux, sinks=sinks, q_offset=q_offset, kv_offset=kv_offset,
            dropout_p=dropout_p,
        )  # fmt: skip
        return _of_nested(query, key, value, rest)
    check_tensors(query, key, value)
    check_types(query, key, value)
    if cu_seqlens_k is None:
        cu_seqlens_k = cu_seqlens_q
    check_index("cu_seqlens_q", cu_seqlens_q)
    check_index("cu_seqlens_k", cu_seqlens_k)
    check_sequence_heads(query, key, 1, enable_gqa)
    if sinks is not None:
        check_sinks(sinks)
    mask, relative = mask_of(mask_mod, causal, window_size), score_mod is None and mask_mod is None
    query, key, value = autocast(query, key, value)
    offsets = offsets_of("q_offset", q_offset), offsets_of("kv_offset", kv_offset)
    extras = Extras(sinks is not None, *offsets, packed=True, relative=relative, dropout_p=float(dropout_p))
    last = (cu_seqlens_q, cu_seqlens_k, *seed_for(extras.dropout_p))
    if sinks is not None:
        last = (sinks, *last)
    want = return_aux or AuxRequest()
    results = attend(query, key, value, score_mod, mask, None, scale, last, extras, want.lse, want.max_scores)
    return with_aux(results, return_aux)


def mask_of(mask_mod: Optional[Callable], causal: bool, window_size: tuple) -> Optional[Callable]:
    """All that hides pairs, as one mask_mod; None if nothing does."""
    if mask_mod is not None and not is_mask_mod(mask_mod):
        raise TypeError(f"mask_mod must be a function of b, h, q and kv, got {type(mask_mod).__name__}")
    left, right = window_size
    if left < -1 or right < -1:
        raise ValueError(f"window_size is {tuple(window_size)}; each side must be -1, which is unlimited, or more")
    if causal:
        right = 0
    masks = []
    if right != -1:
        masks.append(lambda b, h, q, kv: q >= kv if right == 0 else kv - q <= right)
    if left != -1:
        masks.append(lambda b, h, q, kv: q - kv <= left)
    if mask_mod is not None:
        masks.append(mask_mod)
    if not masks:
        return None
    return masks[0] if len(masks) == 1 else and_masks(*masks)


def with_aux(results: tuple, return_aux: Optional[AuxRequest]):
    out, lse, most = results
    if return_aux is None:
        return out
    return out, AuxOutput(lse=lse if return_aux.lse else None, max_scores=most if return_aux.max_scores else None)


def _of_nested(query: Tensor, key: Tensor, value: Tensor, rest: dict):
    # One axis as it is in memory, wherever the caller has it.
    heads_first = _ragged_axis("query", query) == 2
    (q, q_starts), (k, k_starts), (v, v_starts) = (
        _packed(name, t) for name, t in (("query", query), ("key", key), ("value", value))
    )
    if v_starts is not k_starts and not torch.equal(v_starts, k_starts):
        raise ValueError("varlen_attention: key and value are nested with different lengths; they must be equal")
    result = varlen_attention(q, k, v, q_starts, k_starts, **rest)

    def nested(packed: Optional[Tensor]):
        if packed is None:
            return None
        t = torch.nested.nested_tensor_from_jagged(packed, q_starts)
        return t.transpose(1, 2) if heads_first else t

    if rest["return_aux"] is None:
        return nested(result)
    out, aux = result
    return nested(out), AuxOutput(*map(nested, aux))


def _ragged_axis(name: str, t: Tensor) -> int:
    if not (isinstance(t, Tensor) and t.is_nested and t.layout == torch.jagged):
        kind = f"a tensor of layout {t.layout}" if isinstance(t, Tensor) else type(t).__name__
        raise TypeError(
            f"varlen_attention: {name} is {kind}; query, key and value are nested of layout torch.jagged, or none is"
        )
    if t.dim() != 4 or t._ragged_idx not in (1, 2):
        raise ValueError(
            f"varlen_attention: {name} is nested with {t.dim()} dimensions, of which number {t._ragged_idx} has the "
            "lengths; it must be [batch, lengths, heads, dim] or [batch, heads, lengths, dim]"
        )
    return t._ragged_idx


def _packed(name: str, t: Tensor) -> tuple:
    """[all rows, heads, dim] and starts."""
    if _ragged_axis(name, t) == 2:
        t = t.transpose(1, 2)
    if t.lengths() is not None:  # there are holes between its sequences
        t = t.contiguous()
    return t.values(), t.offsets()
