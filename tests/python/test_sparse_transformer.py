"""treadle.sparse_transformer: the results and gradients of openai/sparse_attention's two functions."""

import copy
import dataclasses
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from policy import close
from treadle import _program, sparse_transformer
from treadle.sparse_transformer import SparseAttention, attention_impl, blocksparse_attention
from treadle.torch import create_mask, or_masks


def plain_mask(mode, n, heads, L=None, blocksize=32, num_verts=None, vertsize=None):
    """[heads, n, n], pair by pair; `fixed` by blocks, as the original lists them."""
    q, k = torch.arange(n)[:, None], torch.arange(n)
    if mode == "fixed":
        S = L // blocksize
        columns = list(range(S - 1, -1, -1))
        groups = [columns[i : i + vertsize] for i in range(0, S, vertsize)]
        Q, K = q // blocksize, k // blocksize
        of_head = [torch.isin(K % S, torch.tensor(groups[h % num_verts])) for h in range(heads)]
        return torch.stack([(k <= q) & ((K // S == Q // S) | seen) for seen in of_head])
    visible = k <= q
    if mode == "local":
        visible = visible & (q - k < L)
    if mode == "strided":
        visible = visible & ((q - k) % L == 0)
    return visible.expand(heads, n, n)


def plain(q, k, v, heads, mask):
    """The definition, in the tensors' own type."""
    q, k, v = [x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (q, k, v)]
    scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~mask, -torch.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)


def tensors(batch, n, width, dtype=torch.float32, of_values=None):
    widths = (width, width, of_values or width)
    return [torch.randn(batch, n, w, dtype=torch.float64).to(dtype).requires_grad_() for w in widths]


def results(f, inputs, dout):
    out = f(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs, dout.to(out.dtype))]


def check(f, inputs, heads, mask):
    """Result and gradients against the definition in float64, as near as the definition in the inputs' type."""
    gold_inputs = [x.detach().double().requires_grad_() for x in inputs]
    dout = torch.randn_like(inputs[2])
    gold = results(lambda *x: plain(*x, heads, mask), gold_inputs, dout)
    ref = results(lambda *x: plain(*x, heads, mask), inputs, dout)
    for name, x, g, r in zip(("out", "dq", "dk", "dv"), results(f, inputs, dout), gold, ref):
        close(x, g, r, what=name)


dtypes = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
dense = [("all", None), ("local", 7), ("local", 1), ("local", 500), ("strided", 7), ("strided", 1), ("strided", 500)]
blocks = [  # mode, length, blocksize, and what the mode needs
    ("all", 96, 32, {}),
    ("local", 96, 32, dict(local_attn_ctx=32)),
    ("local", 64, 8, dict(local_attn_ctx=24)),
    ("strided", 64, 8, dict(local_attn_ctx=8)),
    ("strided", 64, 16, dict(local_attn_ctx=2)),
    ("fixed", 96, 8, dict(local_attn_ctx=32, num_verts=3, vertsize=1)),
    ("fixed", 80, 8, dict(local_attn_ctx=32, num_verts=1, vertsize=2)),  # the last window is cut
    ("fixed", 48, 8, dict(local_attn_ctx=20, num_verts=1, vertsize=1)),  # a window of two whole blocks
]
some = [blocks[0], blocks[1], blocks[3], blocks[5]]


def mask_of(mode, n, heads, blocksize, need):
    L, verts, size = need.get("local_attn_ctx"), need.get("num_verts"), need.get("vertsize")
    return plain_mask(mode, n, heads, L, blocksize, verts, size)


@pytest.mark.parametrize("dtype", dtypes, ids=str)
@pytest.mark.parametrize("mode, L", dense)
def test_attention_impl(mode, L, dtype):
    inputs = tensors(3, 37, 15, dtype)

    def attend(q, k, v):
        return attention_impl(q, k, v, heads=5, attn_mode=mode, local_attn_ctx=L, recompute=False)

    check(attend, inputs, 5, plain_mask(mode, 37, 5, L))


@pytest.mark.parametrize("dtype", dtypes, ids=str)
@pytest.mark.parametrize("mode, n, b, need", blocks)
def test_blocksparse_attention(mode, n, b, need, dtype):
    inputs = tensors(2, n, 24, dtype)

    def attend(q, k, v):
        return blocksparse_attention(q, k, v, heads=3, attn_mode=mode, blocksize=b, recompute=False, **need)

    check(attend, inputs, 3, mask_of(mode, n, 3, b, need))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("mode, n, b, need", some)
def test_gradcheck(mode, n, b, need, recompute):
    attend = SparseAttention(heads=3, attn_mode=mode, blocksize=b, recompute=recompute, **need)
    inputs = tensors(1, n, 3, torch.float64)
    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)


def test_values_may_have_a_width_of_their_own():
    inputs = tensors(2, 64, 12, of_values=20)
    attend = SparseAttention(heads=4, attn_mode="local", local_attn_ctx=32)
    assert attend(*inputs).shape == (2, 64, 20)
    check(attend, inputs, 4, plain_mask("local", 64, 4, 32))


def test_parts_of_one_projection():
    """Of any strides; the result has its heads beside each other."""
    qkv = torch.randn(2, 64, 72)
    q, k, v = qkv.split(24, dim=2)
    attend = SparseAttention(heads=3, attn_mode="strided", local_attn_ctx=2)
    out = attend(q, k, v)
    assert out.is_contiguous() and torch.equal(out, attend(q.contiguous(), k.contiguous(), v.contiguous()))


@pytest.mark.parametrize("mode, n, b, need", some)
def test_what_is_invisible_has_no_effect(mode, n, b, need):
    """Even where it is NaN: the first query sees its own key alone."""
    attend = SparseAttention(heads=3, attn_mode=mode, blocksize=b, **need)
    q, k, v = tensors(1, n, 6)
    bad = [torch.cat((x[:, :1], torch.full_like(x[:, 1:], torch.nan)), 1) for x in (k, v)]
    first, other = attend(q, k, v)[:, 0], attend(q, *bad)[:, 0]
    assert torch.equal(first, other)
    (of_first,), (of_other,) = [torch.autograd.grad(out.sum(), q) for out in (first, other)]
    assert torch.equal(of_first[:, 0], of_other[:, 0])


@pytest.mark.parametrize("shape", [(0, 32, 6), (2, 0, 6)])
def test_nothing(shape):
    x = torch.zeros(shape, requires_grad=True)
    for recompute in (False, True):
        out = blocksparse_attention(x, x, x, heads=3, attn_mode="all", recompute=recompute)
        assert out.shape == shape
        out.sum().backward()


# --- cases worked out by hand -----------------------------------------------------------------------------------------


def means(attend, n, heads=1):
    """By head: equal weights and the positions as values give the mean of the visible positions."""
    zeros = torch.zeros(1, n, heads, dtype=torch.float64)
    v = torch.arange(n, dtype=torch.float64).view(1, n, 1).expand(1, n, heads)
    return attend(zeros, zeros, v)[0].T


def one_head(mode, b, **need):
    return SparseAttention(heads=1, attn_mode=mode, blocksize=b, **need)


def equals(values, expected):
    torch.testing.assert_close(values, torch.tensor([float(Fraction(x)) for x in expected], dtype=torch.float64))


def test_means_of_all_and_local():
    equals(means(one_head("all", 4), 16)[0], [Fraction(q, 2) for q in range(16)])
    local = means(one_head("local", 4, local_attn_ctx=4), 16)[0]
    equals(local, [0, "1/2", 1, "3/2"] + [q - Fraction(3, 2) for q in range(4, 16)])
    equals(means(one_head("local", 4, local_attn_ctx=8), 16)[0][7:], [q - Fraction(7, 2) for q in range(7, 16)])


def test_means_of_strided():
    equals(means(one_head("strided", 4, local_attn_ctx=4), 16)[0], [0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 8, 9])
    equals(means(one_head("strided", 2, local_attn_ctx=8), 16)[0], [*range(8), *range(4, 12)])


def test_means_of_fixed():
    first = means(one_head("fixed", 4, local_attn_ctx=8, num_verts=1, vertsize=1), 16)[0]
    equals(first, [Fraction(q, 2) for q in range(8)] + [6 + Fraction(q, 2) for q in range(8)])
    two = SparseAttention(heads=2, attn_mode="fixed", blocksize=4, local_attn_ctx=8, num_verts=2, vertsize=1)
    head0, head1 = means(two, 16, 2)
    assert torch.equal(head0, first)
    equals(head1[8:], ["14/5", "23/6", "33/7", "11/2", "56/9", "69/10", "83/11", "49/6"])
    head0, head1 = means(dataclasses.replace(two, blocksize=2), 16, 2)
    equals(head0[8:], [7 + Fraction(q, 2) for q in range(8)])
    equals(head1[8:], ["17/3", "13/2", "36/5", "47/6", "59/7", 9, "86/9", "101/10"])


def test_weights_of_given_scores():
    """Scores k / 2: row 8 of "all"."""
    q = torch.ones(1, 16, 4, dtype=torch.float64)
    k = torch.arange(16, dtype=torch.float64).view(1, 16, 1) * torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    v = torch.eye(16, dtype=torch.float64)[None]
    weights = blocksparse_attention(q, k, v, heads=1, attn_mode="all", blocksize=8, recompute=False)[0]
    row = [0.00729, 0.01202, 0.01981, 0.03266, 0.05385, 0.08878, 0.14638, 0.24133, 0.39789]
    torch.testing.assert_close(weights[8, :9], torch.tensor(row, dtype=torch.float64), atol=5e-6, rtol=0)
    assert torch.equal(weights.triu(1), torch.zeros(16, 16, dtype=torch.float64))


def rows_of_blocks(attend, n):
    """Blocks with a visible pair, by head, as text."""
    visible = create_mask(attend.mask_mod, 1, attend.heads, n, n)[0]
    b = attend.blocksize
    present = visible.unflatten(2, (-1, b)).unflatten(1, (-1, b)).any(4).any(2)
    return ["|".join("".join(".#"[int(x)] for x in row) for row in head) for head in present]


def test_blocks_of_fixed():
    how = dict(attn_mode="fixed", blocksize=4, local_attn_ctx=16, vertsize=1)
    four = rows_of_blocks(SparseAttention(heads=4, num_verts=4, **how), 32)
    start = "#.......|##......|###.....|####....|"
    assert four == [
        start + "...##...|...###..|...####.|...#####", start + "..#.#...|..#.##..|..#.###.|..#.####",
        start + ".#..#...|.#..##..|.#..###.|.#..####", start + "#...#...|#...##..|#...###.|#...####",
    ]  # fmt: skip
    assert rows_of_blocks(SparseAttention(heads=4, num_verts=1, **how), 32) == [four[0]] * 4
    pairs = rows_of_blocks(SparseAttention(heads=4, num_verts=2, **{**how, "vertsize": 2}), 32)
    assert pairs[0] == pairs[2] and pairs[0].split("|")[4::3] == ["..###...", "..######"]
    assert pairs[1] == pairs[3] and pairs[1].split("|")[4::3] == ["##..#...", "##..####"]
    two = SparseAttention(heads=2, attn_mode="fixed", blocksize=8, local_attn_ctx=16, num_verts=2, vertsize=1)
    assert rows_of_blocks(two, 48) == [
        "#.....|##....|.##...|.###..|.#.##.|.#.###", "#.....|##....|#.#...|#.##..|#.#.#.|#.#.##"
    ]  # fmt: skip


# --- recompute --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode, n, b, need", some)
def test_recompute_gives_the_same_bits(mode, n, b, need):
    inputs, dout = tensors(2, n, 24), torch.randn(2, n, 24)
    attend = SparseAttention(heads=3, attn_mode=mode, blocksize=b, **need)
    again = dataclasses.replace(attend, recompute=True)
    for a, b in zip(results(attend, inputs, dout), results(again, inputs, dout)):
        assert torch.equal(a, b)


def kept_by(attend, *inputs):
    """Addresses of the memory that autograd keeps."""
    kept = []

    def pack(x):
        kept.append(x.untyped_storage().data_ptr())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = attend(*inputs)
    out.sum().backward()
    return set(kept)


def test_recompute_keeps_nothing_but_the_inputs():
    inputs = tensors(2, 64, 12)
    own = {x.untyped_storage().data_ptr() for x in inputs}
    attend = SparseAttention(heads=3, attn_mode="local", local_attn_ctx=32)
    assert kept_by(attend, *inputs) > own
    assert kept_by(dataclasses.replace(attend, recompute=True), *inputs) == own


@pytest.mark.parametrize("needed", ["q", "k", "v", "qv"])
def test_recompute_for_some_gradients(needed):
    inputs = [x.detach().requires_grad_(name in needed) for name, x in zip("qkv", tensors(1, 32, 6))]
    leaves = [x for x in inputs if x.requires_grad]
    got = []
    for recompute in (False, True):
        attend = SparseAttention(heads=3, recompute=recompute)
        got.append(torch.autograd.grad(attend(*inputs).square().sum(), leaves))
    assert all(map(torch.equal, *got))


def test_recompute_notices_changed_inputs():
    q, k, v = [2 * x for x in tensors(1, 32, 6)]
    out = attention_impl(q, k, v, heads=3, attn_mode="all", recompute=True)
    with torch.no_grad():
        k.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_recompute_has_no_second_derivative():
    inputs = tensors(1, 32, 6)
    out = attention_impl(*inputs, heads=3, attn_mode="all", recompute=True)
    (dq,) = torch.autograd.grad(out.square().sum(), inputs[:1], create_graph=True)
    with pytest.raises(NotImplementedError, match="differentiated once"):
        dq.sum().backward()


@pytest.mark.parametrize("recompute", [False, True])
def test_other_entries_of_torch(recompute):
    """torch.func, autocast, gradients with torch's negative bit: the bits of a plain call."""
    attend = SparseAttention(heads=3, attn_mode="strided", local_attn_ctx=2, recompute=recompute)
    q, k, v = [x.detach() for x in tensors(1, 64, 6)]
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = attend(*leaves)
    dout = torch.view_as_complex(torch.randn(1, 64, 6, 2)).conj().imag
    assert dout.is_neg()
    plain_dout = dout.resolve_neg()
    expected = torch.autograd.grad(out, leaves, plain_dout, retain_graph=True)
    assert all(map(torch.equal, torch.autograd.grad(out, leaves, dout), expected))

    result, pull = torch.func.vjp(attend, q, k, v)
    assert torch.equal(result, out) and all(map(torch.equal, pull(plain_dout), expected))

    with torch.autocast("cpu", torch.bfloat16):
        cast = attend(*leaves)
    half = [x.bfloat16() for x in leaves]
    assert cast.dtype == torch.bfloat16 and torch.equal(cast, attend(*half))
    wanted = torch.autograd.grad(attend(*half), half, plain_dout.bfloat16())
    got = torch.autograd.grad(cast, leaves, plain_dout.bfloat16())
    assert all(torch.equal(a, b.float()) for a, b in zip(got, wanted))


# --- the same arguments, the same function ----------------------------------------------------------------------------

strided = SparseAttention(heads=4, attn_mode="strided", local_attn_ctx=8, blocksize=8)


def test_configurations_are_values():
    same = SparseAttention(blocksize=np.int64(8), local_attn_ctx=8, attn_mode="strided", heads=np.int32(4))
    assert same == strided and hash(same) == hash(strided) and repr(same) == repr(strided)
    assert same.mask_mod == strided.mask_mod and hash(same.mask_mod) == hash(strided.mask_mod)
    assert eval(repr(strided)) == strided
    for copied in (pickle.loads(pickle.dumps(strided)), copy.copy(strided), copy.deepcopy(strided)):
        assert copied == strided and hash(copied) == hash(strided)
    with pytest.raises(dataclasses.FrozenInstanceError):
        strided.heads = 2


def test_other_numbers_are_other_configurations():
    others = [
        dataclasses.replace(strided, **change)
        for change in (dict(heads=8), dict(attn_mode="local"), dict(local_attn_ctx=16), dict(blocksize=4), dict(recompute=True))
    ]
    assert len({strided, *others}) == 6
    # Equal fields, another pattern.
    assert strided.mask_mod != dataclasses.replace(strided, attn_mode="local").mask_mod


def test_equal_configurations_share_kernels_and_layouts():
    sparse_transformer._kept_mask.cache_clear()
    x = tensors(2, 64, 16)
    for recompute in (False, True):
        dataclasses.replace(strided, recompute=recompute)(*x).sum().backward()
    kernels, masks = _program._function.cache_info(), sparse_transformer._kept_mask.cache_info()
    for recompute in (False, True):
        again = pickle.loads(pickle.dumps(dataclasses.replace(strided, recompute=recompute)))
        again(*x).sum().backward()
        how = dict(heads=4, attn_mode="strided", local_attn_ctx=8)
        blocksparse_attention(*x, **how, blocksize=8, recompute=recompute).sum().backward()
        attention_impl(*x, **how, recompute=recompute).sum().backward()
    assert _program._function.cache_info().misses == kernels.misses
    assert sparse_transformer._kept_mask.cache_info().misses == masks.misses
    (kept,) = sparse_transformer._kept_mask(strided.mask_mod, 64).layouts._kept.values()
    strided(*x)
    (after,) = sparse_transformer._kept_mask(strided.mask_mod, 64).layouts._kept.values()
    assert after[3] is kept[3]


def test_another_window_makes_no_kernel():
    x = torch.randn(1, 64, 16)
    SparseAttention(heads=4, attn_mode="local", local_attn_ctx=32)(x, x, x)
    misses = _program._function.cache_info().misses
    SparseAttention(heads=4, attn_mode="local", local_attn_ctx=64)(x, x, x)
    assert _program._function.cache_info().misses == misses


@pytest.mark.parametrize("shapes", [[(2, 64, 8), (2, 6, 48), (26, 4, 8)], [(1, 12, 4), (11, 2, 4)]], ids=str)
def test_shapes_that_the_original_confuses(shapes):
    """Written without separators, or cut, their numbers are the same."""
    for shape in shapes:
        inputs = tensors(*shape)

        def attend(q, k, v):
            return attention_impl(q, k, v, heads=2, attn_mode="all", recompute=True)

        check(attend, inputs, 2, plain_mask("all", shape[1], 2))


def test_patterns_combine():
    """Figure 3b of the paper in one head."""
    local = SparseAttention(heads=2, attn_mode="local", local_attn_ctx=8, blocksize=8)
    both = or_masks(local.mask_mod, strided.mask_mod)
    expected = plain_mask("local", 64, 1, 8) | plain_mask("strided", 64, 1, 8)
    assert torch.equal(create_mask(both, 1, 1, 64, 64)[0], expected)
