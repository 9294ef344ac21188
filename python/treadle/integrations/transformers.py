"""attn_implementation="treadle" for the models of Hugging Face transformers.

    from treadle.integrations import transformers as treadle_transformers
    treadle_transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="treadle")

Masks stay functions: no model of ours ever makes a [queries, keys] tensor, and where nothing is hidden, as for the next
token of a sequence, there is no mask at all. Windows, soft caps, position biases and attention sinks go into the kernels,
and all of it trains.
"""

from __future__ import annotations

from typing import Callable, Optional, Union

import torch

from ..torch import BlockMask, and_masks, create_block_mask, flex_attention
from ..torch._foreign_masks import as_block_mask, is_mask_mod
from . import _interface
from ._key_lists import chosen_blocks, chosen_tokens
from ._model_mask import ModelMask

name = "treadle"

# Arguments of layers that choose no keys: the mask says already what they say, or they are about something else. Any
# other argument is refused.
_HARMLESS = frozenset((
    "position_ids", "cache_position", "position_embeddings", "past_key_values", "use_cache", "sliding_window",
    "max_length_q", "max_length_k", "token_type_ids", "mm_token_type_ids", "output_hidden_states", "output_router_logits",
    "return_dict", "deterministic", "num_items_in_batch",
))  # fmt: skip


# Models whose layers compute with the mask before their attention: an indexer of keys, or biases that are added to it.
_COMPUTE_WITH_MASK = frozenset(("axk2", "deepseek_v32", "doge", "glm_moe_dsa", "hy_v4", "mistral_large4"))


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Union[int, torch.Tensor] = 0,
    kv_offset: int = 0,
    mask_function: Optional[Callable] = None,
    attention_mask: Union[torch.Tensor, BlockMask, None] = None,
    local_size: Optional[int] = None,
    allow_is_causal_skip: bool = False,
    allow_is_bidirectional_skip: bool = False,
    config=None,
    **ignored,
) -> Union[BlockMask, torch.Tensor, None]:
    """What a model asks for before its layers run: its mask as a BlockMask; None if it hides nothing. Models that compute
    with their mask get a tensor of bool."""
    from transformers import masking_utils

    if isinstance(attention_mask, BlockMask):  # generate() has asked before the model does
        return attention_mask
    mask_function = mask_function or masking_utils.causal_mask_function
    if _computes_with_mask(config):
        return masking_utils.sdpa_mask(
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask,
            allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **ignored,
        )  # fmt: skip
    is_local = local_size is not None and kv_length >= local_size
    in_graph = masking_utils.is_tracing(attention_mask)  # where nothing may depend on numbers in tensors
    padding = None
    if attention_mask is not None and (in_graph or not bool(attention_mask.all())):
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if isinstance(q_offset, torch.Tensor):  # of a static cache, which changes it in place
        q_offset = q_offset.clone() if in_graph else int(q_offset)
    if padding is None and not is_local:
        if allow_is_bidirectional_skip:
            return None
        # One query behind all keys. (Of several queries a layer may ask for causality itself, where it gets no mask.)
        if allow_is_causal_skip and q_length == 1 and _is_last(q_offset, kv_offset + kv_length):
            return None

    def mask_mod(b, h, q, kv):
        shown = mask_function(b, h, q + q_offset, kv + kv_offset)
        if padding is not None:
            shown = shown & (padding[b, kv + kv_offset] != 0)
        return shown

    mask = create_block_mask(mask_mod, batch_size, None, q_length, kv_length)
    return ModelMask._of_mask(mask.mask_mod, batch_size, 1, q_length, kv_length, mask.BLOCK_SIZE)


def _computes_with_mask(config) -> bool:
    kind = getattr(config, "model_type", None)
    return kind in _COMPUTE_WITH_MASK or (kind == "falcon" and config.alibi)


