"""What torch's FlopCounterMode counts for a call, as for torch's own attention: all pairs, hidden or not."""

from __future__ import annotations

import torch
from torch._subclasses import FakeTensor
from torch.utils.flop_counter import register_flop_formula

from . import _ops, _paged  # noqa: F401  which define the operations
from ._run import lengths_of


def _pairs(q, k, captures) -> int:
    """Of all batch entries and heads. Sequences that are packed see their own keys alone."""
    if q.dim() == 4:
        return q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    return q.shape[1] * _pairs_of_sequences(q.shape[0], k.shape[0], *captures[-2:], lengths_of)


def _pairs_of_sequences(queries: int, keys: int, q_starts, lengths, read) -> int:
    """Where numbers cannot be read, while a graph is made, every query may see every key."""
    if isinstance(q_starts, FakeTensor) or q_starts.device.type != "cpu" or q_starts.dim() != 1:
        return queries * keys
    return sum([m * n for m, n in zip(lengths_of(q_starts), read(lengths))])


@register_flop_formula(torch.ops.treadle.attention, get_raw=True)
def _forward(q, k, v, captures, *ignored, out_val=None) -> int:
    return 2 * _pairs(q, k, captures) * (q.shape[-1] + v.shape[-1])


@register_flop_formula(torch.ops.treadle.attention_backward, get_raw=True)
def _backward(q, k, v, captures, *ignored, out_val=None) -> int:
    """Scores once more, dQ and dK; the weights' gradients and dV."""
    return 2 * _pairs(q, k, captures) * (3 * q.shape[-1] + 2 * v.shape[-1])


@register_flop_formula(torch.ops.treadle.paged_attention, get_raw=True)
def _paged(q, k, v, captures, *rest, out_val=None) -> int:
    q_starts, _, lengths, _, _, order = rest[-6:]
    tokens = k.shape[0] * (k.shape[1] if order == "tokens_first" else k.shape[2])
    pairs = _pairs_of_sequences(q.shape[0], tokens, q_starts, lengths, lambda x: x.flatten().tolist())
    return 2 * q.shape[1] * pairs * (q.shape[-1] + v.shape[-1])
