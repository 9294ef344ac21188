"""varlen_attention: packed and nested sequences have the bits of calls of their own, and the gradients of torch's SDPA."""

import pytest
import torch
import torch._dynamo.testing
from torch.nn.functional import scaled_dot_product_attention

import treadle
from treadle.torch import AuxRequest, create_block_mask, flex_attention, varlen_attention

# queries and keys of each sequence: training, a chunk of a prompt, a token, nothing to ask, nothing at all
LENGTHS = [(40, 40), (7, 90), (1, 133), (0, 5), (0, 0), (1, 1)]
BOTH = AuxRequest(lse=True, max_scores=True)


def window(b, h, q, kv):
    return (q >= kv) & (q - kv < 50)


def starts_of(counts, dtype=torch.int32):
    return torch.tensor([0, *counts]).cumsum(0).to(dtype)


def batch(lengths=LENGTHS, heads=4, key_heads=2, dim=16, dtype=torch.float32, grad=False):
    """q, k, v, cu_seqlens_q, cu_seqlens_k"""
    q_starts, k_starts = starts_of([q for q, _ in lengths]), starts_of([k for _, k in lengths], torch.int64)
    q = torch.randn(int(q_starts[-1]), heads, dim, dtype=dtype)
    k, v = (torch.randn(int(k_starts[-1]), key_heads, dim, dtype=dtype) for _ in range(2))
    return *[t.requires_grad_(grad) for t in (q, k, v)], q_starts, k_starts


def alone(q, k, v, q_starts, k_starts):
    """For each sequence q, k, v of a plain call, and where its rows are."""
    for s in range(len(q_starts) - 1):
        queries, keys = slice(q_starts[s], q_starts[s + 1]), slice(k_starts[s], k_starts[s + 1])
        yield queries, [t[rows].transpose(0, 1).unsqueeze(0) for t, rows in ((q, queries), (k, keys), (v, keys))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_of_calls_of_its_sequences(dtype):
    tensors = batch(dtype=dtype)
    slopes, sinks = torch.randn(4), torch.randn(4)

    def score_mod(score, b, h, q, kv):
        return score + slopes[h] * (kv - q)

    out, aux = varlen_attention(
        *tensors, score_mod=score_mod, mask_mod=window, scale=0.3, enable_gqa=True, sinks=sinks, return_aux=BOTH
    )
    assert out.dtype == dtype and aux.lse.shape == (49, 4)
    for rows, (q, k, v) in alone(*tensors):
        own, own_aux = flex_attention(
            q, k, v, score_mod, window, scale=0.3, enable_gqa=True, sinks=sinks, q_offset=k.shape[2] - q.shape[2],
            return_aux=BOTH,
        )  # fmt: skip
        for a, b in ((out, own), (aux.lse, own_aux.lse), (aux.max_scores, own_aux.max_scores)):
            assert torch.equal(a[rows].transpose(0, 1), b[0])


def test_b_is_the_number_of_the_sequence():
    tensors = batch([(2, 3), (1, 5), (4, 4)])
    table = torch.tensor([3, 0, 7])
    seen = varlen_attention(*tensors, score_mod=lambda s, b, h, q, kv: s + table[b] * (h + kv), enable_gqa=True)
    for s, (rows, inputs) in enumerate(alone(*tensors)):
        own = flex_attention(*inputs, lambda score, b, h, q, kv: score + int(table[s]) * (h + kv), enable_gqa=True)
        torch.testing.assert_close(seen[rows].transpose(0, 1), own[0])


@pytest.mark.parametrize(
    "causal, size", [(False, (-1, -1)), (True, (-1, -1)), (True, (7, -1)), (False, (3, 2)), (False, (-1, 4))]
)
def test_masks_are_aligned_at_the_bottom_right(causal, size):
    """Also of sequences with more queries than keys, as flash-attention's are."""
    lengths = [(5, 12), (12, 5), (9, 9), (3, 0)]
    tensors = batch(lengths, heads=2, dtype=torch.float64)
    seen, aux = varlen_attention(*tensors, causal=causal, window_size=size, return_aux=AuxRequest(lse=True))
    for (queries, keys), (rows, (q, k, v)) in zip(lengths, alone(*tensors)):
        distance = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
        visible = torch.ones(queries, keys, dtype=torch.bool)
        if size[0] >= 0:
            visible &= distance <= size[0]
        if causal or size[1] >= 0:
            visible &= -distance <= (0 if causal else size[1])
        scores = (q @ k.transpose(-1, -2) / 4).masked_fill(~visible, -torch.inf)
        torch.testing.assert_close(seen[rows].transpose(0, 1), scores.softmax(-1).nan_to_num(0)[0] @ v[0])
        torch.testing.assert_close(aux.lse[rows].transpose(0, 1), scores.logsumexp(-1)[0])


def test_gradients_are_those_of_the_sequences():
    tensors = batch(grad=True)
    slopes, sinks = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)

    def score_mod(score, b, h, q, kv):
        return score + slopes[h] * (kv - q)

    how = dict(score_mod=score_mod, enable_gqa=True, sinks=sinks, return_aux=AuxRequest(lse=True))
    out, aux = varlen_attention(*tensors, mask_mod=window, **how)
    dout, dlse = torch.randn_like(out), torch.randn_like(aux.lse)
    leaves = (*tensors[:3], slopes, sinks)
    seen = torch.autograd.grad((out, aux.lse), leaves, (dout, dlse))
    total = [torch.zeros_like(t) for t in leaves]
    for rows, (q, k, v) in alone(*tensors):
        own, own_aux = flex_attention(q, k, v, block_mask=window, q_offset=k.shape[2] - q.shape[2], **how)
        given = [t[rows].transpose(0, 1).unsqueeze(0) for t in (dout, dlse)]
        for sum_, g in zip(total, torch.autograd.grad((own, own_aux.lse), leaves, given)):
            sum_ += g
    for i, (a, b) in enumerate(zip(seen, total)):
        if i < 3:
            assert torch.equal(a, b)
        torch.testing.assert_close(a, b)


