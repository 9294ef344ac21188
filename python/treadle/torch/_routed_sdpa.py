"""A context in which torch's scaled_dot_product_attention is Treadle's: routed_sdpa."""

from __future__ import annotations

import types

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from ._attend import inside_functorch
from ._sdpa import scaled_dot_product_attention

_theirs = torch.nn.functional.scaled_dot_product_attention
_multi_head = torch.nn.functional.multi_head_attention_forward


class routed_sdpa(TorchFunctionMode):
    """A context in which torch.nn.functional.scaled_dot_product_attention is Treadle's, for tensors on the CPU.

    It holds for this thread, by whatever name the function is called, and ends with the block, also by an exception; blocks
    may be nested. Modules that call it, such as torch.nn.MultiheadAttention, use Treadle inside. What Treadle does not
    have stays torch's: other devices, nested tensors, vmap and forward-mode AD; and dropout, so that a checkpoint that is
    recomputed outside the block drops the same weights.

    >>> import torch
    >>> from treadle.torch import routed_sdpa
    >>> layer = torch.nn.TransformerEncoderLayer(32, 4, dropout=0.0, batch_first=True)
    >>> with routed_sdpa():
    ...     out = layer(torch.randn(2, 10, 32))
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is _theirs:
            return _routed(*args, **kwargs)
        # Inside a function that torch hands over as a whole there is no mode.
        return (_of_modules if func is _multi_head else func)(*args, **kwargs)


def _routed(*args, **kwargs):
    return (scaled_dot_product_attention if _takes(*args, **kwargs) else _theirs)(*args, **kwargs)


def _calling(function, **names):
    """A copy of a Python function that finds other functions by these names."""
    names = {**function.__globals__, **names}
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_of_modules = _calling(_multi_head, scaled_dot_product_attention=_routed)
_FLOATS = frozenset((torch.float64, torch.float32, torch.bfloat16, torch.float16))


def _takes(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False) -> bool:
    """Whether Treadle has such a call."""
    if dropout_p != 0.0:
        return False
    for x in (query, key, value) if attn_mask is None else (query, key, value, attn_mask):
        if not isinstance(x, Tensor) or not x.is_cpu or x.is_nested or x.layout != torch.strided:
            return False
    if query.dtype not in _FLOATS:
        return False
    return torch.compiler.is_compiling() or not (inside_functorch() or forward_ad._current_level >= 0)
