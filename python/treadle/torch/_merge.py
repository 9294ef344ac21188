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
    top = stacked.detach().amax(dim=0)
    # No infinity meets another below: gradients go through what torch.where does not choose, too, and would be NaN.
    weights = torch.exp(stacked - torch.where(top == -torch.inf, 0, top))
    sum_of_weights = weights.sum(dim=0)
    nothing = sum_of_weights == 0
    divisor = torch.where(nothing, 1, sum_of_weights)
    total = torch.zeros_like(outs[0], dtype=stacked.dtype)
    for out, weight in zip(outs, weights):
        seen = weight.unsqueeze(-1)
        total = total + seen * torch.where(seen == 0, 0, out.to(stacked.dtype))
    lse = torch.where(nothing, -torch.inf, top + torch.log(divisor))
    return (total / divisor.unsqueeze(-1)).to(outs[0].dtype), AuxOutput(lse=lse)