def test_gradients_of_sdpa():
    lengths = [(13, 13), (30, 30), (1, 1), (0, 0)]
    tensors = batch(lengths, dtype=torch.float64, grad=True)
    out = varlen_attention(*tensors, causal=True, enable_gqa=True)
    dout = torch.randn_like(out)
    parts = [
        scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True)[0].transpose(0, 1)
        for _, inputs in alone(*tensors)
        if inputs[0].shape[2]
    ]
    expected = torch.cat(parts)
    torch.testing.assert_close(out, expected)
    for a, b in zip(*(torch.autograd.grad(x, tensors[:3], dout) for x in (out, expected))):
        torch.testing.assert_close(a, b)


def test_gradcheck():
    lengths = [(2, 3), (3, 2), (0, 1)]
    q, k, v, q_starts, k_starts = batch(lengths, heads=2, key_heads=1, dim=3, dtype=torch.float64, grad=True)
    bias, sinks = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (3, 2))

    def call(q, k, v, bias, sinks):
        out, aux = varlen_attention(
            q, k, v, q_starts, k_starts, score_mod=lambda s, b, h, q, kv: s * 2 + bias[kv],
            mask_mod=lambda b, h, q, kv: q != kv, enable_gqa=True, sinks=sinks, q_offset=0, return_aux=AuxRequest(lse=True),
        )  # fmt: skip
        return out, aux.lse

    assert torch.autograd.gradcheck(call, (q, k, v, bias, sinks))


