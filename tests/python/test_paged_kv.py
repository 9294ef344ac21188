"""PagedKV for NumPy and torch: what sequences hold through their tables, sharing, errors, eight bits, and its memory."""

import gc

import numpy as np
import pytest
import torch

import treadle
import treadle.torch
from treadle.torch import flex_attention, paged_attention

PAGES, HEADS, SIZE, DIM, VALUE_DIM = 12, 2, 4, 8, 5


class OfNumpy:
    PagedKV = treadle.PagedKV
    float32, int8 = np.float32, np.int8

    @staticmethod
    def full(shape, value, dtype):
        return np.full(shape, value, dtype)

    @staticmethod
    def rows(x):
        return x

    integers = staticmethod(np.array)
    values = staticmethod(np.asarray)


class OfTorch:
    PagedKV = treadle.torch.PagedKV
    float32, int8 = torch.float32, torch.int8

    @staticmethod
    def full(shape, value, dtype):
        return torch.full(shape, value, dtype=dtype)

    rows = staticmethod(torch.from_numpy)
    integers = staticmethod(torch.tensor)

    @staticmethod
    def values(x):
        return x.numpy()


@pytest.fixture(params=[OfNumpy, OfTorch], ids=["numpy", "torch"])
def library(request):
    return request.param


def make(library, order="heads_first", *, pages=PAGES, sequences=4, pages_per_sequence=8, **options):
    axes = (HEADS, SIZE) if order == "heads_first" else (SIZE, HEADS)
    pools = [library.full((pages, *axes, d), 99, library.float32) for d in (DIM, VALUE_DIM)]
    return library.PagedKV(*pools, sequences=sequences, pages_per_sequence=pages_per_sequence, order=order, **options)


class Rows:
    """Random ones, and what each slot should hold."""

    def __init__(self, library, seed=0):
        self.library, self.random = library, np.random.default_rng(seed)

    def __call__(self, tokens):
        return [self.random.standard_normal((tokens, HEADS, d)).astype(np.float32) for d in (DIM, VALUE_DIM)]

    def append(self, cache, slot, tokens):
        k, v = self(tokens)
        cache.append(slot, self.library.rows(k), self.library.rows(v))
        return k, v


def joined(*parts):
    return [np.concatenate(x) for x in zip(*parts)]


def held(library, cache, slot):
    """k and v of a sequence, read through the table of a batch."""
    keys = cache.batch([slot])
    pages, length = library.values(keys.table)[0], int(library.values(keys.lengths)[0])
    read = []
    for pool in (keys.k, keys.v):
        pool = library.values(pool)
        if keys.order == "heads_first":
            pool = pool.swapaxes(1, 2)
        read.append(pool[pages].reshape(-1, *pool.shape[2:])[:length])
    return read


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("order", ["heads_first", "tokens_first"])
def test_sequences_hold_their_rows(library, order):
    cache, rows = make(library, order), Rows(library)
    assert (cache.sequences, cache.pages, cache.free_pages, cache.page_size) == (0, PAGES, PAGES, SIZE)
    first, second = cache.add(), cache.add()
    parts = [rows.append(cache, first, n) for n in (3, 6, 0, 1)]
    k, v = rows(7)
    starts = library.integers([0, 2, 7])
    cache.append([second, first], library.rows(k), library.rows(v), starts=starts)
    same(held(library, cache, first), joined(*parts, (k[2:], v[2:])))
    same(held(library, cache, second), (k[:2], v[:2]))
    assert cache.length(first) == 15 and cache.length(second) == 2
    assert len(cache.pages_of(first)) == 4 and cache.free_pages == PAGES - 5
    assert repr(cache) == "<PagedKV: 2 sequences in 5 of 12 pages of 4 tokens>"


def test_rows_may_have_any_strides_and_types(library):
    cache, rows = make(library), Rows(library)
    k, v = (x.astype(np.float64)[::2] for x in rows(10))
    slot = cache.add()
    cache.append(slot, library.rows(k.copy()), library.rows(np.asfortranarray(v)))
    same(held(library, cache, slot), (k.astype(np.float32), v.astype(np.float32)))


def test_forks_share_pages_until_one_writes(library):
    cache, rows = make(library), Rows(library)
    prompt = cache.add()
    common = rows.append(cache, prompt, 6)
    whole, part = cache.fork(prompt), cache.fork(prompt, 3)
    assert cache.pages_of(whole) == cache.pages_of(prompt) and cache.pages_of(part) == cache.pages_of(prompt)[:1]
    assert cache.free_pages == PAGES - 2
    more = rows.append(cache, whole, 1)
    assert cache.pages_of(whole)[0] == cache.pages_of(prompt)[0]
    assert cache.pages_of(whole)[1] != cache.pages_of(prompt)[1]
    other = rows.append(cache, part, 2)
    same(held(library, cache, prompt), common)
    same(held(library, cache, whole), joined(common, more))
    same(held(library, cache, part), joined([x[:3] for x in common], other))


