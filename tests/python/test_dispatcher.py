"""What looks at operations of torch's, and not at memory, sees an attention call as one: make_fx, torch.jit.trace, fake
tensors, subclasses, counters."""

import kinds
import mods
import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from treadle.torch import AuxRequest, BlockMask, create_block_mask, create_mask, flex_attention

attention = torch.ops.treadle.attention.default
attention_backward = torch.ops.treadle.attention_backward.default


def tensors(length=20):
    """q, k, v, slopes by head, documents by position."""
    q, k, v = (torch.randn(1, 2, length, 8) for _ in range(3))
    return q, k, v, torch.randn(2), torch.arange(length) // 7


def attend(q, k, v, slopes, documents):
    def mask_mod(b, h, q, kv):
        return (documents[q] == documents[kv]) & (q >= kv)

    mask = create_block_mask(mask_mod, None, None, q.shape[2], k.shape[2])
    return flex_attention(q, k, v, lambda s, b, h, q, kv: s + slopes[h] * (kv - q), mask)


def step(q, k, v, slopes, documents):
    """out, and all gradients."""
    leaves = [t.detach().requires_grad_() for t in (q, k, v, slopes)]
    out = attend(*leaves, documents)
    return out.detach(), *torch.autograd.grad(out.square().sum(), leaves)


def same(got, wanted):
    assert len(got) == len(wanted) and all(torch.equal(a, b) for a, b in zip(got, wanted))


def operations_of(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(mode):
    graph = make_fx(attend, tracing_mode=mode)(*tensors())
    assert attention in operations_of(graph) and torch.ops.aten.new_empty.default not in operations_of(graph)
    others = tensors()
    assert torch.equal(graph(*others), attend(*others))


def test_make_fx_of_another_length():
    graph = make_fx(attend, tracing_mode="symbolic")(*tensors())
    others = tensors(33)
    assert torch.equal(graph(*others), attend(*others))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_of_gradients(mode):
    graph = make_fx(step, tracing_mode=mode)(*tensors())
    assert attention_backward in operations_of(graph)
    others = tensors()
    same(graph(*others), step(*others))


def test_make_fx_before_dispatch():
    graph = make_fx(attend, pre_dispatch=True)(*tensors())
    assert attention in operations_of(graph)
    others = tensors()
    assert torch.equal(graph(*others), attend(*others))


def test_make_fx_of_a_gradient_alone():
    """The forward was an eager call."""
    q, k, v, slopes, documents = tensors()
    q.requires_grad_()
    out = attend(q, k, v, slopes, documents)
    graph = make_fx(lambda dout: torch.autograd.grad(out, q, dout, retain_graph=True))(torch.randn_like(out))
    assert attention_backward in operations_of(graph)
    dout = torch.randn_like(out)
    same(graph(dout), torch.autograd.grad(out, q, dout, retain_graph=True))


def test_make_fx_of_lists_of_blocks():
    """The lists are inputs, too, and nothing of the graph is kept in the mask."""
    x = torch.randn(1, 1, 64, 8)
    indices = torch.tensor([[[[0, 1], [0, 1]]]], dtype=torch.int32)

    def listed(x, count):
        mask = BlockMask.from_kv_blocks(count, indices, BLOCK_SIZE=32, mask_mod=mods.causal_mask, compute_q_blocks=False)
        return flex_attention(x, x, x, block_mask=mask)

    graph = make_fx(listed)(x, torch.tensor([[[1, 2]]], dtype=torch.int32))
    for count in ([[[1, 2]]], [[[1, 1]]], [[[0, 1]]]):
        count = torch.tensor(count, dtype=torch.int32)
        assert torch.equal(graph(x, count), listed(x, count))

    mask = BlockMask.from_kv_blocks(torch.tensor([[[1, 2]]]), indices, BLOCK_SIZE=32, mask_mod=mods.causal_mask)
    expected = flex_attention(x, x, x, block_mask=mask)
    for _ in range(2):
        make_fx(lambda x: flex_attention(x, x, x, block_mask=mask))(x)
        assert torch.equal(flex_attention(x, x, x, block_mask=mask), expected)


def test_what_is_no_operation_is_refused_in_graphs():
    x = torch.randn(1)
    with pytest.raises(RuntimeError, match="create_mask cannot be part of a graph"):
        make_fx(lambda x: create_mask(mods.causal_mask, 1, 1, 4, 4) & (x > 0))(x)
    with pytest.raises(RuntimeError, match="lists of blocks cannot be part of a graph"):
        make_fx(lambda x: create_block_mask(mods.causal_mask, 1, 1, 4, 4).kv_num_blocks * x)(x)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_jit_trace():
    traced = torch.jit.trace(attend, tensors())
    assert "treadle::attention" in str(traced.graph)
    others = tensors()
    assert torch.equal(traced(*others), attend(*others))
    leaves = [t.requires_grad_() for t in others[:4]]
    got = torch.autograd.grad(traced(*leaves, others[4]).square().sum(), leaves)
    same(got, step(*others)[1:])


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_jit_trace_of_a_module(tmp_path):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slopes = torch.nn.Parameter(torch.randn(2))

        def forward(self, x):
            out, aux = flex_attention(
                x, x, x, lambda s, b, h, q, kv: s + self.slopes[h] * (q - kv), return_aux=AuxRequest(lse=True)
            )
            return out * aux.lse.unsqueeze(-1)

    layer, x = Layer(), torch.randn(1, 2, 20, 8)
    torch.jit.save(torch.jit.trace(layer, x), tmp_path / "layer.pt")
    loaded = torch.jit.load(tmp_path / "layer.pt")
    for length in (20, 31):
        x = torch.randn(1, 2, length, 8)
        torch.testing.assert_close(loaded(x), layer(x))


def test_fake_tensors():
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in tensors()]
        fake[0] = mode.from_tensor(torch.randn(1, 20, 2, 8).transpose(1, 2))
        results = step(*fake)
    real = list(tensors())
    real[0] = torch.randn(1, 20, 2, 8).transpose(1, 2)
    for a, b in zip(results, step(*real)):
        assert isinstance(a, FakeTensor)
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype and a.device == b.device


