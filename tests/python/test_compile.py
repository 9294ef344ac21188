"""Inside torch.compile and torch.export a call is one operation: no graph break, the same bits."""

import pytest
import torch
import torch._dynamo.testing
import torch.nn.attention.flex_attention as torch_flex
from treadle.sparse_transformer import SparseAttention, blocksparse_attention
from treadle.torch import AuxRequest, BlockMask, _ops, create_block_mask, create_key_mask, flex_attention


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.tensor([0.5, 0.25]))
        self.table = torch.nn.Parameter(torch.randn(200))
        self.window = 20

    def forward(self, q, k, v):
        def mask_mod(b, h, q, kv):
            return (q >= kv) & (q - kv < self.window)

        def score_mod(score, b, h, q, kv):
            return torch.tanh(score) + self.slopes[h] * (kv - q) + self.table[q - kv]

        mask = create_block_mask(mask_mod, None, None, q.shape[2], k.shape[2])
        x, aux = flex_attention(q * 2, k, v, score_mod, mask, return_aux=AuxRequest(lse=True))
        return torch.relu(flex_attention(x, k, v)) + aux.lse.unsqueeze(-1)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


def tensors(length, requires_grad=True):
    torch.manual_seed(1)
    return [torch.randn(1, 2, length, 16, requires_grad=requires_grad) for _ in range(3)]


def gradients(f, model, inputs):
    return torch.autograd.grad(f(*inputs).sum(), (*inputs, *model.parameters()))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_gives_the_same(model, backend):
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    inputs = tensors(50)
    torch.testing.assert_close(compiled(*inputs), model(*inputs), atol=1e-6, rtol=1e-6)
    for a, b in zip(gradients(compiled, model, inputs), gradients(model, model, inputs)):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_other_lengths_compile_nothing_anew(model):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for length in (33, 50, 77):
        inputs = tensors(length, False)
        torch.testing.assert_close(compiled(*inputs), model(*inputs), atol=1e-6, rtol=1e-6)
    assert counter.frame_count == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_exported_model_gives_the_same(model, dynamic):
    shapes = None
    if dynamic:
        s = torch.export.Dim("s", min=2, max=4096)
        shapes = ({2: s}, {2: s}, {2: s})
    exported = torch.export.export(model, tuple(tensors(50, False)), dynamic_shapes=shapes)
    names = [n.target for n in exported.graph.nodes if "treadle" in str(n.target)]
    assert len(names) == 2
    for length in (50, 71) if dynamic else (50,):
        inputs = tensors(length, False)
        torch.testing.assert_close(exported.module()(*inputs), model(*inputs), atol=1e-6, rtol=1e-6)


def test_the_operations_pass_torchs_own_checks():
    q, k, v = tensors(20)
    slopes = torch.tensor([0.5, 0.25], requires_grad=True)
    mods = ("score + c0[h] * s0", "q >= kv + s1")
    sinks = torch.tensor([0.1, 0.2], requires_grad=True)
    seed = torch.tensor([17])
    for captures, extras in (
        ([slopes], (False, [], [], False, False, 0.0)), ([slopes, sinks], (True, [3], [1], False, False, 0.0)),
        ([slopes, seed], (False, [], [], False, False, 0.5)),
    ):
        arguments = (q, k, v, captures, *mods, *mods, "fi", [2], [0.5], None, *extras)
        torch.library.opcheck(
            torch.ops.treadle.attention.default, arguments,
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )  # fmt: skip


def test_strides_of_the_result_are_foretold(model):
    q = torch.randn(2, 30, 2, 16).transpose(1, 2)
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode:
        fake = mode.from_tensor(q)
        nothing = ("", "", "", "", "", [], [], None, False, [], [], False, False, 0.0)
        shape = torch.ops.treadle.attention(fake, fake, fake, [], *nothing)[0]
    assert shape.stride() == flex_attention(q, q, q).stride()