def test_trim_and_free_give_pages_back(library):
    cache, rows = make(library), Rows(library)
    slot = cache.add()
    parts = rows.append(cache, slot, 10)
    cache.trim(slot, 5)
    assert cache.length(slot) == 5 and cache.free_pages == PAGES - 2
    again = rows.append(cache, slot, 2)
    same(held(library, cache, slot), joined([x[:5] for x in parts], again))
    other = cache.fork(slot)
    cache.free(slot)
    assert cache.sequences == 1 and cache.free_pages == PAGES - 2
    assert cache.add() == slot
    cache.free(other)
    assert cache.free_pages == PAGES


def test_a_batch_stays_as_it_was(library):
    cache, rows = make(library), Rows(library)
    slots = [cache.add(), cache.add()]
    rows.append(cache, slots[0], 9)
    batch = cache.batch(tuple(slots))
    cache.trim(slots[0], 1)
    assert isinstance(batch, treadle.PagedKeys)
    assert library.values(batch.lengths).tolist() == [9, 0] and tuple(batch.table.shape) == (2, 3)
    assert tuple(cache.batch([]).table.shape) == (0, 1)


def test_attention_over_a_batch(library):
    """It has the bits of plain calls over each sequence."""
    cache, rows = make(library), Rows(library)
    prompt = cache.add()
    common = rows.append(cache, prompt, 7)
    other = cache.fork(prompt, 6)
    sequences = [joined(common, rows.append(cache, prompt, 4)), joined([x[:6] for x in common], rows.append(cache, other, 1))]
    q = rows.random.standard_normal((5, 4, DIM)).astype(np.float32)
    keys = cache.batch([prompt, other])

    def causal(b, h, q, kv):
        return q >= kv

    if library is OfTorch:
        starts = torch.tensor([0, 4, 5], dtype=torch.int32)
        out = paged_attention(torch.from_numpy(q), starts, keys, causal=True, enable_gqa=True).numpy()
        # NumPy's calls read tensors, too.
        same([treadle.Attention(mask_mod=causal).forward_sequences(q, starts, keys).out], [out])
    else:
        out = treadle.Attention(mask_mod=causal).forward_sequences(q, np.array([0, 4, 5]), keys).out
    for own, queries in zip(sequences, (slice(0, 4), slice(4, 5))):
        k, v, rows_of_q = (np.ascontiguousarray(x.swapaxes(0, 1)[None]) for x in (*own, q[queries]))
        offset = k.shape[2] - rows_of_q.shape[2]
        alone = treadle.attention(rows_of_q, k, v, mask_mod=causal, q_offset=offset)
        np.testing.assert_array_equal(out[queries].swapaxes(0, 1), alone[0])


def test_appends_are_all_or_nothing(library):
    cache, rows = make(library, pages=4, pages_per_sequence=3), Rows(library)
    first, second = cache.add(), cache.add()
    before = rows.append(cache, first, 6)
    k, v = map(library.rows, rows(13))
    with pytest.raises(treadle.Error, match="^PagedKV::append: 13 tokens need 4 more pages; 2 of 4 are free$"):
        cache.append([first, second], k, v, starts=library.integers([0, 3, 13]))
    assert cache.length(first) == 6 and cache.length(second) == 0 and cache.free_pages == 2
    same(held(library, cache, first), before)
    with pytest.raises(treadle.Error, match="sequence 0 has 6 tokens and gets 13; it may have 3 pages of 4, 12 tokens"):
        cache.append(first, k, v)
    cache.append([first, second], k[:4], v[:4], starts=library.integers([0, 3, 4]))
    assert cache.length(first) == 9 and cache.free_pages == 0


