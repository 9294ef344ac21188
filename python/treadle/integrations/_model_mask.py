"""What a model of transformers holds between its start and its layers."""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import BlockMask as TorchBlockMask

from ..torch import BlockMask

_USES_NO_INTERFACE = (
    "this model computes with its attention mask, so it does not use transformers' attention interface alone, and treadle's "
    'masks are functions, not tensors. Use attn_implementation="eager" or "sdpa"'
)


class ModelMask(BlockMask, TorchBlockMask):
    """A BlockMask that transformers takes for one, and that tells a model what it is instead of failing somewhere."""

    def __getattr__(self, name):
        if hasattr(torch.Tensor, name) and not name.startswith("_"):
            raise AttributeError(f"a BlockMask has no {name}: {_USES_NO_INTERFACE}")
        raise AttributeError(f"a BlockMask has no {name}")

    def to(self, *args, **kwargs):
        """Itself: a mask is on the CPU, and has no type."""
        return self

    def __getitem__(self, index):
        raise TypeError(f"a model reads part of a BlockMask: {_USES_NO_INTERFACE}")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise TypeError(f"{getattr(func, '__name__', func)} of a BlockMask: {_USES_NO_INTERFACE}")


def _refused(name: str):
    def operator(self, *ignored):
        raise TypeError(f"{name} of a BlockMask: {_USES_NO_INTERFACE}")

    return operator


for _name in "add sub mul truediv and or xor lt le gt ge".split():
    for _prefix in ("", "r") if _name not in ("lt", "le", "gt", "ge") else ("",):
        setattr(ModelMask, f"__{_prefix}{_name}__", _refused(_name))
for _name in ("invert", "neg"):
    setattr(ModelMask, f"__{_name}__", _refused(_name))
