"""What NumPy's Attention returns, and the memory for it."""

from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np

from ._arrays import as_array, as_numpy, dtype_name
from ._program import Program


class Result(NamedTuple):
    out: np.ndarray
    lse: Optional[np.ndarray] = None
    max: Optional[np.ndarray] = None


class Gradients(NamedTuple):
    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray
    captures: tuple = ()
    dsinks: Optional[np.ndarray] = None


def compute_type(*arrays: np.ndarray) -> type:
    """Of lse and max: float64 if an input is."""
    return np.float64 if any(a.dtype == np.float64 for a in arrays) else np.float32


class GradientMemory:
    """What a backward is given besides its inputs, and memory for its results."""

    def __init__(self, inputs: tuple, result: Result, dout, dlse, captures: tuple, sinks):
        self._out, self._lse, self._dout = as_numpy(result.out), as_numpy(result.lse), as_numpy(dout)
        self._dlse = None
        if dlse is not None:
            dlse = as_numpy(dlse)
            dtype_name(dlse.dtype)
            self._dlse = dlse.astype(self._lse.dtype)
        self._learned = [getattr(c, "array", c) for c in captures]
        self._has_sinks = sinks is not None
        extra = (as_numpy(sinks),) if self._has_sinks else ()
        self._results = [np.empty(t.shape, t.dtype) for t in (*inputs, *self._learned, *extra)]

    def numbers(self, program: Program) -> tuple:
        """Of the captures whose gradients are asked for."""
        places = {id(c.object): i for i, c in enumerate(program.captures)}
        if any(id(array) not in places for array in self._learned):
            raise ValueError("backward: captures names one that the score mod does not read")
        return tuple([places[id(array)] for array in self._learned])

    def arrays(self) -> tuple:
        dlse = None if self._dlse is None else as_array(self._dlse)
        return as_array(self._out), as_array(self._lse), as_array(self._dout), dlse, [as_array(r) for r in self._results]

    def gradients(self) -> Gradients:
        results, end = self._results, 3 + len(self._learned)
        return Gradients(*results[:3], tuple(results[3:end]), results[end] if self._has_sinks else None)