def test_fake_tensors_outside_of_their_mode():
    mode = FakeTensorMode()
    q, k, v, slopes, documents = [mode.from_tensor(t) for t in tensors()]
    out = attend(q, k, v, slopes, documents)
    assert isinstance(out, FakeTensor) and out.shape == (1, 2, 20, 8)


@pytest.mark.parametrize("which", range(1, 5))
def test_a_tensor_without_memory_beside_others_is_refused(which):
    """As in a model of which one buffer was not loaded: torch asks for shapes alone then, and nobody computes."""
    forward, both = make_fx(attend)(*tensors()), make_fx(step)(*tensors())
    given = list(tensors())
    given[which] = given[which].to("meta")
    for graph in (forward, both):
        with pytest.raises(ValueError, match="treadle::attention: a tensor is on meta, the queries are on cpu"):
            graph(*given)


def test_an_incoming_gradient_without_memory_is_refused():
    q = torch.randn(1, 1, 8, 4)
    mods = ("score", "", "score", "", "", [], [], None, False, [], [], False, False, 0.0)
    out, lse, _ = attention(q, q, q, [], *mods)
    with pytest.raises(ValueError, match="treadle::attention: a tensor is on meta, the queries are on cpu"):
        attention_backward(q, q, q, [], *mods, out, lse, q.to("meta"), None, [])


def test_tensors_without_memory_have_shapes():
    given = [t.to("meta") for t in tensors()]
    out = make_fx(attend)(*tensors())(*given)
    assert out.device.type == "meta" and out.shape == given[0].shape


def test_a_mask_is_not_spoilt_by_fake_tensors():
    x = torch.randn(1, 1, 64, 8)
    num, indices = torch.tensor([[[1, 2]]]), torch.tensor([[[[0, 1], [0, 1]]]])
    masks = [
        create_block_mask(mods.causal_mask, None, None, 64, 64),
        BlockMask.from_kv_blocks(num, indices, BLOCK_SIZE=32, mask_mod=mods.causal_mask),
        torch_flex.create_block_mask(mods.causal_mask, None, None, 64, 64, "cpu", BLOCK_SIZE=32),
    ]
    for mask in masks:
        expected = flex_attention(x, x, x, block_mask=mask)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = mode.from_tensor(x)
            assert isinstance(flex_attention(fake, fake, fake, block_mask=mask), FakeTensor)
        assert torch.equal(flex_attention(x, x, x, block_mask=mask), expected)


def test_a_subclass_stays_one():
    q, k, v, slopes, documents = tensors()
    expected = attend(q, k, v, slopes, documents)
    for place in range(5):
        given = [q, k, v, slopes, documents]
        given[place] = given[place].as_subclass(kinds.Tagged)
        out = attend(*given)
        assert type(out) is kinds.Tagged and torch.equal(out.as_subclass(torch.Tensor), expected)


def test_a_subclass_without_memory():
    plain = tensors()
    expected = step(*plain)
    for place in range(5):
        given = list(plain)
        given[place] = kinds.Wrapped(given[place])
        results = step(*given)
        assert type(results[0]) is kinds.Wrapped
        same([kinds.plain(r) for r in results], expected)


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_modes_see_operations():
    plain = tensors()
    expected = step(*plain)
    with Log() as log:
        same(step(*plain), expected)
    assert log.seen.count(attention) == 1 and log.seen.count(attention_backward) == 1
    q = plain[0].requires_grad_()
    out = attend(*plain)
    with Log() as log:
        torch.autograd.grad(out.square().sum(), q)
    assert attention_backward in log.seen


def test_a_second_derivative_is_refused():
    """By the operation as by eager calls: it would be zero without a word."""
    for convert in (lambda t: t, kinds.Wrapped):
        q, k, v, slopes, documents = tensors()
        q = convert(q).requires_grad_()
        (dq,) = torch.autograd.grad(attend(q, k, v, slopes, documents).sum(), q, create_graph=True)
        with pytest.raises(NotImplementedError, match="differentiated once"):
            torch.autograd.grad((dq + q).square().sum(), q)


def test_a_forward_derivative_is_refused():
    q, k, v, slopes, documents = tensors()
    with torch.autograd.forward_ad.dual_level():
        attend(q, k, v, slopes, documents)
        for place in range(4):
            given = [q, k, v, slopes, documents]
            given[place] = torch.autograd.forward_ad.make_dual(given[place], torch.ones_like(given[place]))
            with pytest.raises((NotImplementedError, RuntimeError), match="jvp|forward mode"):
                attend(*given)


def test_the_profiler_sees_calls():
    plain = tensors()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        attend(*plain)
        step(*plain)
    names = [event.name for event in profile.events()]
    assert names.count("treadle::attention") == 2 and names.count("treadle::attention_backward") == 1