def test_starts_that_change_before_backward_are_noticed():
    q, k, v, q_starts, k_starts = batch(grad=True)
    out = varlen_attention(q, k, v, q_starts, k_starts, causal=True, enable_gqa=True)
    q_starts[1] -= 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_any_strides_and_keys_of_eight_bits():
    q, k, v, q_starts, k_starts = batch()
    wanted = varlen_attention(q, k, v, q_starts, k_starts, causal=True, enable_gqa=True)
    turned = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in (q, k, v)]
    seen = varlen_attention(*turned, q_starts, k_starts, causal=True, enable_gqa=True)
    assert torch.equal(seen, wanted) and seen.stride() == turned[0].stride()
    k, v = (t.to(torch.float8_e4m3fn) for t in (k, v))
    seen = varlen_attention(q, k, v, q_starts, k_starts, causal=True, enable_gqa=True)
    assert torch.equal(seen, varlen_attention(q, k.float(), v.float(), q_starts, k_starts, causal=True, enable_gqa=True))


def nested(packed, starts, heads_first):
    t = torch.nested.nested_tensor_from_jagged(packed, starts)
    return t.transpose(1, 2) if heads_first else t


@pytest.mark.parametrize("heads_first", [False, True])
def test_nested_tensors(heads_first):
    q, k, v, q_starts, k_starts = batch([(3, 8), (5, 5), (0, 2)], grad=True)
    wanted, wanted_aux = varlen_attention(q, k, v, q_starts, k_starts, causal=True, enable_gqa=True, return_aux=BOTH)
    inputs = [nested(t, s, heads_first) for t, s in ((q, q_starts), (k, k_starts), (v, k_starts))]
    out, aux = varlen_attention(*inputs, causal=True, enable_gqa=True, return_aux=BOTH)
    assert out.is_nested and out.shape[0] == 3 and out._ragged_idx == (2 if heads_first else 1)
    assert torch.equal(out.values() if not heads_first else out.transpose(1, 2).values(), wanted)
    lse = aux.lse.transpose(1, 2) if heads_first else aux.lse
    assert torch.equal(lse.values(), wanted_aux.lse)
    dout = torch.randn_like(wanted)
    packed = (out.transpose(1, 2) if heads_first else out).values()
    for a, b in zip(*(torch.autograd.grad(x, (q, k, v), dout) for x in (packed, wanted))):
        assert torch.equal(a, b)


def test_a_nested_tensor_that_requires_grad():
    parts = [torch.randn(n, 2, 8) for n in (3, 5, 1)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
    out = varlen_attention(x, x, x, causal=True) + x  # of the same lengths, as torch knows
    out.values().square().sum().backward()
    y = torch.cat(parts).requires_grad_()
    (varlen_attention(y, y, y, torch.tensor([0, 3, 8, 9]), causal=True) + y).square().sum().backward()
    torch.testing.assert_close(x.grad.values(), y.grad)


def test_a_nested_tensor_with_holes():
    values = torch.randn(10, 2, 8)
    holes = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 4, 10]), lengths=torch.tensor([3, 5]))
    out = varlen_attention(holes, holes, holes)
    kept = torch.cat([values[:3], values[4:9]])
    assert torch.equal(out.values(), varlen_attention(kept, kept, kept, torch.tensor([0, 3, 8])))


def test_compiled():
    """One graph for all lengths and starts, with gradients."""
    torch._dynamo.reset()
    slopes = torch.randn(4, requires_grad=True)

    def step(q, k, v, q_starts, k_starts):
        out, aux = varlen_attention(
            q, k, v, q_starts, k_starts, score_mod=lambda s, b, h, q, kv: s + slopes[h] * (kv - q), causal=True,
            enable_gqa=True, return_aux=AuxRequest(lse=True),
        )  # fmt: skip
        return out.square().sum() + aux.lse.sum()

    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, backend=graphs, fullgraph=True, dynamic=True)
    for lengths in ([(7, 9), (20, 30)], [(1, 40), (2, 3), (5, 5)]):
        tensors = batch(lengths, grad=True)
        leaves = (*tensors[:3], slopes)
        seen, wanted = compiled(*tensors), step(*tensors)
        assert torch.equal(seen, wanted)
        for a, b in zip(*(torch.autograd.grad(x, leaves) for x in (seen, wanted))):
            assert torch.equal(a, b)
    assert graphs.frame_count == 1


