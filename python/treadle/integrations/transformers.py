"""attn_implementation="treadle" for the models of Hugging Face transformers.

    from treadle.integrations import transformers as treadle_transformers
    treadle_transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="treadle")

Masks stay functions: no model of ours ever makes a [queries, keys] tensor, and where nothing is hidden, as for the next
token of a sequence, there is no mask at all. Windows, soft caps, position biases and attention sinks go into the kernels,
and all of it trains.
"""

from __future__ import annotations

from typing import Optional, Union

import torch

from ..torch import BlockMask, and_masks, create_block_mask, flex_attention

name = "treadle"

# Arguments of layers that choose no keys: the mask says already what they say, or they are about something else. Any
# other argument is refused.
_HARMLESS = frozenset((
    "position_ids", "cache_position", "position_embeddings", "past_key_values", "use_cache", "sliding_window",
    "max_length_q", "max_length_k", "token_type_ids", "mm_token_type_ids", "output_hidden_states", "output_router_logits",
    "return_dict", "deterministic", "num_items_in_batch",
))  # fmt: skip


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function=None,
    attention_mask: Union[torch.Tensor, BlockMask, None] = None,
    local_size: Optional[int] = None,
    allow_is_causal_skip: bool = False,
    **ignored,
) -> Optional[BlockMask]:
    """What a model asks for before its layers run: its mask as a BlockMask; None if it hides nothing."""
    from transformers import masking_utils

    if isinstance(attention_mask, BlockMask):  # generate() has asked before the model does
        return attention_mask
    mask_function = mask_function or masking_utils.causal_mask_function
    padding = None
    if attention_mask is not None and not bool(attention_mask.all()):
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    q_offset, kv_offset = int(q_offset), int(kv_offset)
    # A causal mask, perhaps with a window or chunks of local_size keys, and one query behind all keys. (Of several queries
    # a layer may ask for causality itself, where it gets no mask.)
    is_last = q_length == 1 and q_offset >= kv_offset + kv_length - 1
    if allow_is_causal_skip and is_last and padding is None and (local_size is None or kv_length < local_size):
        return None

    def mask_mod(b, h, q, kv):
        shown = mask_function(b, h, q + q_offset, kv + kv_offset)
        if padding is not None:
            shown = shown & (padding[b, kv + kv_offset] != 0)
        return shown

    return create_block_mask(mask_mod, batch_size, None, q_length, kv_length)


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
        raise ValueError('treadle makes no attention weights; use attn_implementation="eager" for output_attentions')
    block_mask, bias = None, None
    if isinstance(attention_mask, torch.Tensor):
        bias = attention_mask[:, :, :, : key.shape[-2]]
    else:
        block_mask = attention_mask
    chosen = []  # keys that arguments choose beside the mask
    if is_causal and attention_mask is None and query.shape[2] > 1:  # with a mask it says nothing, as in sdpa
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
            one = bias[b if bias.shape[0] > 1 else 0, h if bias.shape[1] > 1 else 0, q, kv]
            score = torch.where(one, score, -float("inf")) if bias.dtype == torch.bool else score + one
        if position_bias is not None:
            score = score + position_bias[b if position_bias.shape[0] > 1 else 0, h, q, kv]
        return score

    modifies = softcap is not None or bias is not None or position_bias is not None
    out = flex_attention(
        query, key, value, score_mod if modifies else None, block_mask, scale=scaling, enable_gqa=True, sinks=s_aux,
        dropout_p=dropout if module.training else 0.0,
    )
    return out.transpose(1, 2).contiguous(), None


def _numbers(bounds: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Which of the sequences that lie one behind the other a token is in; `bounds` are where they begin, and the end."""
    tokens = torch.arange(x.shape[2], dtype=bounds.dtype)
    return torch.searchsorted(bounds, tokens, right=True)


def _same_sequence(of_queries: torch.Tensor, of_keys: torch.Tensor):
    def mask_mod(b, h, q, kv):
        row = b if of_keys.shape[0] > 1 else 0
        return of_queries[row, q] == of_keys[row, kv]

    return mask_mod


def _also(block_mask: Optional[BlockMask], mask_mods: list, query: torch.Tensor, key: torch.Tensor) -> BlockMask:
    """What the mask shows, if there is one, and all of these."""
    of_mask = None if block_mask is None else block_mask.compiled_mask_mod()
    if of_mask is not None:
        mask_mods = [*mask_mods, of_mask]
    return create_block_mask(and_masks(*mask_mods), query.shape[0], None, query.shape[2], key.shape[2])


def register() -> None:
    """Makes attn_implementation="treadle" known; again does no harm."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)
