"""Numbers that change between calls of a compiled model: symbols of its graph, which mods may compute with."""

import math

import pytest
import torch
import torch._dynamo.testing
from treadle.torch import create_block_mask, flex_attention, paged_attention, varlen_attention

where = torch.where
document = torch.arange(64) // 20
x = torch.randn(1, 2, 64, 16, generator=torch.Generator().manual_seed(0))


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def graphs_of(f, calls, dynamic=None, backend="eager", **tolerance):
    """How many graphs torch made for f(*arguments) of all calls, which give what eager calls give."""
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(f, fullgraph=True, dynamic=dynamic, backend=counter)
    for arguments in calls:
        torch.testing.assert_close(compiled(*arguments), f(*arguments), **tolerance)
    return counter.frame_count


# By what they do with n, an int that torch makes a symbol when it changes.
with_int = {
    "<": lambda n: lambda s, b, h, q, kv: where(q < n, s, s * 0.5),
    "> turned": lambda n: lambda s, b, h, q, kv: where(n > q, s, s * 0.5),
    "<= turned": lambda n: lambda s, b, h, q, kv: where(n <= q, s, s * 0.5),
    ">=": lambda n: lambda s, b, h, q, kv: where(q >= n, s, s * 0.5),
    "==": lambda n: lambda s, b, h, q, kv: where(q == n, s, s * 0.5),
    "== turned": lambda n: lambda s, b, h, q, kv: where(n == q, s, s * 0.5),
    "!= turned": lambda n: lambda s, b, h, q, kv: where(n != q, s, s * 0.5),
    "!= of a float": lambda n: lambda s, b, h, q, kv: where(s.round() != n, s, s * 0.5),
    "+ 1": lambda n: lambda s, b, h, q, kv: where(q < n + 1, s, s * 0.5),
    "// 2": lambda n: lambda s, b, h, q, kv: where(q - kv < n // 2, s, s * 0.5),
    "a derived cell": lambda n: derived(n - 1),
    "+, -": lambda n: lambda s, b, h, q, kv: where(q + n >= kv + 30, s, s * 0.5) + (n - q) * 0.01,
    "negated": lambda n: lambda s, b, h, q, kv: s + -n * q * 0.01,
    "divisor": lambda n: lambda s, b, h, q, kv: where(q // (n + 1) == kv % (n + 2), s, s * 0.5),
    "dividend": lambda n: lambda s, b, h, q, kv: s + n // (q + 1) * 0.1 + n % (q + 1) * 0.1 + n / (q + 1),
    "bits": lambda n: lambda s, b, h, q, kv: s + (q & n) * 0.01 + (n | kv) * 0.01,
    "shift": lambda n: lambda s, b, h, q, kv: s + (q >> n // 10),
    "exponent": lambda n: lambda s, b, h, q, kv: s + (q * 0.01) ** (n // 10),
    "clamp": lambda n: lambda s, b, h, q, kv: s + q.clamp(max=n) * 0.1 + torch.clamp(kv, min=n) * 0.1,
    "index": lambda n: lambda s, b, h, q, kv: s + document[n] + document[torch.abs(q - n)],
    "where": lambda n: lambda s, b, h, q, kv: s + where(q > kv, n, 3) * 0.1,
    "alpha": lambda n: lambda s, b, h, q, kv: s + torch.add(q, n, alpha=2) * 0.1,
    "a float made of it": lambda n: lambda s, b, h, q, kv: s * (n * 0.5) + math.sqrt(n + 1),
    "a tensor made of it": lambda n: lambda s, b, h, q, kv: s + torch.minimum(q, torch.tensor(n)),
}  # fmt: skip


def derived(m):
    return lambda s, b, h, q, kv: where(q < m, s, s * 0.5)


@pytest.mark.parametrize(
    "use, dynamic", [*[(use, True) for use in with_int], ("<", None), ("divisor", None), ("a float made of it", None)]
)
def test_another_int_compiles_nothing_anew(use, dynamic):
    def attend(x, n):
        return flex_attention(x, x, x, with_int[use](n))

    calls = [(x, n) for n in (20, 25, 30, 2, 0, 1, 50, 9, 10, 11)]
    # Without `dynamic` the first number is taken as fixed.
    assert graphs_of(attend, calls, dynamic, atol=1e-5, rtol=1e-5) == (1 if dynamic else 2)


@pytest.mark.parametrize("given", ["a mask_mod", "a BlockMask made before", "a BlockMask made in the graph"])
def test_another_window_compiles_nothing_anew(given):
    def mask_of(window):
        mask_mod = lambda b, h, q, kv: (q >= kv) & (q - kv < window)  # noqa: E731
        return mask_mod if given == "a mask_mod" else create_block_mask(mask_mod, None, None, 64, 64)

    if given == "a BlockMask made in the graph":
        attend = lambda x, window: flex_attention(x, x, x, block_mask=mask_of(window))  # noqa: E731
        calls = [(x, n) for n in range(20, 32)]
    else:
        attend = lambda x, mask: flex_attention(x, x, x, block_mask=mask)  # noqa: E731
        calls = [(x, mask_of(n)) for n in range(20, 32)]
    assert graphs_of(attend, calls, atol=0, rtol=0) == 2


with_float = {
    "*": lambda c: lambda s, b, h, q, kv: s * c,
    "-": lambda c: lambda s, b, h, q, kv: c - s,
    "cap": lambda c: lambda s, b, h, q, kv: (c + 1) * torch.tanh(s / (c + 1)),
    "<": lambda c: lambda s, b, h, q, kv: where(s < c, s, c),
    "==": lambda c: lambda s, b, h, q, kv: where(c == s, s, c),
    "exponent": lambda c: lambda s, b, h, q, kv: s + (q * 0.01 + 1.0) ** c,
}


@pytest.mark.parametrize("use", with_float)
def test_another_float_compiles_nothing_anew(use):
    def attend(x, c):
        return flex_attention(x, x, x, with_float[use](c))

    calls = [(x, c) for c in (0.5, 0.25, 3.0, 4.0, 7.25, 0.75, 1.5, 2.5, 1.0, 0.0)]
    assert graphs_of(attend, calls, backend="aot_eager", atol=1e-5, rtol=1e-5) == 2


def test_another_scale_compiles_nothing_anew():
    def attend(x, scale):
        return flex_attention(x, x, x, scale=scale)

    assert graphs_of(attend, [(x, 0.1 + i / 8) for i in range(12)], backend="aot_eager", atol=0, rtol=0) == 2


def test_another_offset_compiles_nothing_anew():
    def attend(x, n):
        return flex_attention(x[:, :, :3], x, x, block_mask=lambda b, h, q, kv: q >= kv, q_offset=n)

    assert graphs_of(attend, [(x, n) for n in range(12)], atol=0, rtol=0) == 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradients_where_numbers_change(backend):
    table = torch.randn(64, requires_grad=True)
    leaf = x.clone().requires_grad_()

    def attend(x, n, c):
        return flex_attention(x, x, x, lambda s, b, h, q, kv: s + table[(q - kv).abs() % (n + 1)] * c)

    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(attend, fullgraph=True, backend=counter)
    for n, c in ((20, 0.5), (25, 0.25), (30, 3.0), (9, 0.75)):
        got, wanted = [torch.autograd.grad(f(leaf, n, c).square().sum(), (leaf, table)) for f in (compiled, attend)]
        for a, b in zip(got, wanted):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 2


def test_numbers_of_sequences_and_pages():
    starts = torch.tensor([0, 20, 50])
    packed = torch.randn(50, 2, 16)
    pool = torch.randn(4, 2, 16, 16)
    table = torch.tensor([[0, 1], [3, 2]], dtype=torch.int32)
    lengths = torch.tensor([20, 30], dtype=torch.int32)

    def mods(n, c):
        return dict(
            score_mod=lambda s, b, h, q, kv: s + n * c * document[q], mask_mod=lambda b, h, q, kv: (q >= kv) & (q - kv < n)
        )

    def varlen(x, n, c):
        return varlen_attention(x, x, x, starts, **mods(n, c))

    def paged(x, n, c):
        return paged_attention(x, starts, pool, pool, table, lengths, **mods(n, c))

    for attend in (varlen, paged):
        calls = [(packed, n, c) for n, c in ((20, 0.1), (25, 0.2), (3, 0.3), (4, 0.4))]
        assert graphs_of(attend, calls, atol=1e-5, rtol=1e-5) == 2


class Halved(torch.nn.Module):
    def forward(self, x):
        n = x.shape[2]

        def score_mod(s, b, h, q, kv):
            return s * (q < n // 2) + n * 0.5

        return flex_attention(x, x, x, score_mod, lambda b, h, q, kv: (q >= kv) & (kv <= n) | (q == n))


@pytest.mark.parametrize("strict", [False, True])
def test_lengths_as_numbers_of_an_exported_model(strict):
    shapes = ({2: torch.export.Dim("s", min=2, max=4096)},)
    exported = torch.export.export(Halved(), (x,), dynamic_shapes=shapes, strict=strict).module()
    for length in (64, 40):
        torch.testing.assert_close(exported(x[:, :, :length]), Halved()(x[:, :, :length]), atol=1e-6, rtol=1e-6)


def test_lengths_as_numbers_of_make_fx():
    graph = torch.fx.experimental.proxy_tensor.make_fx(Halved(), tracing_mode="symbolic")(x)
    for length in (64, 40):
        torch.testing.assert_close(graph(x[:, :, :length]), Halved()(x[:, :, :length]), atol=1e-6, rtol=1e-6)


def test_what_numbers_an_operation_may_be_given():
    attention = torch.ops.treadle.attention
    more = (False, [], [], False, False, 0.0)
    tensor = torch.tensor(2.0, dtype=torch.float64)
    given = attention(x, x, x, [tensor], "score * s0", "", "score * s0", "", "t", [], [], None, *more)
    assert torch.equal(given[0], flex_attention(x, x, x, lambda s, b, h, q, kv: s * 2.0))
    given = attention(x, x, x, [tensor], "", "", "", "", "x", [], [], None, *more)
    assert torch.equal(given[0], flex_attention(x, x, x, scale=2.0))
    with pytest.raises(ValueError, match="kinds 'if' are not 2 i, 0 f, t and a last x"):
        attention(x, x, x, [], "score * s0", "", "score * s0", "", "if", [1, 2], [], None, *more)
    with pytest.raises(ValueError, match="0 captures are too few for kinds 't'"):
        attention(x, x, x, [], "score * s0", "", "score * s0", "", "t", [], [], None, *more)
