"""Every kind of tensor that torch can make, and of array that NumPy can.

`tensors` and `arrays` have makers by name: maker(shape, dtype) gives one of random values. Those in `refused_tensors` and
`refused_arrays` are none that Treadle may read; all others have to mean what a plain copy of them means: `plain(x)`.
"""

import tempfile
import warnings

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

rng = np.random.default_rng(0)


# --- torch --------------------------------------------------------------------------------------------------------


def random(shape, dtype):
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    if not dtype.is_floating_point:
        return torch.randint(0, 5, shape, dtype=dtype)
    return torch.randn(shape, dtype=torch.float64).to(dtype)


class Tagged(torch.Tensor):
    """A subclass that changes nothing: its operations are torch's, its memory is its own."""


class Wrapped(torch.Tensor):
    """A subclass without memory: its values are in another tensor, and operations are done on that."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device,
            requires_grad=inner.requires_grad,
        )  # fmt: skip

    def __init__(self, inner):
        self.inner = inner.detach()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(cls, lambda t: t.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


def _permuted(shape, dtype):
    return random(shape[::-1], dtype).permute(*reversed(range(len(shape))))


def _stepped(shape, dtype):
    return random([2 * n + 1 for n in shape], dtype)[tuple([slice(1, 2 * n + 1, 2) for n in shape])]


def _expanded(shape, dtype):
    return random([1 if i % 2 else n for i, n in enumerate(shape)], dtype).expand(shape)


def _overlapping(shape, dtype):
    return random([sum(shape) + 1], dtype).as_strided(shape, [1] * len(shape), 1)


def _complex(shape, dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return torch.complex(random(shape, wide), random(shape, wide))


def _negative(shape, dtype):
    """With torch's negative bit: z.conj().imag, or a view of another type."""
    if dtype in (torch.float32, torch.float64):
        return _complex(shape, dtype).conj().imag
    return random(shape, dtype) if dtype == torch.bool else torch._neg_view(random(shape, dtype))


def _negative_stepped(shape, dtype):
    x = _stepped(shape, dtype)
    return x if dtype == torch.bool else torch._neg_view(x)


