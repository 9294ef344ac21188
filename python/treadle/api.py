"""Attention on NumPy arrays, or anything that supports DLPack: treadle.attention, treadle.Attention, treadle.explain."""

from __future__ import annotations

from typing import Callable, Optional

import numpy as np

from . import _core
from ._arrays import as_array, as_numpy, check_result
from ._dropout import dropout_of
from ._explain import explain_program
from ._key_lists import KeyLists
from ._layouts import Layouts
from ._numpy import NumpyTrace, traced
from ._offsets import offsets_of, reach
from ._program import Program, function_for, trace, with_indices
from ._results import GradientMemory, Gradients, Result, compute_type
from ._sequences import Keys, keys_of, sequences_of


class Attention:
    """A score mod and a mask, for many calls. Mods see what they read as it is in each call.

    `most_nodes` is how many operations each mod, and the derivative, may have: 32768 if not given. A larger one is a
    ValueError.

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
        *,
        most_nodes: Optional[int] = None,
    ):
        self.score_mod = score_mod
        self.mask_mod = mask_mod
        self.scale = scale
        self.threads = threads
        self.most_nodes = most_nodes
        self._layouts = Layouts()

    def _call(self, q, k, v, keys: Optional[KeyLists], extras: Optional[tuple], numbers: Callable, run: Callable):
        """run(function, what it takes first), with gradients of the captures that `numbers` finds in the program."""
        _, q_offsets, kv_offsets, _ = extras or (None, (), (), None)
        sizes = (*q.shape[:2], reach(q.shape[2], q_offsets), reach(k.shape[2], kv_offsets))
        inputs = q, k, v

        def with_layout(program: Program, function: _core.Function, arrays: list):
            if keys is None:
                layout = None
                if program.mask:
                    kind = q.shape[:3], k.shape[2], q.dtype, k.dtype, v.dtype
                    layout = self._layouts.get(program, function, kind, inputs, arrays, self.threads, extras)
            else:
                layout = keys._layout(function, inputs, arrays, self.threads, extras)
            return run(function, (*inputs, arrays, layout))

        return self._traced(sizes, numbers, with_layout)

    def _traced(self, sizes: tuple, numbers: Callable, run: Callable):
        """run(program, function, its captures as arrays)."""
        program = traced(self.score_mod, self.mask_mod, sizes)
        gradients = numbers(program)
        arrays = [*[c.object for c in program.captures], *program.scalars]

        def attempt(program: Program):
            return run(program, function_for(program, gradients, self.scale, self.most_nodes), arrays)

        return with_indices(program, attempt, (self.score_mod, self.mask_mod))

    def forward(
        self, q, k, v, *, keys: Optional[KeyLists] = None, out: Optional[np.ndarray] = None, sinks=None, q_offset=None,
        kv_offset=None, dropout_p: float = 0.0, seed=0,
    ) -> Result:  # fmt: skip
        """out, lse and max of q [B, H, Q, D], k [B, Hkv, KV, D] and v [B, Hkv, KV, Dv]; with `keys`, of those alone.

        `sinks` [H] are attention sinks: a logit per head that takes part in the softmax and has no value. lse includes
        them, max does not.

        `q_offset` and `kv_offset` say where the first query and the first key stand: mods see q and kv from there on, and
        a row has the bits that it has in the whole sequence. One for all batch entries, or one for each. Rows before
        position 0 are padding: such queries see nothing, and nobody sees such keys.

        With `dropout_p`, weights are 0 with this probability after the softmax, and the others are divided by
        1 - dropout_p; lse and max are those without. Which ones follows from `seed` (an int, or a pair of seed and offset)
        and from positions; treadle.dropout_mask tells it.

        >>> import numpy as np, treadle
        >>> causal = treadle.Attention(mask_mod=lambda b, h, q, kv: q >= kv)
        >>> q, k, v = np.random.default_rng(0).random((3, 1, 1, 100, 8), np.float32)
        >>> next_row = causal.forward(q[:, :, 99:], k, v, q_offset=99).out
        >>> bool((next_row == causal.forward(q, k, v).out[:, :, 99:]).all())
        True
        """
        q, k, v = _checked(q, k, v)
        extras = _extras(sinks, q_offset, kv_offset, dropout_p, seed)
        if out is None:
            out = np.empty((*q.shape[:3], v.shape[3]), q.dtype)
        else:
            check_result("out", out)
        lse = np.empty(q.shape[:3], compute_type(q, k, v))
        most = np.empty_like(lse)

        def run(function, first):
            function.forward(*first, out, lse, most, self.threads, extras)
            return Result(out, lse, most)

        return self._call(q, k, v, keys, extras, lambda program: (), run)

    def backward(
        self, q, k, v, result: Result, dout, dlse=None, *, keys: Optional[KeyLists] = None, captures: tuple = (),
        sinks=None, q_offset=None, kv_offset=None, dropout_p: float = 0.0, seed=0,
    ) -> Gradients:  # fmt: skip
        """Gradients of q, k, v, of these captures (treadle.capture's arrays) and of the sinks, from forward's result.
        `keys`, `sinks`, `q_offset`, `kv_offset`, `dropout_p` and `seed` are forward's."""
        q, k, v = _checked(q, k, v)
        extras = _extras(sinks, q_offset, kv_offset, dropout_p, seed)
        work = GradientMemory((q, k, v), result, dout, dlse, captures, sinks)

        def run(function, first):
            function.backward(*first, *work.arrays(), self.threads, extras)
            return work.gradients()

        return self._call(q, k, v, keys, extras, work.numbers, run)

    def forward_sequences(
        self, q, q_starts, keys: Keys, *, out: Optional[np.ndarray] = None, sinks=None, q_offset=None, kv_offset=None,
        dropout_p: float = 0.0, seed=0,
    ) -> Result:  # fmt: skip
        """forward of sequences of different lengths: q is [all queries, H, D], and sequence s has those from q_starts[s] up
        to q_starts[s + 1]. `keys` is a treadle.PackedKeys or a treadle.PagedKeys. out is [all queries, H, Dv], lse and max
        are [all queries, H]; a sequence has the same bits alone, packed, in pages or in any batch.

        Queries are the last positions of their sequence: with 50 keys and 5 queries mods see q = 45 .. 49. `q_offset` and
        `kv_offset`, for all sequences or for each, say where else they stand. b is the number of the sequence.

        >>> import numpy as np, treadle
        >>> causal = treadle.Attention(mask_mod=lambda b, h, q, kv: q >= kv)
        >>> q, k = np.ones((6, 8, 64), np.float32), np.ones((90, 8, 64), np.float32)
        >>> keys = treadle.PackedKeys(k, k, np.array([0, 40, 90]))
        >>> causal.forward_sequences(q, np.array([0, 1, 6]), keys).out.shape
        (6, 8, 64)
        """
        q, q_starts, keys = as_numpy(q), as_numpy(q_starts), keys_of("forward_sequences", keys)
        extras = _extras(sinks, q_offset, kv_offset, dropout_p, seed)
        rows = q.shape[:-1]
        if out is None:
            out = np.empty((*rows, *keys.v.shape[-1:]), q.dtype)
        else:
            check_result("out", out)
        lse = np.empty(rows, compute_type(q, keys.k, keys.v))
        most = np.empty_like(lse)
        sequences = sequences_of(q, q_starts, keys)

        def run(program, function, arrays):
            function.forward_sequences(sequences, arrays, out, lse, most, self.threads, extras)
            return Result(out, lse, most)

        return self._traced(_sizes(q, q_starts), lambda program: (), run)

    def backward_sequences(
        self, q, q_starts, keys: Keys, result: Result, dout, dlse=None, *, captures: tuple = (), sinks=None, q_offset=None,
        kv_offset=None, dropout_p: float = 0.0, seed=0,
    ) -> Gradients:  # fmt: skip
        """backward of forward_sequences, for packed keys."""
        q, q_starts, keys = as_numpy(q), as_numpy(q_starts), keys_of("backward_sequences", keys)
        extras = _extras(sinks, q_offset, kv_offset, dropout_p, seed)
        work = GradientMemory((q, keys.k, keys.v), result, dout, dlse, captures, sinks)
        sequences = sequences_of(q, q_starts, keys)

        def run(program, function, arrays):
            function.backward_sequences(sequences, arrays, *work.arrays(), self.threads, extras)
            return work.gradients()

        return self._traced(_sizes(q, q_starts), work.numbers, run)


def _sizes(q: np.ndarray, q_starts: np.ndarray) -> tuple:
    """Of sequences: how many, and heads; positions have no common end."""
    heads = q.shape[1] if q.ndim == 3 else None
    return max(0, q_starts.size - 1), heads, None, None


def _extras(sinks, q_offset, kv_offset, dropout_p, seed) -> Optional[tuple]:
    """What most calls do not have."""
    dropout = dropout_of(dropout_p, seed)
    if sinks is None and q_offset is None and kv_offset is None and dropout is None:
        return None
    array = None if sinks is None else as_array(as_numpy(sinks))
    return array, offsets_of("q_offset", q_offset), offsets_of("kv_offset", kv_offset), dropout


def _checked(*arrays):
    arrays = tuple(as_numpy(a) for a in arrays)
    for name, a in zip(("q", "k", "v"), arrays):
        if a.ndim != 4:
            raise ValueError(f"attention: {name} has {a.ndim} dimensions; it must have 4: batch, heads, length, dim")
    return arrays


def attention(
    q, k, v, score_mod=None, mask_mod=None, scale=None, *, threads: int = 0, most_nodes: Optional[int] = None, sinks=None,
    q_offset=None, kv_offset=None, dropout_p: float = 0.0, seed=0,
) -> np.ndarray:  # fmt: skip
    """softmax(score_mod(scale * q @ k.T), where mask_mod shows) @ v. Attention.forward says what the others are.

    >>> import numpy as np, treadle
    >>> x = np.zeros((1, 1, 3, 2), np.float32)
    >>> v = np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2)
    >>> treadle.attention(x, x, v, mask_mod=lambda b, h, q, kv: q >= kv)[0, 0]
    array([[0., 1.],
           [1., 2.],
           [2., 3.]], dtype=float32)
    """
    function = Attention(score_mod, mask_mod, scale, threads, most_nodes=most_nodes)
    return function.forward(
        q, k, v, sinks=sinks, q_offset=q_offset, kv_offset=kv_offset, dropout_p=dropout_p, seed=seed
    ).out


def merge_states(states, *, threads: int = 0) -> Result:
    """Attention over all keys from results over parts of them: `states` are (out, lse) of each part, without sinks.

    For engines that split keys themselves; one call over all keys rounds less.

    >>> import numpy as np, treadle
    >>> q, k = np.ones((1, 1, 1, 2), np.float32), np.ones((1, 1, 6, 2), np.float32)
    >>> v = np.arange(6, dtype=np.float32).reshape(1, 1, 6, 1)
    >>> parts = [treadle.Attention().forward(q, k[:, :, part], v[:, :, part]) for part in (slice(0, 2), slice(2, 6))]
    >>> treadle.merge_states([(part.out, part.lse) for part in parts]).out.round(4)
    array([[[[2.5]]]], dtype=float32)
    """
    pairs = [(as_numpy(out), as_numpy(lse)) for out, lse in states]
    if not pairs:
        raise ValueError("merge_states: there are no parts; there must be at least one")
    out, lse = (np.empty(first.shape, first.dtype) for first in pairs[0])
    _core.merge_states(
        [as_array(o) for o, _ in pairs], [as_array(l) for _, l in pairs], as_array(out), as_array(lse), threads
    )
    return Result(out, lse)


def explain(score_mod=None, mask_mod=None, sizes: tuple = (1, 1, 1024, 1024)) -> str:
    """What Treadle makes of mods: their graphs, simplified, and the captures and numbers that they read.

    `sizes` are batch, heads, queries and keys. For mods that call torch's functions there is treadle.torch.explain.

    >>> import treadle
    >>> window = 128
    >>> print(treadle.explain(lambda s, b, h, q, kv: s * 2, lambda b, h, q, kv: (q >= kv) & (q - kv < window)))
    score mod:
      score * float(s0)
    mask:
      q >= kv && q - kv < s1
    numbers:
      s0 = 2
      s1 = 128
    """
    return explain_program(trace(NumpyTrace(sizes), score_mod, mask_mod))
