"""Bloom, MPT and Falcon, which have attention of their own and no interface: patched, so that theirs is ours.

Their biases fall linearly with the distance (ALiBi), and come as the model makes them: from the padding mask.
"""

from __future__ import annotations

import sys
from typing import Callable

import torch

from ._model_mask import ModelMask


def _bloom(attend: Callable, theirs: Callable):
    def forward(self, hidden_states, residual, alibi, attention_mask, layer_past=None, **others):
        if not isinstance(attention_mask, ModelMask):
            return theirs(self, hidden_states, residual, alibi, attention_mask, layer_past=layer_past, **others)
        query, key, value = self._reshape(self.query_key_value(hidden_states))
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        bias = self.beta * alibi.view(query.shape[0], self.num_heads, 1, -1)
        dropout = self.attention_dropout.p if self.training else 0.0
        out, _ = attend(
            self, query, key, value, attention_mask, scaling=self.inv_norm_factor, position_bias=bias, dropout=dropout,
            output_attentions=others.get("output_attentions"),
        )  # fmt: skip
        out = self.dense(out.flatten(2))
        return residual + torch.nn.functional.dropout(out, self.hidden_dropout, self.training), None

    return forward


def _mpt(attend: Callable, theirs: Callable):
    def forward(self, hidden_states, position_bias, past_key_values=None, attention_mask=None, **others):
        if not isinstance(attention_mask, ModelMask):
            return theirs(self, hidden_states, position_bias, past_key_values, attention_mask, **others)
        x = self.Wqkv(hidden_states)
        if self.clip_qkv:
            x = x.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        query, key, value = (t.unflatten(-1, (self.n_heads, self.head_dim)).transpose(1, 2) for t in x.chunk(3, dim=2))
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        if position_bias is not None:  # [heads, 1, keys], the last of which is the nearest
            position_bias = position_bias[None, :, :, max(0, position_bias.shape[2] - key.shape[2]) :]
        dropout = self.attn_dropout_p if self.training else 0.0
        out, _ = attend(
            self, query, key, value, attention_mask, scaling=self.softmax_scale, position_bias=position_bias,
            dropout=dropout, output_attentions=others.get("output_attentions"),
        )  # fmt: skip
        return self.out_proj(out.flatten(2)), None

    return forward


def _falcon_class(attend: Callable, base: type, rotate: Callable) -> type:
    class FalconTreadleAttention(base):
        def forward(
            self, hidden_states, alibi, attention_mask, position_ids=None, layer_past=None, use_cache=False,
            output_attentions=False, position_embeddings=None, **others,
        ):  # fmt: skip
            query, key, value = (t.transpose(1, 2) for t in self._split_heads(self.query_key_value(hidden_states)))
            if alibi is None:
                query, key = rotate(query, key, *position_embeddings)
            if layer_past is not None:
                key, value = layer_past.update(key, value, self.layer_idx)
            dropout = self.attention_dropout.p if self.training and alibi is not None else 0.0  # as theirs
            out, _ = attend(
                self, query, key, value, attention_mask, dropout=dropout, is_causal=self.is_causal,
                output_attentions=output_attentions,
            )  # fmt: skip
            return self.dense(out.flatten(2)), None

    return FalconTreadleAttention


def is_patched(module) -> bool:
    return getattr(module, "_patched_by_treadle", False)


def patch(name: str, cls: type, attend: Callable) -> None:
    """The attention of the module that this class of models is in, if it is one of the three; once."""
    module = sys.modules.get(cls.__module__)
    if module is None or is_patched(module):
        return
    kind = cls.__module__.rpartition(".")[2]
    if kind == "modeling_bloom":
        module.BloomAttention.forward = _bloom(attend, module.BloomAttention.forward)
    elif kind == "modeling_mpt":
        module.MptAttention.forward = _mpt(attend, module.MptAttention.forward)
    elif kind == "modeling_falcon":
        classes = module.FALCON_ATTENTION_CLASSES
        classes[name] = _falcon_class(attend, module.FalconAttention, module.apply_rotary_pos_emb)
    else:
        return
    module._patched_by_treadle = True