def test_negative_indices_count_from_the_end():
    torch._dynamo.reset()
    table = torch.randn(40, requires_grad=True)

    def attend(x, table):
        return flex_attention(x, x, x, lambda s, b, h, q, kv: s + table[q - kv])

    x = torch.randn(1, 2, 40, 8)
    dense = x @ x.transpose(-2, -1) / 8**0.5 + table[torch.arange(40)[:, None] - torch.arange(40)]
    expected = torch.softmax(dense, -1) @ x
    out = torch.compile(attend, fullgraph=True, backend="aot_eager")(x, table)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    (learned,) = torch.autograd.grad(out.square().sum(), table)
    (wanted,) = torch.autograd.grad(expected.square().sum(), table)
    torch.testing.assert_close(learned, wanted, atol=1e-4, rtol=1e-4)


def attend_with_two_biases(q, k, v, learned, fixed):
    def score_mod(s, b, h, q, kv):
        return s * learned[h] + fixed[q - kv] - learned[0] * fixed[kv]

    out, aux = flex_attention(q, k, v, score_mod, return_aux=AuxRequest(lse=True, max_scores=True))
    return out, aux.lse


@pytest.mark.parametrize("wanted", ["all", "q", "k", "v", "learned", "fixed", "learned and v"])
@pytest.mark.parametrize("loss", ["out", "lse", "both"])
def test_gradients_have_the_bits_of_eager_calls(wanted, loss):
    """Both have the same backward; what is needed of it differs."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    names = ("q", "k", "v", "learned", "fixed")
    tensors = [*[torch.randn(1, 2, 12, 8) for _ in range(3)], torch.randn(2), torch.randn(12)]
    needed = [t.requires_grad_() for name, t in zip(names, tensors) if wanted == "all" or name in wanted.split()]
    dout, dlse = torch.randn(1, 2, 12, 8), torch.randn(1, 2, 12)

    def gradients(f):
        out, lse = f(*tensors)
        roots = {"out": [out], "lse": [lse], "both": [out, lse]}[loss]
        seeds = {"out": [dout], "lse": [dlse], "both": [dout, dlse]}[loss]
        return torch.autograd.grad(roots, needed, seeds, allow_unused=True)

    eager = gradients(attend_with_two_biases)
    compiled = gradients(torch.compile(attend_with_two_biases, fullgraph=True, backend="eager"))
    for a, b in zip(eager, compiled):
        assert torch.equal(a, b)


def test_layouts_are_kept_until_what_they_read_changes():
    torch._dynamo.reset()
    document = torch.arange(60) // 20

    def attend(x):
        mask = create_block_mask(lambda b, h, q, kv: document[q] == document[kv], None, None, 60, 60)
        return flex_attention(x, x, x, block_mask=mask)

    compiled = torch.compile(attend, fullgraph=True, backend="eager")
    x = torch.randn(1, 2, 60, 8)
    _ops._layouts._kept.clear()
    compiled(x)
    (first,) = [kept[3] for kept in _ops._layouts._kept.values()]
    compiled(x)
    (again,) = [kept[3] for kept in _ops._layouts._kept.values()]
    assert again is first
    document.copy_(torch.arange(60) // 30)
    torch.testing.assert_close(compiled(x), attend(x))
    (other,) = [kept[3] for kept in _ops._layouts._kept.values()]
    assert other is not first


def masks_closing_over_documents(count):
    def mask_of(documents):
        return create_block_mask(lambda b, h, q, kv: documents[q] == documents[kv], None, None, 60, 60)

    return [mask_of(torch.arange(60) // (i + 2)) for i in range(count)]


def masks_of_lists(count):
    for i in range(count):
        kinds = torch.rand(1, 1, 6, 6) < 0.5
        kinds |= torch.eye(6, dtype=torch.bool)
        num = kinds.sum(-1, dtype=torch.int32)
        indices = torch.argsort(kinds.int(), dim=-1, descending=True, stable=True).int()
        yield BlockMask.from_kv_blocks(num, indices, BLOCK_SIZE=10, mask_mod=causal)


def masks_of_keys(count):
    for i in range(count):
        yield create_key_mask(torch.rand(1, 1, 60, 60).topk(5).indices, lengths=(60, 60), mask_mod=causal)


def masks_of_torch(count):
    for i in range(count):
        documents = torch.arange(60) // (i + 2)
        yield torch_flex.create_block_mask(lambda b, h, q, kv, d=documents: d[q] == d[kv], None, None, 60, 60, "cpu")


def causal(b, h, q, kv):
    return q >= kv


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize(
    "masks", [masks_closing_over_documents, masks_of_lists, masks_of_keys, masks_of_torch], ids=lambda f: f.__name__
)
def test_a_new_mask_for_every_batch_compiles_nothing_anew(masks, used_before):
    """Twelve: torch gives up after eight."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(flex_attention, fullgraph=True, backend=counter)
    x = torch.randn(1, 2, 60, 8)
    for mask in masks(12):
        if used_before:
            flex_attention(x, x, x, block_mask=mask)
        out = compiled(x, x, x, block_mask=mask)
        assert torch.equal(out, flex_attention(x, x, x, block_mask=mask))
    assert counter.frame_count == 1


