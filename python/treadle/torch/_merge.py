"""merge_states for torch's tensors, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from ._attention import AuxOutput


def merge_states(states) -> tuple[Tensor, AuxOutput]:
    """Attention over all keys from results over parts of them: `states` are (out, lse) of each part, without sinks.

    For engines that split keys themselves; one call over all keys rounds less. Returns out, and lse in an AuxOutput.
    A part whose lse is -inf for a row saw nothing: the row takes nothing from it.
    """
    outs, lses = [out for out, _ in states], [lse for _, lse in states]
    if not outs:
        raise ValueError("merge_states: there are no parts; there must be at least one")
    for out, lse in zip(outs, lses):
        if out.shape != outs[0].shape or lse.shape != out.shape[:3]:
            raise ValueError(
                f"merge_states: out has shape {list(out.shape)} and lse {list(lse.shape)}; all must be"
                f" {list(outs[0].shape)} and {list(outs[0].shape[:3])}"
            )
    stacked = torch.stack(lses)
    lse = torch.logsumexp(stacked, dim=0)
    # Of a row that sees nothing at all, -inf minus -inf.
    weights = torch.where(stacked == -torch.inf, 0, torch.exp(stacked - lse))
    total = torch.zeros_like(outs[0], dtype=lse.dtype)
    for out, weight in zip(outs, weights):
        seen = weight.unsqueeze(-1)
        total = total + torch.where(seen == 0, 0, seen * out.to(lse.dtype))
    return total.to(outs[0].dtype), AuxOutput(lse=lse)
