"""What mods may do inside torch.compile(fullgraph=True): all that they may do outside, with the same bits or messages."""

import functools

import pytest
import torch
import torch._dynamo.testing
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from treadle._errors import TraceError
from treadle.torch import BlockMask, create_block_mask, flex_attention

mass = torch.tensor([2.5, 3.0])
document = torch.arange(64) // 20
bias = torch.randn(64)
x = torch.randn(1, 2, 64, 16, generator=torch.Generator().manual_seed(0))


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def causal(b, h, q, kv):
    return q >= kv


def check(score_mod=None, mask=None, dynamic=None):
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=dynamic, backend="eager")
    assert torch.equal(compiled(x, x, x, score_mod, mask), flex_attention(x, x, x, score_mod, mask))
    assert torch.overrides._get_current_function_mode_stack() == []


of_whole_tensors = {
    "log": lambda s, b, h, q, kv: s + torch.log(mass[0]),
    "sin": lambda s, b, h, q, kv: s + mass[1].sin(),
    "product": lambda s, b, h, q, kv: s + mass[0] * mass[1],
    "sum": lambda s, b, h, q, kv: s + mass.sum(),
    "indexed": lambda s, b, h, q, kv: s + (mass * 2)[h],
    "size": lambda s, b, h, q, kv: s + mass.size(0),
    "shape": lambda s, b, h, q, kv: s + document[torch.clamp(q + 5, max=document.shape[0] - 1)],
    "len": lambda s, b, h, q, kv: torch.where(q < len(document) // 2, s, 0.0),
    "dtype, device": lambda s, b, h, q, kv: s.to(mass.dtype) + torch.ones((), device=mass.device),
    "exponent": lambda s, b, h, q, kv: s + (q * 0.1) ** 2 + (q * 0.1) ** 1.5,
    "+=": lambda s, b, h, q, kv: functools.reduce(lambda a, i: a + i * q, range(3), s),
}


@pytest.mark.parametrize("use", of_whole_tensors)
def test_functions_of_whole_tensors(use):
    check(of_whole_tensors[use], dynamic=True)


def test_lengths_of_captured_tensors_change():
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=True, backend=counter)
    for length in (32, 48, 64, 80):
        ids, y = torch.arange(length) // 7, torch.randn(1, 1, length, 8)

        def score_mod(s, b, h, q, kv, ids=ids):
            last = ids.shape[0] - 1
            same = ids[torch.clamp(q, 0, last)] == ids[torch.clamp(kv, 0, last)]
            return torch.where(same, s, -float("inf"))

        assert torch.equal(compiled(y, y, y, score_mod), flex_attention(y, y, y, score_mod))
    assert counter.frame_count == 1