def test_errors(library):
    cache, rows = make(library, sequences=1), Rows(library)
    k, v = map(library.rows, rows(3))
    in_use = " is not in use; slots in use come from add and fork"
    for name, call in (
        ("append", lambda: cache.append(0, k, v)),
        ("fork", lambda: cache.fork(0)),
        ("trim", lambda: cache.trim(0, 0)),
        ("free", lambda: cache.free(0)),
        ("length", lambda: cache.length(0)),
        ("pages_of", lambda: cache.pages_of(0)),
        ("batch", lambda: cache.batch([0])),
    ):
        with pytest.raises(treadle.Error, match=f"^PagedKV::{name}: slot 0{in_use}$"):
            call()
    slot = cache.add()
    with pytest.raises(treadle.Error, match="1 sequences are in use; there may be 1 at a time"):
        cache.add()
    cache.append(slot, k, v)
    with pytest.raises(treadle.Error, match="the length is 4, sequence 0 has 3 tokens; it must be 0 to 3"):
        cache.trim(slot, 4)
    with pytest.raises(treadle.Error, match=r"v has shape \[3, 2, 8\]; it must be \[tokens, 2, 5\]"):
        cache.append(slot, k, k)
    with pytest.raises(treadle.Error, match="slot 0 is there twice; each may be once"):
        cache.append([slot, slot], k, v, starts=library.integers([0, 1, 3]))
    with pytest.raises(treadle.Error, match="k lies in the memory of the cache; rows must not"):
        cache.append(slot, cache.batch([slot]).k[:1, :, 0], v[:1])
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        cache.trim(slot, 1.0)
    with pytest.raises(TypeError, match="expected an array, got list|k must be a tensor, got list"):
        cache.append(slot, [[[1.0]]], v)
    with pytest.raises(ValueError, match="PagedKV: order is 'heads'; it must be 'heads_first' or 'tokens_first'"):
        make(library, "heads")
    with pytest.raises(treadle.Error, match="PagedKV: sequences is 0; it must be 1 to 2147483647"):
        make(library, sequences=0)
    with pytest.raises(treadle.Error, match="k_pool and v_pool begin at the same address"):
        library.PagedKV(*[library.full((3, 2, 4, 8), 0, library.float32)] * 2, sequences=1, pages_per_sequence=1)
    assert cache.length(slot) == 3


def test_pools_of_numpy_are_written_to():
    pool, locked = np.zeros((3, 2, 4, 8), np.float32), np.zeros((3, 2, 4, 8), np.float32)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="PagedKV: v_pool: the array is read-only"):
        treadle.PagedKV(pool, locked, sequences=1, pages_per_sequence=1)
    with pytest.raises(TypeError, match="PagedKV: k_pool: expected a NumPy array to write to, got Tensor"):
        treadle.PagedKV(torch.zeros(3, 2, 4, 8), pool, sequences=1, pages_per_sequence=1)
    cache = treadle.PagedKV(pool, np.zeros_like(pool), sequences=1, pages_per_sequence=1)
    with pytest.raises(ValueError, match="cannot resize"):
        pool.resize((0,))
    del cache


def test_pools_of_torch():
    class Named(torch.Tensor):
        pass

    pool, other = torch.zeros(3, 2, 4, 8), torch.zeros(3, 2, 4, 8)
    sizes = dict(sequences=1, pages_per_sequence=3)
    with pytest.raises(TypeError, match="PagedKV: k_pool must be a tensor, got ndarray"):
        treadle.torch.PagedKV(pool.numpy(), other, **sizes)
    with pytest.raises(ValueError, match="Treadle runs on the CPU; PagedKV: k_pool is on meta"):
        treadle.torch.PagedKV(pool.to("meta"), other, **sizes)
    with pytest.raises(TypeError, match="k_pool is a negated view or a Named; it must be a plain tensor"):
        treadle.torch.PagedKV(pool.as_subclass(Named), other, **sizes)
    with pytest.raises(ValueError, match=r"v_pool requires grad; a cache has no gradients: give v_pool.detach\(\)"):
        treadle.torch.PagedKV(pool, torch.nn.Parameter(other), **sizes)
    cache = treadle.torch.PagedKV(pool, other, **sizes)
    slot, rows = cache.add(), torch.randn(3, 2, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="PagedKV.append has no gradient, and k requires grad; call it in torch.no_grad"):
        cache.append(slot, rows, rows)
    before = pool._version
    with torch.no_grad():
        cache.append(slot, rows, rows)
    assert pool._version > before
    with torch.inference_mode():
        cache.append(slot, rows, torch._neg_view(rows))
    assert torch.equal(cache.batch([slot]).v[0, :, 3], -rows[0])
    with pytest.raises(TypeError, match="PagedKeys have values, table, lengths, order and scales; give none beside them"):
        paged_attention(torch.randn(1, 2, 8), torch.tensor([0, 1]), cache.batch([slot]), other)
    pool.share_memory_()
    with pytest.raises(RuntimeError, match="memory of the cache was moved, as by resize_ or share_memory_"):
        cache.append(slot, rows.detach(), rows.detach())
    assert cache.length(slot) == 6


MOST = {torch.int8: 127, torch.float8_e4m3fn: 448, torch.float8_e5m2: 57344}


def quantised(dtype, by, order="heads_first"):
    axes = (HEADS, SIZE) if order == "heads_first" else (SIZE, HEADS)
    pools = [torch.zeros(PAGES, *axes, DIM).to(dtype) for _ in range(2)]
    scales = [torch.ones(PAGES, HEADS) if by == "page" else torch.ones(PAGES, *axes) for _ in range(2)]
    return *pools, dict(sequences=4, pages_per_sequence=8, order=order, k_scales=scales[0], v_scales=scales[1])


