"""treadle.sparse_transformer: what it refuses, word for word."""

import pytest
import torch
import treadle
from treadle.sparse_transformer import (
    SparseAttention,
    attention_impl,
    blocksparse_attention,
    blocksparse_attention_impl,
)
from treadle.torch import flex_attention

fixed = dict(attn_mode="fixed", local_attn_ctx=16, num_verts=2, vertsize=1)
x64 = torch.zeros(1, 64, 8)

wrong_numbers = [  # of configurations, whatever the tensors
    (dict(attn_mode="local", local_attn_ctx=12), treadle.Error, "local_attn_ctx is 12, blocksize 8; 12 is not a multiple of 8"),
    (dict(attn_mode="local"), TypeError, 'attn_mode "local" needs local_attn_ctx, which is not given'),
    (dict(attn_mode="strided"), TypeError, 'attn_mode "strided" needs local_attn_ctx, which is not given'),
    (dict(fixed, local_attn_ctx=None), TypeError, 'attn_mode "fixed" needs local_attn_ctx, which is not given'),
    (dict(fixed, num_verts=None), TypeError, 'attn_mode "fixed" needs num_verts, which is not given'),
    (dict(fixed, vertsize=None), TypeError, 'attn_mode "fixed" needs vertsize, which is not given'),
    (dict(fixed, num_verts=3), treadle.Error, "heads is 4, num_verts 3; 4 is not a multiple of 3"),
    (
        dict(fixed, vertsize=3), treadle.Error,
        "vertsize is 3; a local_attn_ctx of 16 has 2 blocks of 8, vertsize must be at most that",
    ),
    (
        dict(fixed, local_attn_ctx=24, vertsize=2), treadle.Error,
        "the number of blocks in local_attn_ctx is 3, vertsize 2; 3 is not a multiple of 2",
    ),
    (
        dict(fixed, num_verts=4), treadle.Error,
        "num_verts is 4; 2 blocks in a local_attn_ctx of 16 make 2 groups of 1, num_verts must be at most that",
    ),
    (dict(attn_mode="diagonal"), treadle.Error, 'attn_mode is "diagonal"; it must be all, local, strided or fixed'),
    (dict(attn_mode=None), TypeError, "attn_mode is None; it must be a string"),
    (dict(attn_mode="all", heads=0), treadle.Error, "heads is 0; it must be at least 1"),
    (dict(attn_mode="all", heads=4.0), TypeError, "heads is 4.0; it must be an integer"),
    (dict(attn_mode="all", heads=True), TypeError, "heads is True; it must be an integer"),
    (dict(attn_mode="all", heads=None), TypeError, "heads is None; it must be an integer"),
    (dict(attn_mode="all", blocksize=0), treadle.Error, "blocksize is 0; it must be at least 1"),
    (dict(attn_mode="local", local_attn_ctx=0), treadle.Error, "local_attn_ctx is 0; it must be at least 1"),
    (dict(attn_mode="strided", local_attn_ctx=-4), treadle.Error, "local_attn_ctx is -4; it must be at least 1"),
    (dict(fixed, num_verts=0), treadle.Error, "num_verts is 0; it must be at least 1"),
    (dict(fixed, vertsize=0), treadle.Error, "vertsize is 0; it must be at least 1"),
]  # fmt: skip


def says(error, kind, text):
    assert type(error.value) is kind and str(error.value) == text


@pytest.mark.parametrize("how, kind, text", wrong_numbers, ids=str)
def test_wrong_numbers(how, kind, text):
    how = {"heads": 4, "blocksize": 8, **how}
    with pytest.raises(kind) as error:
        blocksparse_attention(x64, x64, x64, recompute=False, **how)
    says(error, kind, "blocksparse_attention: " + text)
    with pytest.raises(kind) as error:
        SparseAttention(**how)
    says(error, kind, "SparseAttention: " + text)


@pytest.mark.parametrize(
    "how, length, text",
    [
        (dict(attn_mode="all"), 60, "the length is 60, blocksize 8; 60 is not a multiple of 8"),
        (dict(attn_mode="local", local_attn_ctx=8), 60, "the length is 60, blocksize 8; 60 is not a multiple of 8"),
        (dict(fixed), 60, "the length is 60, blocksize 8; 60 is not a multiple of 8"),
        (
            dict(attn_mode="strided", local_attn_ctx=16), 64,
            "length / local_attn_ctx is 4, blocksize 8; 4 is not a multiple of 8",
        ),
        (
            dict(attn_mode="strided", local_attn_ctx=128), 64,
            "the length is 64, local_attn_ctx 128; 64 is not a multiple of 128",
        ),
        (dict(attn_mode="strided", local_attn_ctx=3), 64, "the length is 64, local_attn_ctx 3; 64 is not a multiple of 3"),
    ],
)  # fmt: skip
def test_wrong_lengths(how, length, text):
    x = torch.zeros(1, length, 8)
    with pytest.raises(treadle.Error) as error:
        blocksparse_attention(x, x, x, heads=4, blocksize=8, recompute=False, **how)
    says(error, treadle.Error, "blocksparse_attention: " + text)
    with pytest.raises(treadle.Error) as error:
        SparseAttention(heads=4, blocksize=8, **how)(x, x, x)
    says(error, treadle.Error, "SparseAttention: " + text)