def test_a_new_bias_for_every_batch_compiles_nothing_anew():
    """Read twice, so that it has to be known again."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(fullgraph=True, backend=counter)
    def compiled(x, score_mod):
        return flex_attention(x, x, x, score_mod)

    x = torch.randn(1, 2, 60, 8)
    for i in range(12):
        bias, other = torch.randn(60), torch.randn(60)

        def score_mod(s, b, h, q, kv, bias=bias, other=other):
            return s + bias[q] * bias[kv] - other[kv]

        assert torch.equal(compiled(x, score_mod), flex_attention(x, x, x, score_mod))
    assert counter.frame_count == 1


def test_a_model_trains_on_packed_documents_with_one_graph():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(16, 48)
            self.slopes = torch.nn.Parameter(torch.tensor([0.5, 0.25]))

        def forward(self, x, mask):
            q, k, v = self.project(x).view(1, 60, 3, 2, 8).permute(2, 0, 3, 1, 4)
            return flex_attention(q, k, v, lambda s, b, h, q, kv: s + self.slopes[h] * (kv - q), mask)

    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for mask in masks_closing_over_documents(12):
        x = torch.randn(1, 60, 16)
        got = torch.autograd.grad(compiled(x, mask).square().sum(), layer.parameters())
        wanted = torch.autograd.grad(layer(x, mask).square().sum(), layer.parameters())
        for a, b in zip(got, wanted):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 1


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("mode", ["all", "local", "strided", "fixed"])
def test_a_sparse_transformers_attention(mode, recompute):
    """Configured before, or in the graph."""
    how = dict(heads=2, attn_mode=mode, local_attn_ctx=16, blocksize=4, num_verts=2, vertsize=1, recompute=recompute)
    leaves = [torch.randn(1, 64, 8, requires_grad=True) for _ in range(3)]
    dout = torch.randn(1, 64, 8)
    attend = SparseAttention(**how)
    expected = attend(*leaves)
    gradients = torch.autograd.grad(expected, leaves, dout)
    for f in (lambda q, k, v: attend(q, k, v), lambda q, k, v: blocksparse_attention(q, k, v, **how)):
        torch._dynamo.reset()
        out = torch.compile(f, fullgraph=True, backend="aot_eager")(*leaves)
        assert torch.equal(out, expected)
        assert all(map(torch.equal, torch.autograd.grad(out, leaves, dout), gradients))


@pytest.mark.parametrize("recompute", [False, True])
def test_a_compiled_sparse_transformer_keeps_what_it_should(recompute):
    """The compiler could keep the first forward's results instead of running the second."""
    torch._dynamo.reset()
    attend = SparseAttention(heads=2, recompute=recompute)
    leaves = [torch.randn(1, 64, 8, requires_grad=True) for _ in range(3)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        out = torch.compile(lambda *x: attend(*x), fullgraph=True, backend="aot_eager_decomp_partition")(*leaves)
    out.sum().backward()
    own = {x.data_ptr() for x in leaves}
    assert ({x.data_ptr() for x in kept} == own) == recompute