def _is_last(q_offset: Union[int, torch.Tensor], end: int) -> bool:
    return not isinstance(q_offset, torch.Tensor) and q_offset >= end - 1


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask,
    scaling: Optional[float] = None,
    softcap: Optional[float] = None,
    s_aux: Optional[torch.Tensor] = None,
    position_bias: Optional[torch.Tensor] = None,
    dropout: float = 0.0,
    is_causal: Optional[bool] = None,
    cu_seq_lens_q: Optional[torch.Tensor] = None,
    cu_seq_lens_k: Optional[torch.Tensor] = None,
    seq_idx: Optional[torch.Tensor] = None,
    output_attentions: Optional[bool] = None,
    indices: Optional[torch.Tensor] = None,
    block_indices: Optional[torch.Tensor] = None,
    **others,
):
    """A layer's attention: [batch, queries, heads, dim], and no weights."""
    for argument, given in others.items():
        if argument not in _HARMLESS and given is not None and given is not False:
            raise ValueError(
                f"{type(module).__name__} passes {argument} to its attention, which treadle does not know and does not "
                'ignore: it may choose keys. Use attn_implementation="eager" or "sdpa" for this model'
            )
    if output_attentions:
        _warn_of_weights()
    block_mask, bias, chosen = None, None, []  # `chosen` are mask_mods of keys, beside the mask
    if isinstance(attention_mask, torch.Tensor):
        read = _read("attention_mask", attention_mask, query, key)
        if attention_mask.dtype == torch.bool:
            chosen.append(read)
        else:
            bias = read
    else:
        block_mask = _fitted(attention_mask, query, key)
    if indices is not None:
        chosen.append(chosen_tokens(indices, query, key))
    if block_indices is not None:
        chosen.append(chosen_blocks(block_indices, module, query, key))
    add = None if position_bias is None else _read("position_bias", position_bias, query, key)
    if attention_mask is None and query.shape[2] > 1 and _is_causal(module, is_causal):  # a mask says all, as in sdpa
        chosen.append(lambda b, h, q, kv: q >= kv)
    if cu_seq_lens_k is not None:
        first = cu_seq_lens_k if cu_seq_lens_q is None else cu_seq_lens_q
        chosen.append(_same_sequence(_numbers(first, query)[None], _numbers(cu_seq_lens_k, key)[None]))
    if seq_idx is not None:
        if query.shape[2] != key.shape[2]:
            raise ValueError(
                f"seq_idx has numbers for {seq_idx.shape[-1]} tokens, and there are {query.shape[2]} queries and "
                f"{key.shape[2]} keys: which sequences the keys belong to is not known"
            )
        chosen.append(_same_sequence(seq_idx, seq_idx))
    if chosen:
        block_mask = _also(block_mask, chosen, query, key)

    def score_mod(score, b, h, q, kv):
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        if bias is not None:
            score = score + bias(b, h, q, kv)
        if add is not None:
            score = score + add(b, h, q, kv)
        return score

    modifies = softcap is not None or bias is not None or add is not None
    out = flex_attention(
        query, key, value, score_mod if modifies else None, block_mask, scale=scaling, enable_gqa=True, sinks=s_aux,
        dropout_p=dropout if module.training else 0.0,
    )
    return out.transpose(1, 2).contiguous(), None


def _is_causal(module: torch.nn.Module, given: Optional[bool]) -> bool:
    """Of a layer without a mask: the argument decides, then the layer. Who says nothing is an encoder's: transformers has
    such, for which it refuses sdpa, since that takes them for causal."""
    return getattr(module, "is_causal", False) if given is None else given


def _numbers(bounds: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Which of the sequences that lie one behind the other a token is in; `bounds` are where they begin, and the end."""
    tokens = torch.arange(x.shape[2], dtype=bounds.dtype)
    return torch.searchsorted(bounds, tokens, right=True)


def _same_sequence(of_queries: torch.Tensor, of_keys: torch.Tensor):
    def mask_mod(b, h, q, kv):
        row = b if of_keys.shape[0] > 1 else 0
        return of_queries[row, q] == of_keys[row, kv]

    return mask_mod


def _read(name: str, x: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> Callable:
    """x(b, h, q, kv) of a tensor that broadcasts to [batch, heads, queries, keys]; keys behind the last are left out."""
    if x.dtype != torch.bool and not x.is_floating_point():
        raise ValueError(f"{name} has type {x.dtype}; it must be bool, or floats that are added to scores")
    if x.dim() > 4 or x.dim() == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must broadcast to [batch, heads, queries, keys]")
    x = x[(None,) * (4 - x.dim())][..., : key.shape[2]]
    sizes = (*query.shape[:3], key.shape[2])
    for given, size in zip(x.shape, sizes):
        if given != 1 and given != size:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}, which does not broadcast to [batch, heads, queries, keys] = "
                f"{list(sizes)}"
            )
    one = [size == 1 for size in x.shape]
    return lambda *at: x[tuple([0 if is_one else i for is_one, i in zip(one, at)])]


def _fitted(mask, query: torch.Tensor, key: torch.Tensor):
    """The mask; one of a single query or key, which a model has made for more, holds for all of them."""
    if mask is None or is_mask_mod(mask):
        return mask
    mask = as_block_mask(mask)
    queries, keys = query.shape[2], key.shape[2]
    one_query, one_key = (mask.seq_lengths[i] == 1 and n != 1 for i, n in ((0, queries), (1, keys)))
    of_one = mask.compiled_mask_mod() if one_query or one_key else None
    if of_one is None:
        return mask

    def mask_mod(b, h, q, kv):
        return of_one(b, h, q * 0 if one_query else q, kv * 0 if one_key else kv)

    return create_block_mask(mask_mod, *mask.batch_and_heads, queries, keys)


def _also(block_mask, mask_mods: list, query: torch.Tensor, key: torch.Tensor) -> BlockMask:
    """What the mask shows, if there is one, and all of these."""
    of_mask = block_mask.compiled_mask_mod() if isinstance(block_mask, BlockMask) else block_mask
    if of_mask is not None:
        mask_mods = [*mask_mods, of_mask]
    return create_block_mask(and_masks(*mask_mods), query.shape[0], None, query.shape[2], key.shape[2])


def _warn_of_weights() -> None:
    from transformers.utils import logging

    logging.get_logger(__name__).warning_once(
        "treadle makes no attention weights: with output_attentions=True they are None. "
        'Use attn_implementation="eager" for them'
    )


def register() -> None:
    """Makes attn_implementation="treadle" known; again does no harm.

    Models are checked from then on: one that would not ask for it, since its attention does not use transformers'
    interface, is refused. Bloom, MPT and Falcon have none either; theirs is patched.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)
    _interface.install(name, attention_forward)
