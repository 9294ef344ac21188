"""flex_attention: what is checked, traced and run."""

from __future__ import annotations

import warnings
from typing import Callable, NamedTuple, Optional, Union

import torch
from torch import Tensor

from .._layouts import Layouts
from .._program import Program, function_for, trace, with_indices
from ._block_mask import BlockMask, as_block_mask
from ._tensors import Tracing, as_array, tensors_of


class AuxRequest(NamedTuple):
    """Which outputs besides the result are wanted."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    lse: Optional[Tensor] = None
    max_scores: Optional[Tensor] = None


_FLOATS = frozenset((torch.float64, torch.float32, torch.bfloat16, torch.float16))
_warned: list = []  # of return_lse, which is enough once


def empty_in_order_of(like: Tensor, shape, dtype=None) -> Tensor:
    """Memory whose strides are in the order of `like`'s, with the last one 1."""
    strides = like.stride()
    if strides[0] >= strides[1] >= strides[2]:
        return like.new_empty(shape, dtype=dtype)
    order = sorted(range(3), key=lambda d: strides[d], reverse=True) + [3]
    back = [order.index(d) for d in range(4)]
    return like.new_empty([shape[d] for d in order], dtype=dtype).permute(back)


class Call(NamedTuple):
    """All of a call that is no tensor of the user's."""

    program: Program
    scale: Optional[float]
    layouts: Layouts
    wrap: bool  # negative indices count from the end
    max: bool  # wanted
    threads: int


def _compute_type(q: Tensor, k: Tensor, v: Tensor):
    wide = torch.float64 in (q.dtype, k.dtype, v.dtype)
    return torch.float64 if wide else torch.float32


def _prepare(call: Call, q: Tensor, k: Tensor, v: Tensor, captured, gradients: tuple):
    """The compiled function, and what it takes first: q, k, v, captures, layout."""
    function = function_for(call.program, gradients, call.scale, call.wrap)
    arrays = [*map(as_array, captured), *call.program.scalars]
    inputs = as_array(q), as_array(k), as_array(v)
    layout = call.layouts.get(call.program, function, inputs, arrays, call.threads, call.wrap)
    return function, (*inputs, arrays, layout)


def run_forward(call: Call, q: Tensor, k: Tensor, v: Tensor, captured, lse: bool):
    """out, lse, max; the last two None unless wanted."""
    function, first = _prepare(call, q, k, v, captured, ())
    out = empty_in_order_of(q, (*q.shape[:3], v.shape[3]))
    compute = _compute_type(q, k, v)
    rows = q.new_empty(q.shape[:3], dtype=compute) if lse else None
    most = q.new_empty(q.shape[:3], dtype=compute) if call.max else None
    function.forward(
        *first, as_array(out), as_array(rows) if lse else None, as_array(most) if call.max else None, call.threads
    )
    return out, rows, most


def run_backward(call: Call, q, k, v, captured, out, lse, dout, dlse, gradients: tuple):
    """dq, dk, dv and those of the captures with these numbers."""
    function, first = _prepare(call, q, k, v, captured, gradients)
    results = [empty_in_order_of(t, t.shape) for t in (q, k, v)]
    results += [captured[i].new_empty(captured[i].shape) for i in gradients]
    function.backward(
        *first, as_array(out), as_array(lse), as_array(dout), as_array(dlse) if dlse is not None else None,
        [as_array(t) for t in results], call.threads,
    )  # fmt: skip
    return results


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(call: Call, q, k, v, *captured):
        out, lse, most = run_forward(call, q, k, v, captured, lse=True)
        return out, lse, most

    @staticmethod
    def setup_context(ctx, inputs, output):
        call, q, k, v, *captured = inputs
        out, lse, most = output
        ctx.call = call
        ctx.set_materialize_grads(False)
        if most is not None:
            ctx.mark_non_differentiable(most)
        ctx.save_for_backward(q, k, v, out, lse, *captured)

    @staticmethod
    def backward(ctx, dout, dlse, dmax):
        q, k, v, out, lse, *captured = ctx.saved_tensors
        needed = ctx.needs_input_grad
        if dout is None and dlse is None:
            return (None,) * len(needed)
        if dout is None:
            dout = torch.zeros_like(out)
        gradients = tuple([i for i in range(len(captured)) if needed[4 + i]])
        results = _AttentionBackward.apply(ctx.call, gradients, q, k, v, out, lse, dout, dlse, *captured)
        of_captures = [None] * len(captured)
        for number, i in enumerate(gradients):
            of_captures[i] = results[3 + number]
        return (None, *[g if need else None for g, need in zip(results, needed[1:4])], *of_captures)