@pytest.mark.parametrize("block", [32, (32, 16)])
def test_lists_of_dynamic_graphs(block):
    """Their block sizes are plain numbers in the kernels."""
    q_block, kv_block = (block, block) if isinstance(block, int) else block
    num = torch.full((1, 1, 64 // q_block), 2, dtype=torch.int32)
    indices = torch.arange(2, dtype=torch.int32).expand(1, 1, 64 // q_block, 2)
    mask = BlockMask.from_kv_blocks(num, indices, BLOCK_SIZE=block, mask_mod=causal)
    mask = BlockMask((64, 64), num, indices, BLOCK_SIZE=block, mask_mod=causal) if mask.seq_lengths != (64, 64) else mask
    texts = []

    def keep_text(graph, example_inputs):
        texts.extend([a for n in graph.graph.nodes if "attention" in str(n.target) for a in n.args if isinstance(a, str)])
        return graph

    out = torch.compile(flex_attention, fullgraph=True, dynamic=True, backend=keep_text)(x, x, x, block_mask=mask)
    assert torch.equal(out, flex_attention(x, x, x, block_mask=mask))
    assert any(f"floor_div(q, ({q_block}))" in t and f"floor_div(kv, ({kv_block}))" in t for t in texts)


def test_modes_of_the_user_stay():
    with torch.device("cpu"):
        compiled = torch.compile(flex_attention, fullgraph=True, backend="eager")
        score_mod = lambda s, b, h, q, kv: s + bias[q]  # noqa: E731
        assert torch.equal(compiled(x, x, x, score_mod), flex_attention(x, x, x, score_mod))
        assert len(torch.overrides._get_current_function_mode_stack()) == 1


def test_a_graph_break_inside_a_mod():
    def score_mod(s, b, h, q, kv):
        torch._dynamo.graph_break()
        return s + bias[q]

    compiled = torch.compile(flex_attention, backend="eager")
    assert torch.equal(compiled(x, x, x, score_mod), flex_attention(x, x, x, score_mod))


# --- activation checkpointing ---------------------------------------------------------------------------------------


def save_attention(context, operation, *args, **kwargs):
    saved = operation == torch.ops.treadle.attention.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize(
    "backend, selective", [("eager", False), ("aot_eager", False), ("aot_eager", True), ("inductor", True)]
)
def test_checkpoints(backend, selective):
    """Every step has other documents and another bias; there is one graph."""
    how = {}
    if selective:
        how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, save_attention)

    def layer(x, bias, mask):
        def attend(x):
            return flex_attention(x * 2, x, x, lambda s, b, h, q, kv: s + bias[kv] * mass[h], mask).cos()

        return checkpoint(attend, x, use_reentrant=False, **how)

    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for step in range(10):
        ids, bias = torch.arange(64) // (step + 2), torch.randn(64, requires_grad=True)
        mask = create_block_mask(lambda b, h, q, kv, ids=ids: ids[q] == ids[kv], None, None, 64, 64)
        leaf = torch.randn(1, 2, 64, 16, requires_grad=True)
        out, wanted = compiled(leaf, bias, mask), layer(leaf, bias, mask)
        torch.testing.assert_close(out, wanted)
        for a, b in zip(torch.autograd.grad(out.sum(), (leaf, bias)), torch.autograd.grad(wanted.sum(), (leaf, bias))):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert counter.frame_count == 1


# --- messages -------------------------------------------------------------------------------------------------------


def writes_element(s, b, h, q, kv):
    bias[0] = 3
    return s


def writes_all(s, b, h, q, kv):
    bias.add_(1)
    return s


wrong = {
    "a reduction": lambda s, b, h, q, kv: s + x[0, 0, q].sum(5),
    "open dimensions": lambda s, b, h, q, kv: s + x[0, 0],
    "a Boolean": lambda s, b, h, q, kv: s if q < kv else -s,
    "random": lambda s, b, h, q, kv: s + torch.rand(()),
    "writes an element": writes_element,
    "writes": writes_all,
    "nothing": lambda s, b, h, q, kv: None,
    "another function": lambda s, b, h, q, kv: torch.fft.fft(s),
    "an attribute": lambda s, b, h, q, kv: s.grad_fn,
}  # fmt: skip


@pytest.mark.parametrize("mistake", wrong)
def test_messages_arrive_with_the_line(mistake):
    compiled = torch.compile(flex_attention, fullgraph=True, backend="eager")
    with pytest.raises(TraceError) as eager:
        flex_attention(x, x, x, wrong[mistake])
    with pytest.raises(Exception) as found:
        compiled(x, x, x, wrong[mistake])
    assert str(eager.value) in str(found.value).replace("\\'", "'")
    check(lambda s, b, h, q, kv: s + bias[q])  # and torch's tracer is as it was


random = {
    "rand": lambda: torch.rand(2),
    "randn_like": lambda: torch.randn_like(mass),
    "normal": lambda: torch.normal(mass, mass),
    "randint_like": lambda: torch.randint_like(mass, 3),
    "bernoulli": lambda: mass.sigmoid().bernoulli(),
    "dropout": lambda: torch.nn.functional.dropout(mass),
    "alpha_dropout": lambda: torch.nn.functional.alpha_dropout(mass, training=True),
    "rrelu": lambda: torch.rrelu(mass, training=True),
}


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", random)
def test_random_functions_are_refused(name, compile):
    attend = torch.compile(flex_attention, fullgraph=True, backend="eager") if compile else flex_attention
    with pytest.raises(Exception, match=f"a mod calls torch.{name}; it is called once, so all pairs would get the same"):
        attend(x, x, x, lambda s, b, h, q, kv: s + random[name]()[h])


def test_random_tensors_drawn_before_are_read():
    def attend(x):
        drawn = torch.rand(64)
        return flex_attention(x, x, x, lambda s, b, h, q, kv: s + drawn[kv])

    assert torch.compile(attend, fullgraph=True, backend="eager")(x).shape == x.shape


def test_messages_of_arguments_arrive():
    compiled = torch.compile(flex_attention, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="must have the same embedding dimension, got 16 and 3"):
        compiled(x, x[..., :3], x)
    with pytest.raises(Exception, match="kernel_options has 'BLOCK_MM', which is unknown"):
        compiled(x, x, x, kernel_options={"BLOCK_MM": 3})
    with pytest.raises(Exception, match="a mod captures a tensor on device meta; Treadle runs on the CPU"):
        compiled(x, x, x, lambda s, b, h, q, kv: s + torch.zeros(3, device="meta")[q])
