"""treadle.torch.scaled_dot_product_attention beside torch's, and the context that puts it there."""

import threading

import pytest
import torch
import torch.utils.checkpoint
import treadle.torch._routed_sdpa as routing
from torch.nn.functional import scaled_dot_product_attention as theirs

from treadle.torch import routed_sdpa
from treadle.torch import scaled_dot_product_attention as ours

close = {
    torch.float32: dict(atol=1e-5, rtol=1e-4),
    torch.float64: dict(atol=1e-12, rtol=1e-10),
    torch.bfloat16: dict(atol=4e-2, rtol=4e-2),
    torch.float16: dict(atol=5e-3, rtol=5e-3),
}


def compare(q, k, v, mask=None, **options):
    """Values, and gradients of all floats."""
    given = [t for t in (q, k, v, mask) if t is not None]
    results = []
    for f in (ours, theirs):
        leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in given]
        out = f(*leaves, **options)
        weights = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype)
        wanted = [t for t in leaves if t.requires_grad]
        results.append((out, *torch.autograd.grad((out * weights).sum(), wanted)))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, **close[q.dtype])


def tensors(*shapes, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(s, dtype=torch.float64).to(dtype) for s in shapes]


@pytest.mark.parametrize("dtype", close, ids=str)
@pytest.mark.parametrize("lead", [(2, 4), (4,), (), (3, 2, 4), (2, 1, 2, 2)], ids=str)
@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "float", "row", "both"])
def test_values_and_gradients(dtype, lead, kind):
    q, k, v = tensors((*lead, 7, 16), (*lead, 9, 16), (*lead, 9, 8), dtype=dtype)
    (float_mask,) = tensors((7, 9), dtype=dtype)
    bool_mask = torch.rand(7, 9) > 0.4
    bool_mask[:, 0] = True
    bool_mask = bool_mask.expand(*lead, 7, 9)
    masks = {"bool": bool_mask, "float": float_mask.expand(*lead, 7, 9), "row": float_mask[:1]}
    if kind == "both":  # torch's fused kernel takes both, its other one refuses
        out = ours(q, k, v, bool_mask, is_causal=True)
        causal = bool_mask & torch.ones(7, 9, dtype=torch.bool).tril()
        torch.testing.assert_close(out, theirs(q, k, v, causal), **close[dtype])
        out = ours(q, k, v, float_mask, is_causal=True)
        hidden = float_mask.masked_fill(torch.ones(7, 9, dtype=torch.bool).triu(1), -float("inf"))
        torch.testing.assert_close(out, theirs(q, k, v, hidden), **close[dtype])
    else:
        compare(q, k, v, masks.get(kind), is_causal=kind == "causal")


@pytest.mark.parametrize("shapes", [
    ((2, 4, 7, 16), (1, 4, 9, 16), (1, 4, 9, 16)),
    ((1, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16)),
    ((2, 4, 7, 16), (4, 9, 16), (9, 16)),
    ((2, 4, 7, 16), (2, 1, 9, 16), (2, 4, 9, 16)),
    ((3, 2, 4, 7, 16), (2, 4, 9, 16), (3, 1, 4, 9, 16)),
    ((7, 16), (2, 9, 16), (2, 9, 16)),
], ids=str)  # fmt: skip
def test_broadcast(shapes):
    compare(*tensors(*shapes))


@pytest.mark.parametrize("mask", [
    (2, 4, 7, 9), (2, 1, 1, 9), (1, 4, 7, 1), (4, 7, 9), (7, 9), (1, 9), (9,), (1, 1, 1, 1),
], ids=str)  # fmt: skip
def test_masks_of_any_broadcast(mask):
    q, k, v, m = tensors((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16), mask)
    if m.dim() > 1:
        compare(q, k, v, m)
    torch.testing.assert_close(ours(q, k, v, m), theirs(q, k, v, m.expand(2, 4, 7, 9)))
    shown = m > -0.5
    torch.testing.assert_close(ours(q, k, v, shown), theirs(q, k, v, shown.expand(2, 4, 7, 9)), equal_nan=False)


@pytest.mark.parametrize("mask", [(3, 2, 4, 7, 9), (2, 1, 7, 9), (3, 1, 1, 7, 1), (3, 1, 4, 1, 9), (1, 2, 1, 7, 9)], ids=str)
def test_masks_of_more_dimensions(mask):
    compare(*tensors((3, 2, 4, 7, 16), (3, 2, 4, 9, 16), (3, 2, 4, 9, 16), mask))


@pytest.mark.parametrize("heads", [(2, 2), (1, 1), (4, 4), (2, 1)], ids=str)
@pytest.mark.parametrize("lead", [(2,), (), (3, 2)], ids=str)
def test_grouped_heads(heads, lead):
    q, k, v = tensors((*lead, 4, 7, 16), (*lead, heads[0], 9, 16), (*lead, heads[1], 9, 8))
    compare(q, k, v, enable_gqa=True)
    compare(q, k, v, tensors((4, 1, 9))[0], enable_gqa=True)


