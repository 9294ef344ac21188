"""What flex_attention may be given: errors of the kinds that torch's raises, with the numbers seen."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from ._block_mask import BlockMask
from ._graph_trace import fixed

_FLOATS = frozenset((torch.float64, torch.float32, torch.bfloat16, torch.float16))
_EIGHT_BITS = frozenset((torch.float8_e4m3fn, torch.float8_e5m2, torch.int8))
# torch's, which are about its GPU kernels: FlexKernelOptions, and those that its own tests and users set beside them.
_KERNEL_OPTIONS = frozenset((
    "BACKEND", "BLOCKS_ARE_CONTIGUOUS", "BLOCK_M", "BLOCK_M1", "BLOCK_M2", "BLOCK_N", "BLOCK_N1", "BLOCK_N2",
    "FORCE_USE_FLEX_ATTENTION", "PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "USE_TMA", "WRITE_DQ", "kpack",
    "matrix_instr_nonkdim", "num_stages", "num_warps", "waves_per_eu", "FLOAT32_PRECISION", "IS_DIVISIBLE", "SPLIT_KV",
    "SM_SCALE", "GQA_SHARED_HEADS", "HAS_FULL_BLOCKS", "QK_HEAD_DIM", "V_HEAD_DIM", "SPARSE_Q_BLOCK_SIZE",
    "SPARSE_KV_BLOCK_SIZE", "SAFE_HEAD_DIM", "USE_FLASH", "INDEX_DTYPE",
))  # fmt: skip
_NESTED = "nested tensors are not supported; varlen_attention takes those of layout torch.jagged"


def check_tensors(query, key, value):
    """Tensors, and where they are."""
    for t in (query, key, value):
        if type(t) is not Tensor:
            if not isinstance(t, Tensor):
                raise TypeError(f"query, key and value must be tensors, got {type(t).__name__}")
            if t.is_nested:
                raise NotImplementedError(_NESTED)
    if not (query.is_cpu and key.is_cpu and value.is_cpu) and not (query.device == key.device == value.device):
        raise ValueError(
            f"query, key and value must be on one device, got {query.device}, {key.device} and {value.device}"
        )
    if not query.is_cpu:
        raise ValueError(f"Treadle runs on the CPU; query, key and value are on {query.device}")


def _are_alike(query: Tensor, key: Tensor, value: Tensor, q, k, v) -> bool:
    """The usual case. Sizes that are symbols are not compared, which would make them equal for ever."""
    is_plain = type(query) is Tensor and type(key) is Tensor and type(value) is Tensor
    return is_plain and len(q) == 4 and q == k == v and query.dtype is key.dtype is value.dtype and query.dtype in _FLOATS


def check_shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool, block_mask: Optional[BlockMask]):
    """Dims, heads, batches, lengths and types."""
    try:
        q, k, v = query.shape, key.shape, value.shape
    except RuntimeError:
        raise NotImplementedError(_NESTED) from None
    if not torch.compiler.is_compiling() and _are_alike(query, key, value, q, k, v) and not enable_gqa:
        return
    if len(q) < 2 or len(k) < 2 or len(v) < 2:
        raise ValueError("query, key and value must have at least 2 dimensions")
    if q[-1] != k[-1]:
        raise ValueError(f"query and key must have the same embedding dimension, got {fixed(q[-1])} and {fixed(k[-1])}")
    if len(q) != 4 or len(k) != 4 or len(v) != 4:
        raise NotImplementedError("query, key and value must have 4 dimensions")
    if not enable_gqa and q[1] != k[1]:
        raise ValueError(
            f"query and key/value have different numbers of heads, {fixed(q[1])} and {fixed(k[1])}; set enable_gqa=True"
        )
    if enable_gqa and (k[1] == 0 or q[1] % k[1] != 0):
        raise ValueError(f"the heads of query, {fixed(q[1])}, must be a multiple of those of key/value, {fixed(k[1])}")
    if q[0] != k[0]:
        if block_mask is None:
            raise ValueError(
                f"query and key/value have batch sizes {fixed(q[0])} and {fixed(k[0])}; without a block_mask they must be "
                "equal"
            )
        batch = block_mask.batch_and_heads[0]
        if k[0] != 1 or batch != q[0]:
            raise ValueError(
                f"query, key/value and block_mask have batch sizes {fixed(q[0])}, {fixed(k[0])} and {fixed(batch)}; those "
                "of key/value must be 1 and the block_mask's that of query"
            )
    if v[:3] != k[:3]:
        raise ValueError(f"key and value must have the same batch, heads and length, got {_numbers(k)} and {_numbers(v)}")
    check_types(query, key, value)


def _numbers(shape) -> tuple:
    return tuple([fixed(n) for n in shape])


def check_types(query: Tensor, key: Tensor, value: Tensor):
    if query.dtype in _FLOATS and key.dtype in _FLOATS and value.dtype in _FLOATS:
        return
    if query.dtype not in _FLOATS:
        raise ValueError(f"query must be float64, float32, bfloat16 or float16, got {query.dtype}")
    for name, t in (("key", key), ("value", value)):
        if t.dtype not in _FLOATS and t.dtype not in _EIGHT_BITS:
            raise ValueError(
                f"{name} must be float64, float32, bfloat16, float16, float8_e4m3fn, float8_e5m2 or int8, got {t.dtype}"
            )
        if t.dtype in _EIGHT_BITS and t.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} is {t.dtype} and requires grad; gradients need float64, float32, bfloat16 or float16: "
                f"give {name}.detach()"
            )


def check_sequence_heads(query: Tensor, key: Tensor, axis: int, enable_gqa: bool):
    """Of packed sequences; the kernels' own checks say what else is wrong."""
    if enable_gqa or query.dim() != 3 or key.dim() <= axis or query.shape[1] == key.shape[axis]:
        return
    raise ValueError(
        f"query and key/value have different numbers of heads, {fixed(query.shape[1])} and {fixed(key.shape[axis])}; set "
        "enable_gqa=True"
    )


