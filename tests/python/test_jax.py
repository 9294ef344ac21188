"""treadle.jax beside jax's own attention: values and gradients, under jit, vmap and in threads."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

FULL = os.environ.get("TREADLE_TEST_FUZZ") == "full"
if not FULL:
    pytest.importorskip("jax")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import treadle  # noqa: E402
from treadle._errors import TraceError  # noqa: E402
from treadle.jax import attention, capture, dot_product_attention  # noqa: E402

theirs = jax.nn.dot_product_attention
whole = pytest.mark.skipif(not FULL, reason="jax compiles for seconds; in ./dev test --full")
close = {"float32": 2e-5, "bfloat16": 5e-2, "float16": 5e-3, "float64": 1e-11}


def arrays(*shapes, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(key, shape, dtype) for key, shape in zip(keys, shapes)]


def assert_close(a, b, tolerance=2e-5):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=tolerance * 10, atol=tolerance * max(1.0, np.abs(b).max()))


def compare(arguments: list, **options):
    """Values and gradients of all arguments, jitted."""
    results = []
    for f in (dot_product_attention, theirs):

        def loss(*given):
            out = f(*given, **options)
            return (out * jnp.cos(jnp.arange(out.size).reshape(out.shape)).astype(out.dtype)).sum(), out

        results.append(jax.jit(jax.value_and_grad(loss, argnums=tuple(range(len(arguments))), has_aux=True))(*arguments))
    (((_, out), gradients), ((_, expected), of_theirs)) = results
    assert out.dtype == expected.dtype
    tolerance = close[str(out.dtype)]
    assert_close(out, expected, tolerance)
    for a, b in zip(gradients, of_theirs):
        assert a.dtype == b.dtype
        assert_close(a, b, tolerance)


shapes = (2, 7, 4, 16), (2, 9, 2, 16), (2, 9, 2, 8)


def test_bfloat16():
    compare(arrays((2, 7, 4, 16), (2, 9, 2, 16), (2, 9, 2, 16), dtype=jnp.bfloat16), is_causal=True)


@whole
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_types(dtype, options):
    compare(arrays((2, 7, 4, 16), (2, 9, 2, 16), (2, 9, 2, 16), dtype=dtype), **options)


@whole
@pytest.mark.parametrize("dtype", ["float64", "float16"])  # which jax's own computes in float32, or not at all
def test_other_types(dtype):
    with jax.enable_x64(True):
        q, k, v, slopes = arrays((2, 4, 7, 16), (2, 2, 9, 16), (2, 2, 9, 8), (4,), dtype=dtype)
        wide = [x.astype(jnp.float64) for x in (q, k, v, slopes)]
        ours, expected = (
            jax.value_and_grad(lambda *x: (f(*x)[0].astype(jnp.float64) ** 2).sum(), argnums=(0, 1, 2, 3))(*given)
            for f, given in ((alibi, (q, k, v, slopes)), (reference, wide))
        )
        for a, b in zip(jax.tree.leaves(ours[1]), jax.tree.leaves(expected[1])):
            assert a.dtype == dtype
            assert_close(a, b, close[dtype])


@whole
@pytest.mark.parametrize("shape", [(2, 4, 7, 9), (1, 4, 1, 9), (2, 1, 7, 1), (1, 1, 1, 1)], ids=str)
def test_biases_and_masks(shape):
    q, k, v, bias = arrays((2, 7, 4, 16), (2, 9, 2, 16), (2, 9, 2, 16), shape)
    compare([q, k, v, bias])
    shown = (bias > -0.3).at[..., 0].set(True)
    compare([q, k, v, bias], mask=shown)


@whole
@pytest.mark.parametrize("window", [2, (3, 0), (0, 2)], ids=str)
def test_windows_and_lengths(window):
    q, k, v = arrays(*[(2, 9, 4, 16)] * 3)
    compare([q, k, v], local_window_size=window)
    compare([q, k, v], key_value_seq_lengths=jnp.array([3, 9]))
    lengths = dict(query_seq_lengths=jnp.array([5, 9]), key_value_seq_lengths=jnp.array([3, 9]))
    ours, expected = (f(q, k, v, **lengths) for f in (dot_product_attention, theirs))
    assert_close(ours[0, :5], expected[0, :5])
    assert_close(ours[1], expected[1])
    assert not ours[0, 5:].any()


@whole
def test_without_a_batch():
    compare(arrays((7, 4, 16), (9, 4, 16), (9, 4, 16)))


@whole
def test_values_of_their_own_width():
    q, k, v = arrays(*shapes)
    expected = theirs(q, k, jnp.concatenate([v, v], -1))[..., :8]
    assert_close(dot_product_attention(q, k, v), expected)


# --- mods ------------------------------------------------------------------------------------------------------------


def reference(q, k, v, slopes):
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    score = jnp.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    distance = jnp.arange(k.shape[2]) - jnp.arange(q.shape[2])[:, None]
    score = jnp.where(distance <= 0, score + slopes[:, None, None] * distance, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(score), v), jax.nn.logsumexp(score, -1)


def alibi(q, k, v, slopes):
    slope = capture(slopes)
    return attention(
        q, k, v, lambda s, b, h, i, j: s + slope[h] * (j - i), lambda b, h, i, j: i >= j, return_lse=True
    )


@whole
def test_a_score_mod_that_learns():
    q, k, v, slopes = arrays((2, 4, 7, 16), (2, 2, 9, 16), (2, 2, 9, 8), (4,))

    def loss(f):
        def run(*x):
            out, lse = f(*x)
            return (out**2).sum() + jnp.sin(lse).sum()

        return jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2, 3)))

    ours, expected = loss(alibi)(q, k, v, slopes), loss(reference)(q, k, v, slopes)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected)):
        assert_close(a, b)


def test_the_bits_of_numpy():
    q, k, v = arrays((2, 4, 7, 16), (2, 2, 9, 16), (2, 2, 9, 8))
    causal = lambda b, h, i, j: i >= j  # noqa: E731
    out = jax.jit(lambda *x: attention(*x, mask_mod=causal))(q, k, v)
    expected = treadle.attention(*[np.asarray(x) for x in (q, k, v)], mask_mod=causal)
    assert np.array_equal(np.asarray(out), expected)


@whole
def test_integers_and_negative_indices():
    q, k, v = arrays((1, 2, 7, 16), (1, 2, 7, 16), (1, 2, 7, 16))
    table, documents = arrays((13,))[0], jnp.array([0, 0, 0, 1, 1, 1, 1])

    def ours(q, table, documents):
        bias, document = capture(table), capture(documents)
        return attention(q, k, v, lambda s, b, h, i, j: s + bias[i - j], lambda b, h, i, j: document[i] == document[j])

    def expected(q, table, documents):
        i, j = jnp.arange(7)[:, None], jnp.arange(7)
        score = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 4 + table[i - j]
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(documents[:, None] == documents, score, -jnp.inf)), v)

    for f in (lambda *x: ours(*x), jax.jit(ours)):
        assert_close(f(q, table, documents), expected(q, table, documents))
    for argument in (0, 1):
        a, b = (
            jax.jit(jax.grad(lambda *x: (f(*x) ** 2).sum(), argnums=argument))(q, table, documents)
            for f in (ours, expected)
        )
        assert_close(a, b)


def test_other_numbers_of_a_closure():
    q, k, v = arrays(*[(1, 2, 12, 8)] * 3)
    for window in (3, 5):
        out = attention(q, k, v, mask_mod=lambda b, h, i, j: (i >= j) & (i - j < window))
        expected = theirs(*[jnp.swapaxes(x, 1, 2) for x in (q, k, v)], is_causal=True, local_window_size=(window - 1, 0))
        assert_close(jnp.swapaxes(out, 1, 2), expected)


@whole
def test_vmap_and_checkpoints():
    q, k, v, slopes = arrays((3, 2, 4, 7, 16), (3, 2, 2, 9, 16), (3, 2, 2, 9, 8), (3, 4))
    run = lambda *x: jax.vmap(jax.checkpoint(lambda *y: alibi(*y)[0]))(*x)  # noqa: E731
    expected = jnp.stack([reference(*x)[0] for x in zip(q, k, v, slopes)])
    assert_close(run(q, k, v, slopes), expected)
    gradient = jax.jit(jax.grad(lambda s: (run(q, k, v, s) ** 2).sum()))(slopes)
    of_theirs = jax.grad(lambda s: (jnp.stack([reference(*x)[0] for x in zip(q, k, v, s)]) ** 2).sum())(slopes)
    assert_close(gradient, of_theirs)


@whole
def test_scan():
    q, k, v = arrays((2, 4, 7, 16), (2, 2, 7, 16), (2, 2, 7, 16))
    layers = lambda q: jax.lax.scan(lambda x, _: (attention(x, k, v), None), q, length=3)[0]  # noqa: E731
    expected = q
    for _ in range(3):
        expected = attention(expected, k, v)
    assert jnp.array_equal(jax.jit(layers)(q), expected)
    assert jax.jit(jax.grad(lambda q: layers(q).sum()))(q).shape == q.shape


@whole
@pytest.mark.parametrize("sizes", [(0, 4, 7, 9), (2, 4, 0, 9), (2, 4, 7, 0)], ids=str)
def test_empty(sizes):
    b, h, m, n = sizes
    q, k = jnp.ones((b, h, m, 16)), jnp.ones((b, h, n, 16))
    out, gradient = jax.value_and_grad(lambda q: attention(q, k, k).sum())(q)
    assert out == 0 and gradient.shape == q.shape and not gradient.any()


def test_threads():
    q, k, v = arrays(*[(2, 64, 4, 16)] * 3)
    expected = theirs(q, k, v)
    run = jax.jit(dot_product_attention)
    results = []
    threads = [threading.Thread(target=lambda: results.extend([run(q, k, v) for _ in range(20)])) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 80
    for out in results:
        assert jnp.array_equal(out, results[0])
    assert_close(results[0], expected)


@whole
def test_a_program_that_is_still_running_at_the_end():
    """jax runs ahead; a process may end before its results are there."""
    code = (
        "import jax, jax.numpy as jnp; from treadle.jax import attention; f = jax.jit(attention); "
        "x = jnp.ones((1, 4, 1024, 64)); y = [f(x, x, x) for _ in range(4)]"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=100).returncode == 0


# --- errors ----------------------------------------------------------------------------------------------------------

x = np.ones((2, 4, 7, 16), np.float32)


@pytest.mark.parametrize("arguments, kind, words", [
    (dict(q=x[0]), ValueError, "attention: q has 3 dimensions; it must have 4: batch, heads, length, dim"),
    (dict(q=x.astype(np.int32)), TypeError, "attention: q is int32; it must be"),
    (dict(k=x[:1], v=x[:1]), ValueError, r"k \(1, 4, 7, 16\) .* do not fit"),
    (dict(v=x[:, :, :3]), ValueError, "do not fit"),
    (dict(k=x[..., :8]), ValueError, "do not fit"),
    (dict(k=x[:, :3], v=x[:, :3]), ValueError, "q has 4 heads, k and v have 3; 4 is not a multiple of 3"),
])  # fmt: skip
def test_errors(arguments, kind, words):
    with pytest.raises(kind, match=words):
        attention(**{**dict(q=x, k=x, v=x), **arguments})


@pytest.mark.parametrize("arguments, kind, words", [
    (dict(bias=jnp.ones((3, 1, 1, 1))), ValueError, r"bias has shape \(3, 1, 1, 1\); it must broadcast"),
    (dict(mask=jnp.ones((1, 1, 1, 1, 7), bool)), ValueError, r"mask has shape \(1, 1, 1, 1, 7\)"),
    (dict(mask=jnp.ones((7, 7))), TypeError, "mask is float32; it must be bool"),
    (dict(bias=jnp.ones((7, 7), bool)), TypeError, "bias is bool; it must be float"),
    (dict(local_window_size=-1), ValueError, "local_window_size is -1"),
    (dict(key_value_seq_lengths=jnp.ones(3, int)), ValueError, r"key_value_seq_lengths has shape \(3,\)"),
])  # fmt: skip
def test_errors_of_dot_product_attention(arguments, kind, words):
    y = jnp.ones((2, 7, 4, 16))
    with pytest.raises(kind, match=words):
        dot_product_attention(y, y, y, **arguments)


def test_reads_outside_are_errors():
    short = capture(jnp.ones(3))
    with pytest.raises(jax.errors.JaxRuntimeError, match="ModError.*index 3"):
        jax.block_until_ready(attention(x, x, x, lambda s, b, h, q, kv: s + short[kv]))


def test_jvps_and_whole_arrays_are_refused():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda q: attention(q, x, x), (x,), (x,))
    with pytest.raises(TraceError, match="used whole"):
        attention(x, x, x, lambda s, b, h, q, kv: s + jnp.ones(4))
