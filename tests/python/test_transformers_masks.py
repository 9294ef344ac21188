"""What models of transformers hand to their attention beside q, k and v: masks of any shape, lists of keys, flags."""

import logging

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

transformers = pytest.importorskip("transformers")

from architectures import few, inputs_of, made, others, pair_of  # noqa: E402

from treadle.integrations import transformers as integration  # noqa: E402

integration.register()
attend = integration.attention_forward


class Layer(torch.nn.Module):
    """Of a model that is not there."""


def named(name):
    return next(a for a in few + others if a.config == name)


def reference(q, k, v, visible, bias=None):
    bias = torch.zeros(()) if bias is None else bias
    return sdpa(q, k, v, torch.where(visible, bias, -float("inf"))).transpose(1, 2)


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return [torch.randn(2, 4, n, 16) for n in (7, 9, 9)]


shapes = [(2, 4, 7, 9), (2, 1, 1, 9), (1, 1, 7, 9), (1, 4, 7, 1), (2, 1, 7, 1), (7, 9), (4, 7, 9), (9,), (1, 1, 1, 1)]


@pytest.mark.parametrize("shape", shapes, ids=str)
def test_masks_of_any_broadcast(qkv, shape):
    shown = torch.rand(shape) > 0.3
    shown[..., 0] = True
    out, _ = attend(Layer(), *qkv, shown)
    torch.testing.assert_close(out, reference(*qkv, shown.expand(2, 4, 7, 9)))
    bias = torch.randn(shape, requires_grad=True)
    out, _ = attend(Layer(), *qkv, bias)
    expected = reference(*qkv, torch.tensor(True), bias)
    torch.testing.assert_close(out, expected)
    weights = torch.randn(out.shape)
    ours, theirs = (torch.autograd.grad((x * weights).sum(), bias)[0] for x in (out, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    out, _ = attend(Layer(), *qkv, shown, position_bias=bias)
    torch.testing.assert_close(out, reference(*qkv, shown, bias))


def test_masks_longer_than_the_keys(qkv):
    shown = torch.rand(2, 1, 7, 12) > 0.3
    shown[..., 0] = True
    torch.testing.assert_close(attend(Layer(), *qkv, shown)[0], reference(*qkv, shown[..., :9]))


@pytest.mark.parametrize("name", ["attention_mask", "position_bias"])
@pytest.mark.parametrize("shape", [(3, 1, 7, 9), (2, 1, 6, 9), (1, 1, 7, 8), (1, 1, 1, 7, 9), ()], ids=str)
def test_masks_that_do_not_broadcast(qkv, name, shape):
    with pytest.raises(ValueError, match=rf"{name} has shape \({', '.join(map(str, shape))}"):
        arguments = {"attention_mask": None, name: torch.zeros(shape)}
        attend(Layer(), *qkv, **arguments)


def test_a_mask_of_one_key_for_more(qkv):
    """As recurrent_gemma asks for it; torch broadcasts such a tensor."""
    seen = torch.tensor([[True], [False]])
    mask = integration.attention_mask(2, 7, 1, q_offset=5, attention_mask=seen)
    out, _ = attend(Layer(), *qkv, mask)
    assert torch.equal(out[0], attend(Layer(), *qkv, None)[0][0])
    assert not out[1].any()


def test_nothing_hidden_is_no_mask():
    from transformers.masking_utils import bidirectional_mask_function as everything

    made = integration.attention_mask
    arguments = dict(batch_size=2, q_length=7, kv_length=9, mask_function=everything)
    ones, padded = torch.ones(2, 9, dtype=torch.bool), torch.tensor([[True] * 8 + [False]] * 2)
    assert made(**arguments, allow_is_bidirectional_skip=True) is None
    assert made(**arguments, allow_is_bidirectional_skip=True, attention_mask=ones) is None
    assert made(**arguments, allow_is_bidirectional_skip=True, local_size=10) is None
    assert made(**arguments, allow_is_bidirectional_skip=True, local_size=9) is not None
    assert made(**arguments, allow_is_bidirectional_skip=True, attention_mask=padded) is not None
    assert made(**arguments) is not None


# --- keys that a model chooses ---------------------------------------------------------------------------------------


def test_tokens_that_an_indexer_chose(qkv):
    indices = torch.stack([torch.randperm(9)[:3] for _ in range(14)]).view(2, 7, 3).int()
    shown = torch.zeros(2, 1, 7, 9, dtype=torch.bool).scatter(-1, indices[:, None].long(), True)
    mask = integration.attention_mask(2, 7, 9, q_offset=2)
    causal = torch.arange(7)[:, None] + 2 >= torch.arange(9)
    shown[..., 0] = True  # so that every row sees something
    indices = torch.cat([indices, torch.zeros(2, 7, 1, dtype=torch.int32)], -1)
    for given, visible in ((None, shown), (mask, shown & causal), (causal, shown & causal)):
        out, _ = attend(Layer(), *qkv, given, indices=indices)
        torch.testing.assert_close(out, reference(*qkv, visible))


def test_blocks_that_an_indexer_chose(qkv):
    layer = Layer()
    layer.config = transformers.PretrainedConfig(index_block_size=4)
    blocks = torch.tensor([[0, -1], [0, 1], [0, 2], [2, 0], [0, -1], [1, 0], [0, 2]]).expand(2, 2, 7, 2).clone()
    blocks[1, 1] = torch.tensor([0, -1])
    shown = torch.zeros(2, 2, 7, 4, dtype=torch.bool).scatter(-1, blocks.where(blocks >= 0, torch.tensor(3)), True)
    shown = shown[..., :3].repeat_interleave(4, -1)[..., :9].repeat_interleave(2, 1)
    torch.testing.assert_close(attend(layer, *qkv, None, block_indices=blocks)[0], reference(*qkv, shown))


def test_lists_of_keys_that_cannot_be(qkv):
    with pytest.raises(ValueError, match="neither its indexer nor its config says how many keys a block has"):
        attend(Layer(), *qkv, None, block_indices=torch.zeros(2, 1, 7, 1, dtype=torch.int64))
    for lists, words in (((2, 6, 3), r"indices has shape \(2, 1, 6, 3\)"), ((2, 3, 7, 1), r"indices has shape \(2, 3, 7, 1\)")):
        with pytest.raises(ValueError, match=words):
            attend(Layer(), *qkv, None, indices=torch.zeros(lists, dtype=torch.int64))
    for number in (-2, 9):
        with pytest.raises(ValueError, match=f"indices lists {number}; 9 keys in blocks of 1 are numbered from 0 to 8"):
            attend(Layer(), *qkv, None, indices=torch.full((2, 7, 3), number))


def test_a_model_that_chooses_blocks():
    """MiniMax-M3: without its blocks it computes dense attention, and other tokens."""
    from transformers import MiniMaxM3VLTextConfig
    from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLAttention

    models = []
    for implementation in ("eager", "treadle"):
        config = MiniMaxM3VLTextConfig(
            hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_hidden_layers=1,
            layer_types=["minimax_m3_sparse"], mlp_layer_types=["dense"], index_n_heads=2, index_head_dim=16,
            index_block_size=4, index_topk_blocks=2, index_local_blocks=1,
        )  # fmt: skip
        config._attn_implementation = implementation
        torch.manual_seed(0)
        models.append(MiniMaxM3VLAttention(config, 0).eval())
    x, at = torch.randn(2, 24, 32), torch.randn(2, 24, 16)
    causal = torch.ones(24, 24, dtype=torch.bool).tril()[None, None]
    theirs = models[0](x, (at.cos(), at.sin()), torch.where(causal, 0.0, -1e30))[0]
    ours = models[1](x, (at.cos(), at.sin()), integration.attention_mask(2, 24, 24))[0]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


# --- graphs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_one_graph_with_a_padding_mask(name):
    torch._dynamo.reset()
    theirs, ours = pair_of(named(name))
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(ours, backend=backend, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for length in (20, 17, 23):
            inputs = inputs_of(named(name), length=length)
            seen = inputs["attention_mask"].bool()
            torch.testing.assert_close(
                compiled(**inputs).logits[seen], theirs(**inputs).logits[seen], atol=1e-4, rtol=1e-4
            )
    assert len(graphs) == 1
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["Llama", "Bert"])
def test_export_with_a_padding_mask(name):
    a = named(name)
    model = made(a, "treadle")
    inputs = inputs_of(a)
    options = {"use_cache": False} if a.kind == "decoder" else {}
    program = torch.export.export(model, (), {**inputs, **options})
    names = [str(node.target) for node in program.graph.nodes]
    assert names.count("treadle.attention.default") == 2
    inputs["attention_mask"][:, 5] = 0
    ours, expected = (f(**inputs, **options)[0] for f in (program.module(), model))
    torch.testing.assert_close(ours, expected)


# --- models that do not ask ------------------------------------------------------------------------------------------


def config_of(name, **numbers):
    config = getattr(transformers, name + "Config")(**numbers)
    config._attn_implementation = "treadle"
    return config


@pytest.mark.parametrize("name, numbers", [
    ("GPTJ", dict(n_embd=32, n_layer=1, n_head=4, rotary_dim=4)),  # no class of attention by this name
    ("CodeGen", dict(n_embd=32, n_layer=1, n_head=4, rotary_dim=4)),  # adds the mask
    ("Deberta", dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)),  # never asks
])  # fmt: skip
def test_models_without_the_interface(name, numbers):
    with pytest.raises(ValueError, match=f"{name}Model does not use transformers' attention interface"):
        getattr(transformers, name + "Model")(config_of(name, vocab_size=99, **numbers))


def test_a_part_without_the_interface_is_a_warning(caplog, monkeypatch):
    from treadle.integrations import _interface

    config = config_of("Deberta", hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
    monkeypatch.setattr(_interface, "_is_part", lambda model: True)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    transformers.utils.logging.warning_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        transformers.DebertaModel(config)
    assert "DebertaModel does not use transformers' attention interface" in caplog.text


def test_computing_with_a_mask_says_what_it_is():
    mask = integration.attention_mask(2, 7, 9)
    x = torch.zeros(2, 1, 7, 9)
    words = "does not use transformers' attention interface alone"
    for use in (
        lambda: x + mask, lambda: mask + x, lambda: x * mask, lambda: 1.0 - mask, lambda: mask[:, 0], lambda: mask < 0,
        lambda: ~mask, lambda: torch.where(mask, x, 0), lambda: x.masked_fill(mask, 0.0),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=words):
            use()
    for name in ("size", "dtype", "repeat", "expand"):
        with pytest.raises(AttributeError, match=f"no {name}: .*{words}"):
            getattr(mask, name)
        assert not hasattr(mask, name)
    assert mask.shape == (2, 1, 7, 9) and mask.ndim == 4 and mask.contiguous() is mask
    assert isinstance(mask, torch.nn.attention.flex_attention.BlockMask)


def test_weights_are_none_with_a_warning(qkv, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    transformers.utils.logging.warning_once.cache_clear()
    monkeypatch.setattr(logging.getLogger("transformers"), "level", logging.WARNING)
    out, weights = attend(Layer(), *qkv, None, output_attentions=True)
    assert weights is None and torch.equal(out, attend(Layer(), *qkv, None)[0])
    assert 'Use attn_implementation="eager" for them' in caplog.text