class _AttentionBackward(torch.autograd.Function):
    """A function of its own, so that torch.func's transformations see plain tensors inside it."""

    @staticmethod
    def forward(call: Call, gradients: tuple, q, k, v, out, lse, dout, dlse, *captured):
        return tuple(run_backward(call, q, k, v, captured, out, lse, dout, dlse, gradients))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *ignored):
        raise NotImplementedError("treadle: flex_attention can be differentiated once; its gradients cannot be")


def _check(query, key, value, enable_gqa, block_mask, kernel_options, return_lse, return_aux):
    for t in (query, key, value):
        if not isinstance(t, Tensor):
            raise TypeError(f"query, key and value must be tensors, got {type(t).__name__}")
        if t.is_nested:
            raise NotImplementedError("nested tensors are not supported")
    if not (query.is_cpu and key.is_cpu and value.is_cpu) and not (query.device == key.device == value.device):
        raise ValueError(
            f"query, key and value must be on one device, got {query.device}, {key.device} and {value.device}"
        )
    if not query.is_cpu:
        raise ValueError(f"Treadle runs on the CPU; query, key and value are on {query.device}")
    q, k, v = query.shape, key.shape, value.shape
    if len(q) < 2 or len(k) < 2 or len(v) < 2:
        raise ValueError("query, key and value must have at least 2 dimensions")
    if q[-1] != k[-1]:
        raise ValueError(f"query and key must have the same embedding dimension, got {q[-1]} and {k[-1]}")
    if len(q) != 4 or len(k) != 4 or len(v) != 4:
        raise NotImplementedError("query, key and value must have 4 dimensions")
    if not enable_gqa and q[1] != k[1]:
        raise ValueError(
            f"query and key/value have different numbers of heads, {q[1]} and {k[1]}; set enable_gqa=True"
        )
    if enable_gqa and (k[1] == 0 or q[1] % k[1] != 0):
        raise ValueError(f"the heads of query, {q[1]}, must be a multiple of those of key/value, {k[1]}")
    if q[0] != k[0]:
        if block_mask is None:
            raise ValueError(
                f"query and key/value have batch sizes {q[0]} and {k[0]}; without a block_mask they must be equal"
            )
        batch = block_mask.batch_and_heads[0]
        if k[0] != 1 or batch != q[0]:
            raise ValueError(
                f"query, key/value and block_mask have batch sizes {q[0]}, {k[0]} and {batch}; those of key/value "
                "must be 1 and the block_mask's that of query"
            )
    if v[:3] != k[:3]:
        raise ValueError(f"key and value must have the same batch, heads and length, got {tuple(k)} and {tuple(v)}")
    for t in (query, key, value):
        if t.dtype not in _FLOATS:
            raise ValueError(f"query, key and value must be floating point, got {t.dtype}")
    if return_lse and return_aux is not None:
        raise ValueError("return_lse and return_aux cannot be given together; use return_aux=AuxRequest(lse=True)")
    if kernel_options:
        if "BACKEND" in kernel_options and kernel_options.get("FORCE_USE_FLEX_ATTENTION"):
            raise RuntimeError("BACKEND and FORCE_USE_FLEX_ATTENTION cannot be given together")
        backend = kernel_options.get("BACKEND", "AUTO")
        if backend not in ("AUTO", "TRITON", "TRITON_DECODE", "FLASH"):
            raise ValueError(f"unknown BACKEND {backend!r}; AUTO, TRITON, TRITON_DECODE and FLASH are known")
        for name in ("OUTPUT_LOGSUMEXP", "OUTPUT_MAX"):
            assert name not in kernel_options, f"{name} is set by flex_attention; use return_aux"


