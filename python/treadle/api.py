"""Attention on NumPy arrays, or anything that speaks DLPack."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

import numpy as np

from . import _core
from ._numpy import as_array, as_numpy, capture  # noqa: F401
from ._program import Program, Scalars, function_for, trace


class Result(NamedTuple):
    out: np.ndarray
    lse: Optional[np.ndarray] = None
    max: Optional[np.ndarray] = None


class Gradients(NamedTuple):
    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray
    captures: tuple = ()


def _compute(*arrays) -> type:
    return np.float64 if any(a.dtype == np.float64 for a in arrays) else np.float32


class Attention:
    """A score mod and a mask, for many calls. Mods are traced in each call, so they see what they read as it is then.

    >>> import numpy as np, treadle
    >>> causal = treadle.Attention(mask_mod=lambda b, h, q, kv: q >= kv)
    >>> q = k = v = np.ones((1, 1, 4, 8), np.float32)
    >>> out, lse, _ = causal.forward(q, k, v)
    >>> out.shape, round(float(lse[0, 0, 0]), 4)
    ((1, 1, 4, 8), 2.8284)
    """

    def __init__(
        self,
        score_mod: Optional[Callable] = None,
        mask_mod: Optional[Callable] = None,
        scale: Optional[float] = None,
        threads: int = 0,
    ):
        self.score_mod = score_mod
        self.mask_mod = mask_mod
        self.scale = scale
        self.threads = threads

    def _prepare(self, q, k, wrap):
        sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        program = trace(self.score_mod, self.mask_mod, sizes, wrap)
        scalars = Scalars(program.scalars)
        arrays = [as_array(c.object) for c in program.captures] + scalars.arrays
        return program, scalars, arrays

    def _call(self, q, k, run: Callable):
        program, keep, arrays = self._prepare(q, k, False)
        try:
            return run(program, arrays)
        except _core.ModError:
            if not program.unsure:
                raise
        program, keep, arrays = self._prepare(q, k, True)  # negative indices count from the end
        return run(program, arrays)

    def forward(self, q, k, v, *, out: Optional[np.ndarray] = None) -> Result:
        """out, lse and max of q [B, H, Q, D], k [B, Hkv, KV, D] and v [B, Hkv, KV, Dv]."""
        q, k, v = _checked(q, k, v)
        if out is None:
            out = np.empty((*q.shape[:3], v.shape[3]), q.dtype)
        lse = np.empty(q.shape[:3], _compute(q, k, v))
        most = np.empty_like(lse)

        def run(program: Program, arrays):
            function = function_for(program, (), self.scale)
            function.forward(
                as_array(q), as_array(k), as_array(v), arrays, None, as_array(out), as_array(lse), as_array(most),
                self.threads,
            )  # fmt: skip
            return Result(out, lse, most)

        return self._call(q, k, run)

    def backward(self, q, k, v, result: Result, dout, dlse=None, *, captures: tuple = ()) -> Gradients:
        """Gradients of q, k, v and of these captures (treadle.capture's arrays), from forward's result."""
        q, k, v = _checked(q, k, v)
        dout = as_numpy(dout)
        lse = result.lse
        dlse = None if dlse is None else as_numpy(dlse).astype(lse.dtype)

        def run(program: Program, arrays):
            objects = [c.object for c in program.captures]
            numbers = []
            for c in captures:
                array = getattr(c, "array", c)
                at = [i for i, o in enumerate(objects) if o is array]
                if not at:
                    raise ValueError("backward: a capture is asked for that the score mod does not read")
                numbers.append(at[0])
            function = function_for(program, tuple(numbers), self.scale)
            results = [np.empty(t.shape, t.dtype) for t in (q, k, v)]
            results += [np.empty(objects[i].shape, objects[i].dtype) for i in numbers]
            function.backward(
                as_array(q), as_array(k), as_array(v), arrays, None, as_array(result.out), as_array(lse),
                as_array(dout), None if dlse is None else as_array(dlse), [as_array(r) for r in results],
                self.threads,
            )  # fmt: skip
            return Gradients(*results[:3], tuple(results[3:]))

        return self._call(q, k, run)


def _checked(*arrays):
    arrays = tuple(as_numpy(a) for a in arrays)
    for name, a in zip(("q", "k", "v"), arrays):
        if a.ndim != 4:
            raise ValueError(f"attention: {name} has {a.ndim} dimensions; it must have 4: batch, heads, length, dim")
    return arrays


def attention(q, k, v, score_mod=None, mask_mod=None, scale=None, *, threads: int = 0) -> np.ndarray:
    """softmax(score_mod(scale * q @ k.T), where mask_mod shows) @ v.

    >>> import numpy as np, treadle
    >>> x = np.zeros((1, 1, 3, 2), np.float32)
    >>> v = np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2)
    >>> treadle.attention(x, x, v, mask_mod=lambda b, h, q, kv: q >= kv)[0, 0]
    array([[0., 1.],
           [1., 2.],
           [2., 3.]], dtype=float32)
    """
    return Attention(score_mod, mask_mod, scale, threads).forward(q, k, v).out


def explain(score_mod=None, mask_mod=None, sizes: tuple = (1, 1, 1024, 1024)) -> str:
    """What Treadle makes of mods: their graphs, simplified."""
    program = trace(score_mod, mask_mod, sizes)
    text = function_for(program, (), None).describe()
    score = text.split("score mod:\n")[1].split("mask:\n")
    mask = score[1].split("derivative:\n")[0]
    lines = [line[2:] for line in (mask if score_mod is None else score[0]).splitlines()]
    return "\n".join(lines)