def _in_bytes(shape, dtype, offset):
    x = random(shape, dtype)
    if x.numel() == 0:  # of which torch makes no tensor
        return x
    memory = bytearray(offset) + bytearray(x.reshape(-1).view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(memory, dtype=dtype, offset=offset, count=x.numel()).view(shape)


def _not_aligned(shape, dtype):
    return _in_bytes(shape, dtype, 1)


def _in_a_file(shape, dtype):
    x = random(shape, dtype)
    if x.numel() == 0:
        return x
    with tempfile.NamedTemporaryFile() as file:
        file.write(x.reshape(-1).view(torch.uint8).numpy().tobytes())
        file.flush()
        return torch.from_file(file.name, size=x.numel(), dtype=dtype).view(shape)


def _read_only(shape, dtype):
    x = random(shape, dtype)
    if x.numel() == 0:
        return x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.frombuffer(x.reshape(-1).view(torch.uint8).numpy().tobytes(), dtype=dtype).view(shape)


def _of_inference(shape, dtype):
    with torch.inference_mode():
        return random(shape, dtype)


def _fake(shape, dtype):
    return FakeTensorMode().from_tensor(random(shape, dtype))


def _quantized(shape, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.rand(shape), 0.1, 0, torch.quint8)


def _nested(shape, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([random(shape[1:], dtype)] * shape[0])


tensors = {
    "plain": random,
    "permuted": _permuted,
    "stepped": _stepped,
    "offset": lambda shape, dtype: random([3, *shape], dtype)[1],
    "expanded": _expanded,
    "overlapping": _overlapping,
    "negative": _negative,
    "negative and stepped": _negative_stepped,
    "real part of a conjugate": lambda shape, dtype: _complex(shape, dtype).conj().real.to(dtype),
    "flipped": lambda shape, dtype: random(shape, dtype).flip(0),
    "aligned bytes": lambda shape, dtype: _in_bytes(shape, dtype, 16),
    "in a file": _in_a_file,
    "read-only": _read_only,
    "of NumPy": lambda shape, dtype: torch.from_numpy(np.asfortranarray(rng.standard_normal(shape))).to(dtype),
    "shared": lambda shape, dtype: random(shape, dtype).share_memory_(),
    "of inference": _of_inference,
    "view of a leaf": lambda shape, dtype: random([2, *shape], dtype).requires_grad_(dtype.is_floating_point)[1],
    "parameter": lambda shape, dtype: torch.nn.Parameter(random(shape, dtype), requires_grad=dtype.is_floating_point),
    "subclass": lambda shape, dtype: random(shape, dtype).as_subclass(Tagged),
    "stepped subclass": lambda shape, dtype: _stepped(shape, dtype).as_subclass(Tagged),
    "negative subclass": lambda shape, dtype: _negative(shape, dtype).as_subclass(Tagged),
    "wrapped": lambda shape, dtype: Wrapped(random(shape, dtype)),
    "wrapped and stepped": lambda shape, dtype: Wrapped(_stepped(shape, dtype)),
}  # fmt: skip

refused_tensors = {
    "not aligned": _not_aligned,
    "zeros without memory": lambda shape, dtype: torch._efficientzerotensor(shape, dtype=dtype),
    "meta": lambda shape, dtype: random(shape, dtype).to("meta"),
    "fake": _fake,
    "complex": _complex,
    "conjugate": lambda shape, dtype: _complex(shape, dtype).conj(),
    "quantized": _quantized,
    "float8": lambda shape, dtype: torch.rand(shape).to(torch.float8_e4m3fnuz),
    "uint16": lambda shape, dtype: torch.zeros(shape, dtype=torch.uint16),
    "sparse": lambda shape, dtype: random(shape, dtype).to_sparse(),
    "mkldnn": lambda shape, dtype: torch.rand(shape).to_mkldnn(),
    "nested": _nested,
}


def plain(x):
    """A contiguous copy with the same values."""
    if isinstance(x, np.ndarray):
        values = np.empty(x.shape, x.dtype.newbyteorder("="))
        for at in np.ndindex(x.shape):
            values[at] = x[at]
        return values
    if isinstance(x, Wrapped):
        x = x.inner
    with torch.inference_mode(False):
        copy = x.detach().as_subclass(torch.Tensor).resolve_neg().clone(memory_format=torch.contiguous_format)
    return copy


# --- NumPy --------------------------------------------------------------------------------------------------------


def random_array(shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 5, shape).astype(dtype)


class Named(np.ndarray):
    """A subclass that changes nothing."""


def _array_bytes(shape, dtype, offset):
    x = random_array(shape, dtype)
    return np.frombuffer(bytearray(offset) + x.tobytes(), dtype, offset=offset).reshape(shape)


def _field(shape, dtype):
    """Of records whose size is a multiple of the field's: its strides count elements."""
    records = np.zeros(shape, np.dtype([("a", dtype), ("b", dtype), ("c", dtype)]))
    records["b"] = random_array(shape, dtype)
    return records["b"]


def _field_between(shape, dtype):
    records = np.zeros(shape, np.dtype([("a", np.int8), ("b", dtype)]))
    records["b"] = random_array(shape, dtype)
    return records["b"]


def _memmap(shape, dtype, mode):
    with tempfile.NamedTemporaryFile() as file:
        random_array(shape, dtype).tofile(file)
        file.flush()
        return np.memmap(file.name, dtype, mode, shape=shape)


def _array_overlapping(shape, dtype):
    size = np.dtype(dtype).itemsize
    return np.lib.stride_tricks.as_strided(random_array([sum(shape) + 1], dtype), shape, [size] * len(shape))


def _locked(shape, dtype):
    x = random_array(shape, dtype)
    x.flags.writeable = False
    return x


arrays = {
    "plain": random_array,
    "Fortran's order": lambda shape, dtype: np.asfortranarray(random_array(shape, dtype)),
    "stepped": lambda shape, dtype: random_array([2 * n for n in shape], dtype)[tuple([slice(1, None, 2)] * len(shape))],
    "reversed": lambda shape, dtype: random_array(shape, dtype)[tuple([slice(None, None, -1)] * len(shape))],
    "broadcast": lambda shape, dtype: np.broadcast_to(random_array([1, *shape[1:]], dtype), shape),
    "overlapping": _array_overlapping,
    "read-only": _locked,
    "field of records": _field,
    "mapped": lambda shape, dtype: _memmap(shape, dtype, "r+"),
    "mapped read-only": lambda shape, dtype: _memmap(shape, dtype, "r"),
    "mapped, written to a copy": lambda shape, dtype: _memmap(shape, dtype, "c"),
    "aligned bytes": lambda shape, dtype: _array_bytes(shape, dtype, 16),
    "subclass": lambda shape, dtype: random_array(shape, dtype).view(Named),
    "of torch": lambda shape, dtype: torch.from_numpy(random_array(shape, dtype)),
    "of torch, stepped": lambda shape, dtype: torch.from_numpy(random_array([2 * n for n in shape], dtype))[
        tuple([slice(1, None, 2)] * len(shape))
    ],
    "of torch, negative": lambda shape, dtype: _negative(shape, torch.from_numpy(np.empty(0, dtype)).dtype),
}

refused_arrays = {
    "not aligned": lambda shape, dtype: _array_bytes(shape, dtype, 1),
    "field between others": _field_between,
    "other byte order": lambda shape, dtype: random_array(shape, dtype).astype(np.dtype(dtype).newbyteorder("S")),
    "masked": lambda shape, dtype: np.ma.masked_less(random_array(shape, dtype), 0),
    "masked without a mask": lambda shape, dtype: np.ma.array(random_array(shape, dtype)),
    "complex": lambda shape, dtype: random_array(shape, dtype) * 1j,
    "long double": lambda shape, dtype: random_array(shape, dtype).astype(np.longdouble),
    "uint16": lambda shape, dtype: np.zeros(shape, np.uint16),
    "objects": lambda shape, dtype: random_array(shape, dtype).astype(object),
    "texts": lambda shape, dtype: random_array(shape, dtype).astype("U8"),
    "times": lambda shape, dtype: np.zeros(shape, "datetime64[s]"),
    "records": lambda shape, dtype: np.zeros(shape, np.dtype([("a", dtype)])),
    "a list": lambda shape, dtype: random_array(shape, dtype).tolist(),
    "of torch, with gradients": lambda shape, dtype: torch.zeros(shape, requires_grad=True),
    "of torch, bfloat16": lambda shape, dtype: torch.zeros(shape, dtype=torch.bfloat16),
    "of torch, sparse": lambda shape, dtype: torch.zeros(shape).to_sparse(),
    "of torch, meta": lambda shape, dtype: torch.zeros(shape, device="meta"),
}
