"""Sequences of different lengths in one NumPy call, their keys packed or in pages: the bits of calls of their own."""

import numpy as np
import pytest

import treadle
from treadle import PackedKeys, PagedKeys

# queries and keys of each sequence: training, a chunk of a prompt, a token, nothing to ask, nothing at all
LENGTHS = [(40, 40), (7, 90), (1, 133), (0, 5), (0, 0), (1, 1)]


def window(b, h, q, kv):
    return (q >= kv) & (q - kv < 50)


def biased(score, b, h, q, kv):
    return score + (kv - q) * 0.01 + h * 0.1 + b


def starts_of(counts, dtype=np.int32):
    return np.cumsum([0, *counts]).astype(dtype)


class Batch:
    def __init__(self, lengths=LENGTHS, heads=4, key_heads=2, dim=16, value_dim=12, dtype=np.float32, seed=0):
        random = np.random.default_rng(seed)
        self.q_starts = starts_of([q for q, _ in lengths])
        self.k_starts = starts_of([k for _, k in lengths], np.int64)
        shapes = (heads, dim), (key_heads, dim), (key_heads, value_dim)
        rows = self.q_starts[-1], self.k_starts[-1], self.k_starts[-1]
        self.q, self.k, self.v = (random.standard_normal((n, *s)).astype(dtype) for n, s in zip(rows, shapes))
        self.lengths = np.diff(self.k_starts).astype(np.int32)
        self.random = random

    @property
    def keys(self):
        return PackedKeys(self.k, self.v, self.k_starts)

    def alone(self, s):
        """q, k and v of a plain call in which it has batch index s, too, and its q_offset."""
        pairs = (self.q, self.q_starts), (self.k, self.k_starts), (self.v, self.k_starts)
        own = [x[starts[s] : starts[s + 1]].swapaxes(0, 1) for x, starts in pairs]
        q, k, v = (np.broadcast_to(x, (s + 1, *x.shape)) for x in own)
        return (q, k, v), k.shape[2] - q.shape[2]

    def rows(self, x, s):
        """[heads, queries, ...] of sequence s."""
        return x[self.q_starts[s] : self.q_starts[s + 1]].swapaxes(0, 1)

    def pages(self, size, order="heads_first", convert=lambda x: x):
        """The same keys in pages of a pool, in no order."""
        counts = -(-self.lengths // size)
        numbers = self.random.permutation(int(counts.sum()) + 2).astype(np.int32)
        table = np.full((len(counts), int(counts.max())), -7, np.int32)
        pools = [np.full((len(numbers), x.shape[1], size, x.shape[2]), np.nan, np.float32) for x in (self.k, self.v)]
        used = 0
        for s, count in enumerate(counts):
            for p in range(count):
                table[s, p] = numbers[used]
                used += 1
                rows = slice(self.k_starts[s] + p * size, min(self.k_starts[s] + (p + 1) * size, self.k_starts[s + 1]))
                for pool, x in zip(pools, (self.k, self.v)):
                    pool[table[s, p], :, : rows.stop - rows.start] = x[rows].swapaxes(0, 1)
        if order == "tokens_first":
            pools = [np.ascontiguousarray(pool.swapaxes(1, 2)) for pool in pools]
        return PagedKeys(*map(convert, pools), table, self.lengths, order)


def equal(a, b):
    return np.array_equal(a, b, equal_nan=True)


def test_forward_has_the_bits_of_calls_of_its_sequences():
    batch, attention = Batch(), treadle.Attention(biased, window)
    sinks = np.array([0.5, -1, 0, 2], np.float32)
    packed = attention.forward_sequences(batch.q, batch.q_starts, batch.keys, sinks=sinks)
    assert packed.out.shape == (49, 4, 12) and packed.lse.shape == packed.max.shape == (49, 4)
    for s in range(len(LENGTHS)):
        inputs, offset = batch.alone(s)
        own = attention.forward(*inputs, sinks=sinks, q_offset=offset)
        assert all(equal(batch.rows(x, s), y[s]) for x, y in zip(packed, own))
    for size, order in ((16, "heads_first"), (5, "tokens_first")):
        paged = attention.forward_sequences(batch.q, batch.q_starts, batch.pages(size, order), sinks=sinks)
        assert all(map(equal, paged, packed))


def test_sequences_share_pages():
    batch = Batch([(1, 64), (1, 64)])
    pages = batch.pages(16)
    table = np.stack([pages.table[0], [*pages.table[0][:3], pages.table[1][3]]])
    shared = treadle.Attention().forward_sequences(batch.q, batch.q_starts, pages._replace(table=table)).out
    k, v = (np.concatenate([x[:64], x[:48], x[112:]]) for x in (batch.k, batch.v))
    packed = treadle.Attention().forward_sequences(batch.q, batch.q_starts, PackedKeys(k, v, batch.k_starts)).out
    assert equal(shared, packed)


@pytest.mark.parametrize("order", ["heads_first", "tokens_first"])
@pytest.mark.parametrize("by", ["token", "page"])
def test_scales_of_eight_bits(order, by):
    batch = Batch()
    attention = treadle.Attention(mask_mod=window)

    def numbers(x):
        with np.errstate(invalid="ignore"):
            return np.round(np.nan_to_num(x) * 40).astype(np.int8)

    pages = batch.pages(8, order, numbers)
    axes = {"token": (0, 1, 2), "page": (0, 1 if order == "heads_first" else 2)}[by]
    scales = [batch.random.random([pages.k.shape[a] for a in axes], np.float32) for _ in range(2)]
    seen = attention.forward_sequences(
        batch.q, batch.q_starts, pages._replace(k_scales=scales[0], v_scales=scales[1])
    )
    shape = scales[0].shape if by == "token" else (scales[0].shape[0], *((-1, 1) if order == "heads_first" else (1, -1)))
    floats = [pool.astype(np.float32) * s.reshape(shape)[..., None] for pool, s in zip((pages.k, pages.v), scales)]
    wanted = attention.forward_sequences(batch.q, batch.q_starts, pages._replace(k=floats[0], v=floats[1]))
    assert all(map(equal, seen, wanted))


def test_backward_is_that_of_its_sequences():
    batch = Batch(dtype=np.float64)
    slopes = treadle.capture(np.array([0.5, 0.25, 0.1, 0.7]))
    sinks = np.array([0.5, -1, 0, 2])
    attention = treadle.Attention(lambda s, b, h, q, kv: s + slopes[h] * (kv - q) + b, window)
    result = attention.forward_sequences(batch.q, batch.q_starts, batch.keys, sinks=sinks)
    dout, dlse = (batch.random.standard_normal(x.shape) for x in result[:2])
    seen = attention.backward_sequences(
        batch.q, batch.q_starts, batch.keys, result, dout, dlse, captures=(slopes,), sinks=sinks
    )
    dslopes, dsinks = np.zeros(4), np.zeros(4)
    for s in range(len(LENGTHS)):
        inputs, offset = batch.alone(s)
        own = attention.forward(*inputs, sinks=sinks, q_offset=offset)
        douts = [np.zeros_like(x) for x in own[:2]]
        for zeros, given in zip(douts, (dout, dlse)):
            zeros[s] = batch.rows(given, s)
        g = attention.backward(*inputs, own, *douts, captures=(slopes,), sinks=sinks, q_offset=offset)
        assert equal(batch.rows(seen.dq, s), g.dq[s])
        rows = slice(batch.k_starts[s], batch.k_starts[s + 1])
        assert equal(seen.dk[rows].swapaxes(0, 1), g.dk[s]) and equal(seen.dv[rows].swapaxes(0, 1), g.dv[s])
        dslopes += g.captures[0]
        dsinks += g.dsinks
    np.testing.assert_allclose(seen.captures[0], dslopes, rtol=1e-12)
    np.testing.assert_allclose(seen.dsinks, dsinks, rtol=1e-12)


def test_offsets_of_each_sequence():
    batch = Batch([(3, 50), (5, 2)])
    attention = treadle.Attention(biased, window)
    seen = attention.forward_sequences(batch.q, batch.q_starts, batch.keys, q_offset=[10, 4], kv_offset=np.array([0, 3]))
    for s, (q, kv) in enumerate(((10, 0), (4, 3))):
        own = attention.forward(*batch.alone(s)[0], q_offset=q, kv_offset=kv)
        assert equal(batch.rows(seen.out, s), own.out[s])


def test_given_memory_and_nothing_to_do():
    batch = Batch()
    out = np.empty((2, 49, 4, 12), np.float32)[::2][0]
    result = treadle.Attention().forward_sequences(batch.q, batch.q_starts, batch.keys, out=out)
    assert result.out is out and equal(out, treadle.Attention().forward_sequences(batch.q, batch.q_starts, batch.keys).out)
    zero = np.zeros(1, np.int32)
    keys = PackedKeys(batch.k[:0], batch.v[:0], zero)
    assert treadle.Attention().forward_sequences(batch.q[:0], zero, keys).out.shape == (0, 4, 12)


def test_what_is_refused():
    batch = Batch([(2, 4), (3, 3)])
    pages = batch.pages(4)
    attention = treadle.Attention()

    def refused(error, match, q=batch.q, q_starts=batch.q_starts, keys=batch.keys, **more):
        with pytest.raises(error, match=match):
            attention.forward_sequences(q, q_starts, keys, **more)

    refused(TypeError, "forward_sequences: keys must be PackedKeys or PagedKeys, got ndarray", keys=batch.k)
    refused(ValueError, "order is 'pages_first'; it must be 'heads_first'", keys=pages._replace(order="pages_first"))
    refused(treadle.Error, r"forward: q has shape \[5, 64\]; it must be \[queries, heads, dim\]", q=batch.q.reshape(5, 64))
    refused(treadle.Error, "forward: q_starts begins with 1; it must begin with 0", q_starts=np.array([1, 2, 5]))
    refused(treadle.Error, "forward: q_starts holds 1 after 2; starts must not fall", q_starts=np.array([0, 2, 1, 5]))
    refused(treadle.Error, "forward: q_starts ends with 4, there are 5 queries", q_starts=np.array([0, 2, 4]))
    refused(treadle.Error, "q_starts holds f64 of shape .3.; it must be a vector of i32 or i64", q_starts=np.zeros(3))
    refused(treadle.Error, "q_starts is for 1 sequences, k_starts for 2; they must be equal", q_starts=np.array([0, 5]))
    refused(treadle.Error, "sequence 0 has 3 queries and 1 keys; queries are the last positions of a sequence unless q_offs",
            keys=batch.keys._replace(starts=np.array([0, 1, 7])), q_starts=np.array([0, 3, 5]))  # fmt: skip
    refused(treadle.Error, "the page table holds i64", keys=pages._replace(table=pages.table.astype(np.int64)))
    refused(treadle.Error, "page 0 of sequence 1 is 99; the pool has 4 pages",
            keys=pages._replace(table=np.array([[0], [99]], np.int32)))  # fmt: skip
    refused(treadle.Error, "sequence 0 has length 9; its 1 pages of 4 tokens hold 0 to 4",
            keys=pages._replace(lengths=np.array([9, 3])))  # fmt: skip
    refused(treadle.Error, "k_scales holds f64", keys=pages._replace(k_scales=np.ones((4, 2))))
    refused(treadle.Error, "there are 3 q_offsets, and 2 sequences", q_offset=[1, 2, 3])
    result = attention.forward_sequences(batch.q, batch.q_starts, pages)
    with pytest.raises(treadle.Error, match="backward: keys lie in pages; gradients need packed keys"):
        attention.backward_sequences(batch.q, batch.q_starts, pages, result, result.out)
    with pytest.raises(ValueError, match="captures names one that the score mod does not read"):
        attention.backward_sequences(batch.q, batch.q_starts, batch.keys, result, result.out, captures=(batch.q,))