@pytest.mark.parametrize("scale", [None, 0.3, 0.0, -1.0])
def test_scale(scale):
    compare(*tensors((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16)), scale=scale)


def test_queries_that_see_nothing():
    q, k, v, m = tensors((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16), (7, 9))
    m[2] = -float("inf")
    compare(q, k, v, m > -9)
    assert not ours(q, k, v, m)[:, :, 2].any() and not ours(q, k, v, torch.zeros(7, 9, dtype=torch.bool)).any()
    torch.testing.assert_close(ours(q, k, v, m), theirs(q, k, v, m))


@pytest.mark.parametrize("shapes", [
    ((2, 4, 0, 16), (2, 4, 9, 16)), ((2, 4, 7, 16), (2, 4, 0, 16)), ((0, 4, 7, 16), (0, 4, 9, 16)),
], ids=str)  # fmt: skip
def test_empty(shapes):
    q, k = tensors(*shapes)
    torch.testing.assert_close(ours(q, k, k), theirs(q, k, k))


def test_a_float32_mask_of_bfloat16():
    q, k, v = tensors((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16), dtype=torch.bfloat16)
    (m,) = tensors((7, 9))
    compare(q, k, v, m)


def test_autocast():
    q, k, v, m = tensors((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16), (7, 9))
    with torch.autocast("cpu", torch.bfloat16):
        a, b = ours(q, k.bfloat16(), v, m), theirs(q, k.bfloat16(), v, m)
    assert a.dtype == b.dtype == torch.bfloat16
    torch.testing.assert_close(a, b, **close[torch.bfloat16])


def test_compiled():
    q, k, v, m = tensors((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16), (7, 9))
    torch._dynamo.reset()
    out = torch.compile(ours, backend="aot_eager", fullgraph=True)(q, k, v, m)
    torch.testing.assert_close(out, theirs(q, k, v, m))


x = torch.zeros(2, 4, 7, 16)


@pytest.mark.parametrize("arguments, kind, words", [
    (dict(dropout_p=1.5), ValueError, "dropout_p is 1.5; it must be from 0 to 1"),
    (dict(query=None), TypeError, "query must be a tensor, got NoneType"),
    (dict(attn_mask=[[True]]), TypeError, "attn_mask must be a tensor, got list"),
    (dict(query=x[0, 0, 0]), RuntimeError, "query has 1 dimensions; it must have at least 2"),
    (dict(query=x[0, 0], enable_gqa=True), RuntimeError, "query has 2 dimensions; it must have at least 3 for enable_gqa"),
    (dict(key=x.double()), RuntimeError, "one type, got torch.float32, torch.float64 and torch.float32"),
    (dict(key=x[..., :8]), RuntimeError, r"one head dim .* key \(2, 4, 7, 8\)"),
    (dict(key=x[:, :, :3]), RuntimeError, r"one length, got .* key \(2, 4, 3, 16\)"),
    (dict(key=x[:, :3], value=x[:, :3]), RuntimeError, "do not broadcast; set enable_gqa=True for fewer key heads"),
    (dict(key=x[:, :3], value=x[:, :3], enable_gqa=True), RuntimeError, "query has 4 heads, key 3 and value 3"),
    (dict(attn_mask=torch.zeros(3, 7, 7)), RuntimeError, r"\(3, 7, 7\); it does not broadcast to \(2, 4, 7, 7\)"),
    (dict(attn_mask=torch.zeros(1, 1, 1, 7, 7)), RuntimeError, r"attn_mask has shape \(1, 1, 1, 7, 7\)"),
    (dict(attn_mask=torch.zeros(7, 7).int()), RuntimeError, "attn_mask must be bool, float32 or of query's type"),
    (dict(attn_mask=torch.zeros(7, 7).double()), RuntimeError, "got torch.float64"),
])  # fmt: skip
def test_errors(arguments, kind, words):
    with pytest.raises(kind, match=words):
        ours(**{**dict(query=x, key=x, value=x), **arguments})


# --- routed_sdpa -----------------------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """Arguments of calls that reach Treadle's function."""
    seen = []
    real = routing.scaled_dot_product_attention

    def counted(*args, **kwargs):
        seen.append((args, kwargs))
        return real(*args, **kwargs)

    monkeypatch.setattr(routing, "scaled_dot_product_attention", counted)
    return seen


def call():
    return torch.nn.functional.scaled_dot_product_attention(*tensors((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16)))