def functions():
    def dense(*inputs):
        return attention_impl(*inputs, heads=4, attn_mode="all", recompute=False)

    def sparse(*inputs):
        return blocksparse_attention(*inputs, heads=4, attn_mode="all", recompute=True)

    return {"attention_impl": dense, "blocksparse_attention": sparse, "SparseAttention": SparseAttention(heads=4)}


@pytest.mark.parametrize("name, attend", functions().items())
def test_wrong_tensors(name, attend):
    x = torch.zeros(2, 64, 8)
    for inputs, kind, text in [
        ((x.numpy(), x, x), TypeError, "q is ndarray; it must be a tensor, and all but q, k, v keywords"),
        ((x, x, x[0]), treadle.Error, "v has 2 dimensions; it must have 3: batch, time, heads * dim"),
        ((x, x[:, :, :6], x), treadle.Error, "the width of k is 6, heads 4; 6 is not a multiple of 4"),
        ((x, x[:, :, :4], x), treadle.Error, "q has width 8, k 4; they must be the same"),
        ((x, x[:, :32], x), treadle.Error, "q has batch 2 and length 64, k 2 and 32; they must be the same"),
        ((x, x, x[:1]), treadle.Error, "q has batch 2 and length 64, v 1 and 64; they must be the same"),
        ((x, x, x.double()), treadle.Error, "q is torch.float32, v torch.float64; they must be of one type"),
    ]:
        with pytest.raises(kind) as error:
            attend(*inputs)
        says(error, kind, f"{name}: {text}")
    whole = torch.zeros(2, 64, 8, dtype=torch.int32)
    with pytest.raises(ValueError, match="must be float64, float32, bfloat16 or float16, got torch.int32"):
        attend(whole, whole, whole)
    with pytest.raises(ValueError, match="Treadle runs on the CPU; query, key and value are on meta"):
        attend(*[x.to("meta")] * 3)


@pytest.mark.parametrize(
    "how, kind, text",
    [
        (
            dict(attn_mode="fixed", local_attn_ctx=16), treadle.Error,
            'attn_mode is "fixed"; it must be all, local or strided; blocksparse_attention has it',
        ),
        (dict(attn_mode="diagonal"), treadle.Error, 'attn_mode is "diagonal"; it must be all, local or strided'),
        (dict(attn_mode="local"), TypeError, 'attn_mode "local" needs local_attn_ctx, which is not given'),
        (dict(attn_mode="strided"), TypeError, 'attn_mode "strided" needs local_attn_ctx, which is not given'),
        (dict(attn_mode="local", local_attn_ctx=0), treadle.Error, "local_attn_ctx is 0; it must be at least 1"),
        (dict(attn_mode="local", local_attn_ctx=2.5), TypeError, "local_attn_ctx is 2.5; it must be an integer"),
    ],
)  # fmt: skip
def test_errors_of_attention_impl(how, kind, text):
    with pytest.raises(kind) as error:
        attention_impl(x64, x64, x64, heads=4, recompute=False, **how)
    says(error, kind, "attention_impl: " + text)


def test_keywords_are_needed():
    assert blocksparse_attention_impl is blocksparse_attention
    for attend in (attention_impl, blocksparse_attention):
        with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'recompute'"):
            attend(x64, x64, x64, heads=4, attn_mode="all")
        with pytest.raises(TypeError, match="takes 3 positional arguments"):
            attend(x64, x64, x64, 4, "all", recompute=False)
        with pytest.raises(TypeError, match="unexpected keyword argument 'dropout'"):
            attend(x64, x64, x64, heads=4, attn_mode="all", dropout=0.1, recompute=False)


def test_numbers_that_a_mode_does_not_need_change_nothing():
    """As in the original."""
    x = torch.randn(1, 64, 8)
    plain_call = SparseAttention(heads=4)(x, x, x)
    assert torch.equal(SparseAttention(heads=4, local_attn_ctx=5, num_verts=3, vertsize=7)(x, x, x), plain_call)
    split = [t.unflatten(2, (4, 2)).transpose(1, 2) for t in (x, x, x)]
    mask = treadle.torch.create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 64, 64)
    assert torch.equal(flex_attention(*split, block_mask=mask).transpose(1, 2).flatten(2), plain_call)