def test_the_operation_passes_torchs_own_checks():
    q, k, v, *starts = batch([(2, 3), (3, 3)], grad=True)
    slopes = torch.randn(4, requires_grad=True)
    mods = ("score + c0[h]", "q >= kv")
    arguments = (q, k, v, [slopes, *starts], *mods, *mods, "", [], [], None, False, [], [], True, False, 0.0)
    torch.library.opcheck(
        torch.ops.treadle.attention.default, arguments,
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )  # fmt: skip


def test_what_is_refused():
    q, k, v, q_starts, k_starts = batch([(2, 4), (3, 3)], key_heads=4)

    def refused(error, match, q=q, k=k, v=v, q_starts=q_starts, k_starts=k_starts, **more):
        with pytest.raises(error, match=match):
            varlen_attention(q, k, v, q_starts, k_starts, **more)

    refused(TypeError, "cu_seqlens_q must be a tensor, got list", q_starts=[0, 2, 5])
    refused(TypeError, "cu_seqlens_q must be a tensor, got NoneType", q_starts=None)
    refused(treadle.Error, r"forward: q has shape \[5, 64\]; it must be \[queries, heads, dim\]", q=q.flatten(1))
    refused(treadle.Error, "forward: q_starts begins with 1; it must begin with 0", q_starts=q_starts + 1)
    refused(treadle.Error, "forward: k_starts ends with 5, there are 7 keys; they must be equal", k_starts=q_starts)
    refused(treadle.Error, "q_starts is for 1 sequences, k_starts for 2", q_starts=torch.tensor([0, 5]))
    refused(treadle.Error, "q_starts holds f32", q_starts=q_starts.float())
    refused(treadle.Error, "k_starts holds f32", q_starts=torch.tensor([0, 5, 5]), k_starts=k_starts.float())
    refused(ValueError, "different numbers of heads, 4 and 2; set enable_gqa=True", k=k[:, :2], v=v[:, :2])
    refused(treadle.Error, "4 heads, keys 3", k=k[:, :3], v=v[:, :3], enable_gqa=True)
    refused(ValueError, r"window_size is \(-2, 0\)", window_size=(-2, 0))
    refused(TypeError, "mask_mod must be a function of b, h, q and kv, got BlockMask",
            mask_mod=create_block_mask(window, None, None, 5, 7))  # fmt: skip
    refused(treadle.Error, "sequence 0 has 3 queries and 2 keys; queries are the last positions of a sequence unless q_offs",
            q_starts=torch.tensor([0, 3, 5]), k_starts=torch.tensor([0, 2, 7]), mask_mod=window)  # fmt: skip
    refused(treadle.Error, "there are 3 q_offsets, and 2 sequences", q_offset=[1, 2, 3])
    refused(ValueError, "query must be float64, float32, bfloat16 or float16, got torch.int64", q=q.long())
    mask = torch.ones(4, requires_grad=True)
    refused(AssertionError, "a mask has no gradient", mask_mod=lambda b, h, q, kv: mask[h] > 0)
    jagged = torch.nested.nested_tensor_from_jagged(q, q_starts)
    refused(ValueError, "nested tensors know where their sequences begin", q=jagged, k=jagged, v=jagged)
    refused(TypeError, "key is a tensor of layout torch.strided", q=jagged, q_starts=None, k_starts=None)
    other = torch.nested.nested_tensor_from_jagged(v, k_starts)
    none = dict(q_starts=None, k_starts=None)
    refused(ValueError, "key and value are nested with different lengths", q=jagged, k=jagged, v=other, **none)
    flat = torch.nested.nested_tensor_from_jagged(q.flatten(1), q_starts)
    refused(ValueError, "query is nested with 3 dimensions", q=flat, k=flat, v=flat, **none)
    with pytest.raises(NotImplementedError, match="varlen_attention takes those of layout torch.jagged"):
        flex_attention(jagged, jagged, jagged)