def test_routed(calls):
    expected = call()
    assert not calls
    with routed_sdpa():
        out = call()
        assert len(calls) == 1
        with routed_sdpa():
            call()
        assert len(calls) == 2
        theirs(*tensors((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16)))  # by another name
        assert len(calls) == 3
    call()
    assert len(calls) == 3
    torch.testing.assert_close(out, expected)


def test_routed_ends_with_an_exception(calls):
    with pytest.raises(ZeroDivisionError), routed_sdpa():
        1 / 0
    with pytest.raises(RuntimeError, match="one head dim"), routed_sdpa():
        theirs(x, x[..., :8], x)
    before = len(calls)
    call()
    assert len(calls) == before


def test_routed_is_of_its_thread(calls):
    with routed_sdpa():
        other = threading.Thread(target=call)
        other.start()
        other.join()
        assert not calls
        call()
    assert len(calls) == 1


def test_dropout():
    """A value of ones counts what is kept; of many rows it is as much as is dropped and scaled on average."""
    q, ones = torch.randn(2, 4, 256, 16), torch.ones(2, 4, 256, 16)
    torch.manual_seed(5)
    out = ours(q, q, ones, dropout_p=0.25)
    assert not torch.equal(out, ours(q, q, ones, dropout_p=0.25)) and abs(out.mean() - 1) < 0.02
    torch.manual_seed(5)
    assert torch.equal(ours(q, q, ones, dropout_p=0.25), out)
    assert torch.equal(ours(q, q, ones, dropout_p=1.0), torch.zeros_like(ones))


def test_what_is_not_routed(calls):
    q = torch.randn(2, 4, 7, 16)
    with routed_sdpa():
        theirs(q, q, q, dropout_p=0.5)
        theirs(*[torch.empty(2, 4, 7, 16, device="meta")] * 3)
        torch.vmap(lambda x: theirs(x, x, x))(q)
        parts = [torch.randn(3, 4, 16), torch.randn(5, 4, 16)]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
        theirs(nested, nested, nested)
        with pytest.raises(RuntimeError):
            theirs(q.int(), q.int(), q.int())
    assert not calls


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", ["encoder", "decoder", "attention", "weights"])
def test_modules(calls, layer, training):
    torch.manual_seed(0)
    x = torch.randn(2, 10, 32, requires_grad=True)
    padding = torch.zeros(2, 10, dtype=torch.bool)
    padding[0, -3:] = True
    causal = torch.nn.Transformer.generate_square_subsequent_mask(10)
    if layer == "encoder":
        module = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        run = lambda: module(x, src_key_padding_mask=padding)  # noqa: E731
    elif layer == "decoder":
        module = torch.nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        run = lambda: module(x, x * 2, tgt_mask=causal, tgt_is_causal=True)  # noqa: E731
    else:
        module = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        run = lambda: module(x, x, x, key_padding_mask=padding, need_weights=layer == "weights")[0]  # noqa: E731
    module.train(training)
    results = []
    for routed in (False, True):
        module.zero_grad()
        if routed:
            with routed_sdpa():
                out = run()
        else:
            out = run()
        (gradient,) = torch.autograd.grad(out.square().sum(), x)
        results.append((out, gradient))
    assert len(calls) == {"encoder": 1, "decoder": 2, "attention": 1, "weights": 0}[layer]
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_a_layer_in_evaluation_leaves_its_fast_path(calls):
    module = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    x = torch.randn(2, 10, 32)
    with torch.no_grad():
        expected = module(x)
        with routed_sdpa():
            out = module(x)
    assert len(calls) == 1
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)


def test_routed_in_a_graph():
    torch._dynamo.reset()

    def f(q):
        with routed_sdpa():
            return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    q = torch.randn(2, 4, 7, 16)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(q), theirs(q, q, q, is_causal=True))
    assert "treadle" in graphs[0].code


def test_modules_in_a_graph():
    torch._dynamo.reset()
    module = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(2, 10, 32)

    def f(x):
        with routed_sdpa():
            return module(x)

    graphs = []

    def backend(graph, _):
        graphs.append(graph.code)
        return graph.forward

    torch.testing.assert_close(torch.compile(f, backend=backend, fullgraph=True)(x), module(x), atol=1e-5, rtol=1e-4)
    assert any("treadle" in code for code in graphs)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_that_enter_the_context_are_recomputed_in_it(calls, use_reentrant):
    q = torch.randn(1, 2, 7, 16, requires_grad=True)

    def part(q):
        with routed_sdpa():
            return theirs(q, q, q, is_causal=True)

    (expected,) = torch.autograd.grad(part(q).square().sum(), q)
    calls.clear()
    out = torch.utils.checkpoint.checkpoint(part, q, use_reentrant=use_reentrant)
    out.square().sum().backward()  # outside
    assert len(calls) == 2
    assert torch.equal(q.grad, expected)
