"""What is taken where a mod is, what mods may ask of what they compute with, and what errors call it."""

import functools

import numpy as np
import pytest
import torch
import treadle
import treadle.torch
from treadle import TraceError
from treadle.plot import mask_blocks
from treadle.torch import create_block_mask, create_mask, flex_attention

x = torch.randn(2, 2, 16, 8, generator=torch.Generator().manual_seed(0))
a = x.numpy()
lower = torch.ones(16, 16, dtype=torch.bool).tril()
table = torch.randn(6)
batched = torch.randn(2, 2, 3)


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def causal(b, h, q, kv):
    return q >= kv


def doubled(s, b, h, q, kv):
    return s * 2


# --- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["score * 2", "twice = score * 2; twice"])
def test_texts_are_score_mods(text):
    assert torch.equal(flex_attention(x, x, x, text), flex_attention(x, x, x, doubled))
    assert np.array_equal(treadle.attention(a, a, a, text), treadle.attention(a, a, a, doubled))
    assert torch.equal(create_mask("score + kv", 1, 1, 4, 4), torch.ones(1, 1, 4, 4, dtype=torch.bool))


@pytest.mark.parametrize("text", ["q >= kv", "d = q - kv; d >= 0 && true"])
def test_texts_are_mask_mods(text):
    expected = flex_attention(x, x, x, block_mask=causal)
    masks = [text, create_block_mask(text, None, None, 16, 16), create_block_mask(text, None, None, 16, 16)[:, :]]
    masks[2].mask_mod = masks[1].mask_mod
    for mask in masks:
        assert torch.equal(flex_attention(x, x, x, block_mask=mask), expected)
    assert np.array_equal(treadle.attention(a, a, a, None, text), treadle.attention(a, a, a, None, causal))
    assert torch.equal(create_mask(text, 1, 1, 16, 16)[0, 0], lower)
    assert treadle.explain(mask_mod=text) == treadle.torch.explain(mask=text)


def test_texts_in_compiled_models():
    attend = torch.compile(flex_attention, fullgraph=True, backend="eager")
    assert torch.equal(attend(x, x, x, "score * 2", "q >= kv"), flex_attention(x, x, x, doubled, causal))


def test_wrong_texts():
    with pytest.raises(treadle.Error, match='unknown name "foo"; known are score, b, h, q, kv'):
        flex_attention(x, x, x, "foo")
    with pytest.raises(treadle.Error, match="mask: it returns a value of type int; a mask returns a bool"):
        flex_attention(x, x, x, block_mask="q")
    of_text = create_block_mask("q >= kv", None, None, 16, 16).mask_mod
    with pytest.raises(TraceError, match="the text 'q >= kv' is about b, h, q, kv; it cannot be called with other values"):
        flex_attention(x, x, x, block_mask=lambda b, h, q, kv: of_text(b, h, q + 1, kv))


# --- arrays ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(16, 16), (2, 16, 16), (1, 16, 16), (2, 2, 16, 16), (2, 1, 16, 16), (1, 1, 1, 16)])
def test_bool_arrays_are_mask_mods(shape):
    visible = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
    visible[..., 0] = True
    full = visible.expand(2, 2, 16, 16)
    expected = flex_attention(x, x, x, block_mask=lambda b, h, q, kv: full[b, h, q, kv])
    for given in (visible, visible.numpy()):
        mask = create_block_mask(given, 2, 2, 16, 16)
        assert torch.equal(flex_attention(x, x, x, block_mask=mask), expected)
        assert torch.equal(create_mask(given, 2, 2, 16, 16), full)
    mask_mod = treadle.capture(full.numpy())
    wanted = treadle.attention(a, a, a, None, lambda b, h, q, kv: mask_mod[b, h, q, kv])
    assert np.array_equal(treadle.attention(a, a, a, None, visible.numpy()), wanted)


def test_what_is_no_mod():
    what = r"mask_mod must be a function, a text or a bool array \[queries, keys\], .*, got "
    arrays = ((lower.int(), r"an array of torch.int32, shape \(16, 16\)"), (lower[0], "an array of torch.bool"))
    for mod, got in ((3, "int"), *arrays):
        with pytest.raises(TypeError, match=what + got):
            create_block_mask(mod, None, None, 16, 16)
    with pytest.raises(TypeError, match=what + "an array of float32"):
        treadle.attention(a, a, a, None, a[0, 0])
    for attend, mod, got in ((flex_attention, 3, "int"), (treadle.attention, a[0, 0], "ndarray; a function reads arrays at")):
        tensors = (x, x, x) if attend is flex_attention else (a, a, a)
        with pytest.raises(TypeError, match=f"score_mod must be a function or a text, got {got}"):
            attend(*tensors, mod)
    with pytest.raises(TypeError, match="got Tensor; create_block_mask makes one of a bool tensor"):
        flex_attention(x, x, x, block_mask=lower)
    with pytest.raises(TypeError, match="mask_mod is a BlockMask; treadle.torch's functions take it"):
        treadle.explain(mask_mod=create_block_mask(causal, None, None, 16, 16))


def test_pictures_of_functions_texts_and_tensors():
    expected = mask_blocks(lower.numpy(), most=8)
    for mask in (lower, create_block_mask(causal, None, None, 16, 16)):
        assert np.array_equal(mask_blocks(mask, most=8), expected)
    for mask in (causal, "q >= kv"):
        assert np.array_equal(mask_blocks(mask, most=8, lengths=(16, 16)), expected)
    of_head = mask_blocks(lambda b, h, q, kv: q >= kv + h * 100, head=1, lengths=(16, 16))
    assert not of_head.any()
    with pytest.raises(TypeError, match=r"a picture of function needs lengths=\(queries, keys\)"):
        mask_blocks(causal)
    with pytest.raises(TypeError, match="a picture is of a bool array"):
        mask_blocks(a[0, 0])


