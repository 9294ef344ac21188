"""attn_implementation="treadle" for the models of Hugging Face transformers.

    from treadle.integrations import transformers as treadle_transformers
    treadle_transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="treadle")

Masks stay functions: no model of ours ever makes a [queries, keys] tensor. Windows, soft caps, position biases and
attention sinks go into the kernels or beside them, and all of it trains.
"""

from __future__ import annotations

from typing import Optional

import torch

from ..torch import AuxRequest, BlockMask, create_block_mask, flex_attention

name = "treadle"


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function=None,
    attention_mask: Optional[torch.Tensor] = None,
    **ignored,
) -> BlockMask:
    """What a model asks for before its layers run: its mask as a BlockMask."""
    from transformers import masking_utils

    mask_function = mask_function or masking_utils.causal_mask_function
    padding = None
    if attention_mask is not None and not bool(attention_mask.all()):
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    q_offset, kv_offset = int(q_offset), int(kv_offset)

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
    **ignored,
):
    """A layer's attention: [batch, queries, heads, dim], and no weights."""
    if dropout > 0:
        raise ValueError("treadle has no attention dropout; set attention_dropout to 0 in the model's config")
    block_mask, bias = None, None
    if isinstance(attention_mask, torch.Tensor):
        bias = attention_mask[:, :, :, : key.shape[-2]]
    else:
        block_mask = attention_mask

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
    out, aux = flex_attention(
        query, key, value, score_mod if modifies else None, block_mask, scale=scaling, enable_gqa=True,
        return_aux=AuxRequest(lse=s_aux is not None),
    )  # fmt: skip
    if s_aux is not None:
        # A sink is one more key with this score and no value: it only takes its part of the weight.
        out = out * torch.sigmoid(aux.lse - s_aux.view(1, -1, 1)).unsqueeze(-1).to(out.dtype)
    return out.transpose(1, 2).contiguous(), None


def register() -> None:
    """Makes attn_implementation="treadle" known; again does no harm."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)
