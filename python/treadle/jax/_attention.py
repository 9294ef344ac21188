"""attention: traces the mods of a call, and puts it into jax's program, with its derivative."""

from __future__ import annotations

import functools
import json
from typing import Callable, Optional

import jax
import jax.numpy as jnp
import numpy as np

from .._arrays import dtype_name
from .._captures import Buffer, Capture
from .._numpy import NumpyTrace
from .._program import numbers_of, trace
from ._calls import Description

_FLOATS = ("f64", "f32", "f16", "bf16")


def capture(array) -> Capture:
    """Lets mods read an array of jax's with traced indices: `slopes = capture(a)`, then `slopes[h]`.

    Inside jit, grad and vmap the array may be one that is traced, and floats get gradients.
    """
    array = jnp.asarray(array)
    return Capture(array, _buffer(array))


def _buffer(array) -> Buffer:
    return Buffer(array, dtype_name(array.dtype), tuple(array.shape))


class JaxTrace(NumpyTrace):
    def buffer_of(self, x):
        return _buffer(x) if isinstance(x, jax.Array) else NumpyTrace.buffer_of(self, x)


def attention(
    q, k, v, score_mod: Optional[Callable] = None, mask_mod: Optional[Callable] = None, scale: Optional[float] = None,
    *, return_lse: bool = False,
):  # fmt: skip
    """softmax(score_mod(scale * q @ k.T), where mask_mod shows) @ v, on jax's CPU arrays [batch, heads, length, dim].

    Keys may have fewer heads, if queries have a multiple of them. Gradients of q, k, v and of all floats that score_mod
    reads by `capture` are there, under jit, too. Mods use Python's operators and functions of NumPy or treadle. With
    `return_lse` the logarithm of the sum of each row's weights follows, [batch, heads, queries].

    >>> import jax, jax.numpy as jnp
    >>> from treadle.jax import attention, capture
    >>> def loss(slopes, q):
    ...     slope = capture(slopes)
    ...     alibi = lambda score, b, h, q, kv: score + slope[h] * (kv - q)
    ...     return attention(q, q, q, alibi, lambda b, h, q, kv: q >= kv).sum()
    >>> jax.jit(jax.grad(loss))(jnp.ones(2), jnp.ones((1, 2, 5, 8))).shape
    (2,)
    """
    out, lse = attend("attention", q, k, v, score_mod, mask_mod, scale, True)
    return (out, lse) if return_lse else out


def attend(name: str, q, k, v, score_mod, mask_mod, scale, heads_first: bool) -> tuple:
    """out and lse."""
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    batch, heads, queries, keys = _check(name, q, k, v, heads_first)
    program = trace(JaxTrace((batch, heads, queries, keys)), score_mod, mask_mod)
    description = Description(
        program.score_mod, program.mask, program.from_end, tuple([(c.dtype, c.shape) for c in program.captures]),
        program.scalars, None if scale is None else float(scale), heads_first,
    )  # fmt: skip
    return _attention(description, q, k, v, tuple([jnp.asarray(c.object) for c in program.captures]))


def _check(name: str, q, k, v, heads_first: bool) -> tuple:
    """Batch, heads, queries and keys."""
    axes = "batch, heads, length, dim" if heads_first else "batch, length, heads, dim"
    for which, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise ValueError(f"{name}: {which} has {x.ndim} dimensions; it must have 4: {axes}")
        if dtype_name(x.dtype) not in _FLOATS:
            raise TypeError(f"{name}: {which} is {x.dtype}; it must be float64, float32, float16 or bfloat16")
    of_heads, length = (1, 2) if heads_first else (2, 1)
    heads, of_keys = q.shape[of_heads], k.shape[of_heads]
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"{name}: q {q.shape}, k {k.shape} and v {v.shape} do not fit, as [{axes}]: all have one batch, q and k one "
            "dim, k and v the same heads and length"
        )
    if of_keys == 0 or heads % of_keys:
        raise ValueError(f"{name}: q has {heads} heads, k and v have {of_keys}; {heads} is not a multiple of {of_keys}")
    return q.shape[0], heads, q.shape[length], k.shape[length]


def _like(x) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _results(q, k, v, heads_first: bool) -> tuple:
    b, n, h, _ = q.shape
    wide = jnp.float64 in (q.dtype, k.dtype, v.dtype)
    rows = (b, n, h) if heads_first else (b, h, n)
    lse = jax.ShapeDtypeStruct(rows, jnp.float64 if wide else jnp.float32)
    return jax.ShapeDtypeStruct((*q.shape[:3], v.shape[3]), q.dtype), lse


def _call(name: str, results, text: str, arguments):
    # Batches of vmap follow one another: a mod sees no dimension of theirs.
    return jax.ffi.ffi_call(name, results, vmap_method="sequential")(*arguments, text=text)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(description: Description, q, k, v, captures: tuple) -> tuple:
    out, lse = _call(
        "treadle_attention", _results(q, k, v, description.heads_first), description.text(), (q, k, v, *captures)
    )
    return out, lse


def _forward(description: Description, q, k, v, captures: tuple) -> tuple:
    out, lse = _attention(description, q, k, v, captures)
    return (out, lse), (q, k, v, captures, out, lse)


def _backward(description: Description, saved: tuple, cotangents: tuple) -> tuple:
    q, k, v, captures, out, lse = saved
    dout, dlse = cotangents
    read = numbers_of("c", description.score_mod)
    numbers = [i for i in read if description.captures[i][0] in _FLOATS]
    results = [_like(x) for x in (q, k, v, *[captures[i] for i in numbers])]
    text = json.dumps([numbers, description.text()])
    dq, dk, dv, *learned = _call(
        "treadle_attention_backward", results, text, (q, k, v, out, lse, dout.astype(out.dtype), dlse, *captures)
    )
    of_captures = [_no_gradient(x) for x in captures]
    for i, gradient in zip(numbers, learned):
        of_captures[i] = gradient
    return dq, dk, dv, tuple(of_captures)


def _no_gradient(x):
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.zeros(x.shape, x.dtype)
    return np.zeros(x.shape, jax.dtypes.float0)


_attention.defvjp(_forward, _backward)