# --- questions ------------------------------------------------------------------------------------------------------

questions = {
    "of values": (lambda s, b, h, q, kv: s + s.numel() + q.dim() + q.ndim + len(q.size()) + s.is_floating_point(), 2),
    "of ints": (lambda s, b, h, q, kv: s + q.is_floating_point() + s.size().numel(), 1),
    "of open tensors": (lambda s, b, h, q, kv: s + batched[b].size(1) + batched[b].ndim + batched[b, h].numel(), 8),
    "of their shapes": (lambda s, b, h, q, kv: s + batched[b].shape[0] + batched[b].dim() + len(batched[b].size()), 6),
    "of rows": (lambda s, b, h, q, kv: s + (batched[b, h] * 2).size(0) + (batched[b, h] * 2).dim(), 4),
    "of whole tensors": (lambda s, b, h, q, kv: s + batched.size(0) + batched.ndim, 5),
    "other shapes of a number": (lambda s, b, h, q, kv: s.view(()).reshape(()).squeeze() + 1, 1),
}


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("about", questions)
def test_questions(about, compile):
    score_mod, added = questions[about]
    attend = torch.compile(flex_attention, fullgraph=True, backend="eager") if compile else flex_attention
    out, aux = attend(x, x, x, score_mod, return_aux=treadle.torch.AuxRequest(lse=True))
    wanted = flex_attention(x, x, x, return_aux=treadle.torch.AuxRequest(lse=True))[1].lse + added
    torch.testing.assert_close(aux.lse, wanted)


@pytest.mark.parametrize("how", ["view", "reshape", "unsqueeze", "flatten", "squeeze"])
def test_rows_keep_their_shape(how):
    with pytest.raises(TraceError, match="a mod changes the shape of a row of values"):
        flex_attention(x, x, x, lambda s, b, h, q, kv: s + getattr(batched[b, h] * 2, how)(0).sum(-1))


def test_relu_for_numpy():
    expected = treadle.attention(a, a, a, lambda s, b, h, q, kv: treadle.where(s <= 0, 0.0, s))
    assert np.array_equal(treadle.attention(a, a, a, lambda s, b, h, q, kv: treadle.relu(s)), expected)


def test_a_value_is_no_end_of_a_range():
    with pytest.raises(TraceError, match="it cannot index a list or end a range"):
        flex_attention(x, x, x, lambda s, b, h, q, kv: s + sum(range(q)))


# --- names ----------------------------------------------------------------------------------------------------------


class Learned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return flex_attention(x, x, x, lambda s, b, h, q, kv: s + self.bias[q])

    def score_mod(self, s, b, h, q, kv):
        return s + self.bias[q]

    def __call__(self, *args):
        return self.score_mod(*args) if len(args) == 5 else super().__call__(*args)


def of_closure():
    slopes = torch.zeros(6)
    return lambda s, b, h, q, kv: s + slopes[q]


def of_a_nested_function():
    inner = of_closure()
    return lambda s, b, h, q, kv: inner(s, b, h, q, kv) * 2


def of_default(s, b, h, q, kv, *, ids=torch.zeros(6)):
    return s + ids[q]


def of_partial(bias, s, b, h, q, kv):
    return s + bias[q]


held = {"first": [torch.zeros(6)], "ids": torch.zeros(6)}
several = [torch.zeros(20), torch.zeros(6)]
named = {
    "table": lambda s, b, h, q, kv: s + table[q],
    "slopes": of_closure(),
    "slopes ": of_a_nested_function(),
    "ids": of_default,
    "argument 0": functools.partial(of_partial, table),
    "bias": functools.partial(of_partial, bias=table),
    "self.bias": Learned().score_mod,
    "self.bias ": Learned(),
    "held['ids']": lambda s, b, h, q, kv: s + held["ids"][q],
    "several[1]": lambda s, b, h, q, kv: s + several[0][q] + several[1][q],
    "c0": lambda s, b, h, q, kv: s + (table * 2)[q],
}


@pytest.mark.parametrize("name", named)
def test_errors_name_what_the_user_named(name):
    mod = named[name]
    if name == "bias":
        mod = lambda s, b, h, q, kv, f=mod: f(s=s, b=b, h=h, q=q, kv=kv)  # noqa: E731
    message = f"score mod: {name.strip()}: index 6 along dimension 0 is outside its length 6, at (b 0, h 0, q 6, kv 0)"
    with pytest.raises(treadle.ModError) as found:
        flex_attention(x, x, x, mod)
    assert str(found.value) == message


def test_errors_of_masks_sequences_and_numpy_name_it():
    ids = torch.arange(6)
    with pytest.raises(treadle.ModError, match="mask: ids: index 6"):
        flex_attention(x, x, x, block_mask=create_block_mask(lambda b, h, q, kv: ids[q] == ids[kv], None, None, 16, 16))
    with pytest.raises(treadle.ModError, match="score mod: ids: index 6"):
        starts = torch.tensor([0, 16])
        packed = x[0].transpose(0, 1)
        treadle.torch.varlen_attention(packed, packed, packed, starts, score_mod=lambda s, b, h, q, kv: s + ids[q])
    captured = treadle.capture(ids.numpy())
    with pytest.raises(treadle.ModError, match="score mod: captured: index 6"):
        treadle.attention(a, a, a, lambda s, b, h, q, kv: s + captured[q])
    with pytest.raises(treadle.ModError, match="score mod: self.bias: index 6"):
        Learned()(x)