def check_index(name: str, x):
    """Tensors that say where rows lie."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
    if not x.is_cpu:
        raise ValueError(f"Treadle runs on the CPU; {name} is on {x.device}")


def check_sinks(sinks):
    if not isinstance(sinks, Tensor):
        raise TypeError(f"sinks must be a tensor, got {type(sinks).__name__}")
    if not sinks.is_cpu:
        raise ValueError(f"Treadle runs on the CPU; sinks are on {sinks.device}")


def check_options(kernel_options: Optional[dict], return_lse: bool, return_aux):
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux; use return_aux=AuxRequest(lse=True)")
    if kernel_options:
        if "BACKEND" in kernel_options and kernel_options.get("FORCE_USE_FLEX_ATTENTION"):
            raise RuntimeError("BACKEND cannot be combined with legacy FORCE_USE_FLEX_ATTENTION; give BACKEND alone")
        backend = kernel_options.get("BACKEND", "AUTO")
        if backend not in ("AUTO", "TRITON", "TRITON_DECODE", "FLASH"):
            raise ValueError(f"unknown BACKEND {backend!r}; AUTO, TRITON, TRITON_DECODE and FLASH are known")
        for name in ("OUTPUT_LOGSUMEXP", "OUTPUT_MAX"):
            assert name not in kernel_options, f"{name} is set by flex_attention; use return_aux"
        for name in kernel_options:
            if name.removeprefix("fwd_").removeprefix("bwd_") not in _KERNEL_OPTIONS:
                raise ValueError(
                    f"flex_attention: kernel_options has {name!r}, which is unknown; torch's are "
                    f"{', '.join(sorted(_KERNEL_OPTIONS))}, each also behind fwd_ or bwd_"
                )


def check_lengths(query: Tensor, key: Tensor, mask: BlockMask):
    q_length, kv_length = mask.seq_lengths
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    if (queries != q_length or keys != kv_length) and not mask.any_length:
        raise ValueError(
            f"block_mask was created for {fixed(q_length)} queries and {fixed(kv_length)} keys, but query and key have "
            f"lengths {fixed(queries)} and {fixed(keys)}; use block_mask._adjust(q_len, kv_len) or make a new one"
        )
    for name, size, of_mask in zip(("batch", "heads"), (batch, heads), mask.batch_and_heads):
        if of_mask != 1 and of_mask != size and not (name == "batch" and size == 1):  # torch reads the first of the mask's
            raise ValueError(
                f"block_mask has {name} {fixed(of_mask)}, query has {fixed(size)}; the mask's must be 1 or the same"
            )