def _check_lengths(query, key, mask: BlockMask):
    q_length, kv_length = mask.seq_lengths
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    if (queries != q_length or keys != kv_length) and not mask.any_length:
        raise ValueError(
            f"block_mask was made for {q_length} queries and {kv_length} keys, but query and key have lengths "
            f"{queries} and {keys}; use block_mask._adjust(q_len, kv_len) or make a new one"
        )
    for name, size, of_mask in zip(("batch", "heads"), (batch, heads), mask.batch_and_heads):
        if of_mask != 1 and of_mask != size:
            raise ValueError(f"block_mask has {name} {of_mask}, query has {size}; the mask's must be 1 or the same")


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Optional[Callable] = None,
    block_mask=None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Optional[dict] = None,
    *,
    return_aux: Optional[AuxRequest] = None,
) -> Union[Tensor, tuple]:
    """softmax(score_mod(scale * query @ key.T), where the mask shows) @ value, in fused kernels for the CPU.

    The arguments are those of torch.nn.attention.flex_attention.flex_attention; what differs is in docs/python.md.
    Gradients of query, key, value and of every float tensor that score_mod reads are there, too.

    >>> import torch
    >>> from treadle.torch import flex_attention, create_block_mask
    >>> q, k, v = (torch.randn(1, 2, 64, 16, requires_grad=True) for _ in range(3))
    >>> slopes = torch.tensor([0.5, 0.25], requires_grad=True)
    >>> causal = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 64, 64)
    >>> out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + slopes[h] * (kv - q), causal)
    >>> out.sum().backward()
    >>> slopes.grad.shape
    torch.Size([2])
    """
    mask = as_block_mask(block_mask)
    _check(query, key, value, enable_gqa, mask, kernel_options, return_lse, return_aux)
    if mask is not None:
        mask.check_not_sliced()
        _check_lengths(query, key, mask)
    if return_lse and not _warned:
        _warned.append(True)
        warnings.warn("return_lse is deprecated; use return_aux=AuxRequest(lse=True)", FutureWarning, stacklevel=2)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = [t if t.dtype == torch.float64 else t.to(dtype) for t in (query, key, value)]
    want_lse = return_lse or (return_aux is not None and return_aux.lse)
    want_max = return_aux is not None and return_aux.max_scores
    mask_mod = mask.compiled_mask_mod() if mask is not None else None

    if torch.compiler.is_compiling():
        from ._ops import compiled_call

        out, lse, most = compiled_call(query, key, value, score_mod, mask_mod, scale)
    else:
        out, lse, most = _eager(query, key, value, score_mod, mask, mask_mod, scale, want_lse, want_max)
    if return_aux is not None:
        return out, AuxOutput(lse=lse if want_lse else None, max_scores=most if want_max else None)
    return (out, lse) if return_lse else out


def _eager(query, key, value, score_mod, mask, mask_mod, scale, want_lse, want_max):
    with Tracing():
        program = trace(score_mod, mask_mod, (*query.shape[:3], key.shape[2]))
    captured = tensors_of(program.captures)
    needs_grad = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad or any(t.requires_grad for t in captured)
    )
    if needs_grad:
        for i in program.mask_captures():
            if captured[i].requires_grad:
                raise AssertionError("a mask_mod reads a tensor that requires grad; a mask has no gradient")
    scale = None if scale is None else float(scale)
    layouts = _no_mask if mask is None else mask.layouts

    def run(wrap: bool):
        call = Call(program, scale, layouts, wrap, want_max, torch.get_num_threads())
        if needs_grad or _inside_functorch():
            return _Attention.apply(call, query, key, value, *captured)
        return run_forward(call, query, key, value, captured, want_lse)

    return with_indices(program, run)


_no_mask = Layouts()  # stays empty


def _inside_functorch() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None