@pytest.mark.parametrize("dtype", MOST, ids=str)
def test_eight_bits_with_scales_of_tokens(dtype):
    k_pool, v_pool, options = quantised(dtype, "token")
    cache = treadle.torch.PagedKV(k_pool, v_pool, **options)
    slot, k, v, q = cache.add(), *torch.randn(3, 6, HEADS, DIM).unbind()
    cache.append(slot, k, v)
    keys = cache.batch([slot])
    assert keys.k.dtype == dtype and torch.equal(keys.k_scales[0, :, 0], k[0].abs().amax(1) / MOST[dtype])
    floats = [
        (pool.float() * scales[..., None])[keys.table[0].long()].transpose(1, 2).flatten(0, 1)[:6]
        for pool, scales in ((keys.k, keys.k_scales), (keys.v, keys.v_scales))
    ]
    bits = 4 if dtype == torch.float8_e5m2 else 8
    torch.testing.assert_close(floats[0], k, rtol=2**-bits * 8, atol=0.02)
    starts = torch.tensor([0, 6])
    out = paged_attention(q, starts, keys, causal=True)
    plain = flex_attention(*[x.transpose(0, 1)[None] for x in (q, *floats)], block_mask=lambda b, h, q, kv: q >= kv)
    assert torch.equal(out.transpose(0, 1), plain[0])


def test_eight_bits_of_numpy_are_those_of_torch():
    for by, order in (("token", "tokens_first"), ("page", "heads_first")):
        k_pool, v_pool, options = quantised(torch.int8, by, order)
        of_torch = treadle.torch.PagedKV(k_pool, v_pool, **options)
        others = {name: x.clone().numpy() for name, x in options.items() if isinstance(x, torch.Tensor)}
        of_numpy = treadle.PagedKV(k_pool.clone().numpy(), v_pool.clone().numpy(), **{**options, **others})
        k, v = torch.randn(2, 6, HEADS, DIM).unbind()
        for cache, rows in ((of_torch, (k, v)), (of_numpy, (k.numpy(), v.numpy()))):
            cache.append(cache.add(), *rows)
        a, b = of_torch.batch([0]), of_numpy.batch([0])
        same([x.numpy() for x in (*a[:4], *a[5:])], [*b[:4], *b[5:]])
        assert a.k.abs().max() == 127


def test_scales_that_are_given_are_only_read():
    scales = np.broadcast_to(np.array([0.5, 0.25], np.float32), (PAGES, HEADS))
    pools = [np.zeros((PAGES, HEADS, SIZE, DIM), np.int8) for _ in range(2)]
    options = dict(sequences=1, pages_per_sequence=2, k_scales=scales, v_scales=scales)
    with pytest.raises(ValueError, match="PagedKV: k_scales: the array is read-only"):
        treadle.PagedKV(*pools, **options)
    cache = treadle.PagedKV(*pools, **options, scales_given=True)
    rows = np.full((1, HEADS, DIM), 10, np.float32)
    cache.append(cache.add(), rows, rows)
    assert pools[0][0, :, 0, 0].tolist() == [20, 40]
    with pytest.raises(treadle.Error, match="k_pool holds i8, and there are no k_scales; i8 needs scales"):
        treadle.PagedKV(*pools, sequences=1, pages_per_sequence=2)


def test_a_cache_keeps_its_pools(library):
    """Also those of which it was given a view."""
    shape = (PAGES, HEADS, SIZE, 40)
    pools = [library.full(shape, 0, library.float32) for _ in range(2)]
    cache = library.PagedKV(pools[0][..., :DIM], pools[1][..., :VALUE_DIM], sequences=1, pages_per_sequence=8)
    del pools
    gc.collect()
    others = [library.full(shape, 7, library.float32) for _ in range(8)]  # would get the memory
    rows, slot = Rows(library), cache.add()
    k, v = rows.append(cache, slot, 30)
    same(held(library, cache, slot), (k, v))
    assert all([bool((x == 7).all()) for x in others])
    batch = cache.batch([slot])
    del cache
    gc.collect()
    others += [library.full(shape, 7, library.float32) for _ in range(8)]
    pages = library.values(batch.table)[0]
    np.testing.assert_array_equal(library.values(batch.k)[pages].swapaxes(1, 2).reshape(-1, HEADS, DIM)[:30], k)


def test_a_tensor_may_get_other_memory():
    pool, other = torch.zeros(3, 2, 4, 8), torch.zeros(3, 2, 4, 8)
    cache = treadle.torch.PagedKV(pool, other, sequences=1, pages_per_sequence=3)
    pool.data = torch.zeros(1)
    gc.collect()
    rows = torch.randn(5, 2, 8)
    cache.append(cache.add(), rows, rows)
    assert torch.equal(cache.batch([0]).k[0, :, 0], rows[0]) and torch.equal(pool, torch.zeros(1))
