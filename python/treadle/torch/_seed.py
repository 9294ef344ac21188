"""Seeds of dropout, from torch's default generator: so torch.manual_seed and checkpointing's RNG state reproduce them."""

from __future__ import annotations

import torch

from .._dropout import check_probability


def seed_for(dropout_p: float) -> tuple:
    """A tensor with a seed; nothing is drawn if nothing is dropped. A tensor, so that in a graph it is drawn in every run."""
    check_probability(dropout_p)
    if dropout_p == 0:
        return ()
    return (torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64, device="cpu"),)
