"""The border of the torch front end: torch tensors as arrays of Treadle.

What a tensor means is settled here. Kernels read and write memory behind torch's back, so they may have plain tensors
only, while nobody looks at what torch does: `needs_dispatcher`. Whatever else has memory becomes such a tensor on its
way through torch's dispatcher; what has none is refused by `as_array`.
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from .. import _core
from .._program import Array, Program, types

NAMES = {
    torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
    torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2",
}  # fmt: skip
# The number of an element type, and the bits of an address that are zero if it is aligned.
_codes = {dtype: (types[name], dtype.itemsize - 1) for dtype, name in NAMES.items()}

_PLAIN = frozenset((Tensor, torch.nn.Parameter))
_modes = torch._C._len_torch_dispatch_stack
_is_tracing = torch._C._is_tracing
_is_included = torch._C._dispatch_tls_is_dispatch_key_included
_BEFORE_DISPATCH = torch._C.DispatchKey.PreDispatch


def needs_dispatcher(*tensors: Tensor) -> bool:
    """Whether a call has to be an operation of torch's: make_fx, torch.jit.trace, fake tensors and counters look at
    operations only, a subclass says itself what they mean for it, and before an operation torch negates what it has put
    off negating (z.conj().imag)."""
    return is_watched() or not are_plain(tensors)


def is_watched() -> bool:
    """Whether somebody looks at the operations of this thread."""
    return bool(_modes()) or _is_tracing() or _is_included(_BEFORE_DISPATCH)


def are_plain(tensors) -> bool:
    """Whether these mean what their memory says."""
    for t in tensors:
        if type(t) not in _PLAIN or t.is_neg():
            return False
    return True


def inside_functorch() -> bool:
    """Whether one of torch.func's transformations is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def check_not_recorded(what: str) -> None:
    """Where there is no operation: what make_fx or torch.jit.trace would write down is memory that nobody fills."""
    if torch.jit.is_tracing() or get_proxy_mode() is not None:
        raise RuntimeError(f"{what} cannot be part of a graph of make_fx or torch.jit.trace; call it before")


def as_array(x: Tensor) -> Array:
    """Of a tensor that is not to be negated, and has to be kept while the array is used."""
    try:
        address = x.data_ptr()
        code, low_bits = _codes[x.dtype]
    except (RuntimeError, KeyError):
        raise _refusal(x) from None
    if (address & low_bits or not address) and x.numel():
        raise _refusal(x) if not address else _not_aligned(x, address)
    return (address, code, tuple(x.shape), x.stride())


# The module reads tensors itself, and asks as_array for what it does not know or has to refuse.
_core.read_tensors(getattr(Tensor, "__dlpack_c_exchange_api__", None), as_array)


def _not_aligned(x: Tensor, address: int) -> ValueError:
    return ValueError(
        f"a tensor of {x.dtype} begins at address {address:#x}, which is not a multiple of its element size, "
        f"{x.itemsize}; copy it: x.clone()"
    )


def _refusal(x: Tensor) -> TypeError:
    if x.dtype not in _codes:
        return TypeError(f"tensors of {x.dtype} are not supported; those of {', '.join(map(str, _codes))} are")
    if x.layout != torch.strided:
        return TypeError(f"a tensor of layout {x.layout} is not supported; make it a strided one: x.to_dense()")
    return TypeError(f"a tensor of class {type(x).__name__} on {x.device} has no memory to read")


def arrays_of(program: Program) -> tuple:
    """The tensors that a program reads, to be kept, and what a compiled function takes for all its captures."""
    tensors = [t.resolve_neg() for t in tensors_of(program.captures)]
    return tensors, [*map(as_array, tensors), *program.scalars]


def tensors_of(captures) -> list:
    """The tensors of captured buffers; NumPy arrays as tensors of the same memory, where torch can have such."""
    return [c.object if isinstance(c.object, Tensor) else _of_numpy(c.object) for c in captures]


def _of_numpy(array) -> Tensor:
    if not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.copy()
    return torch.from_numpy(array)
