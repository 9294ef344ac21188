"""Hugging Face models with attn_implementation="treadle" beside their own implementations."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

from treadle.integrations import transformers as integration  # noqa: E402

integration.register()

sizes = dict(
    vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=256, attention_dropout=0.0,
)  # fmt: skip
models = {
    "Llama": ({}, "sdpa"),
    "Mistral": ({"sliding_window": 8}, "sdpa"),
    "Gemma2": ({"sliding_window": 8, "attn_logit_softcapping": 20.0}, "eager"),
    "GptOss": ({"sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2}, "eager"),
}


def make(name, implementation, state=None):
    extra, _ = models[name]
    config = getattr(transformers, name + "Config")(**sizes, **extra)
    config._attn_implementation = implementation
    model = getattr(transformers, name + "ForCausalLM")(config)
    if state is not None:
        model.load_state_dict(state)
    return model.eval()


@pytest.fixture(params=list(models))
def pair(request):
    """A model with its own attention, and the same one with ours."""
    torch.manual_seed(0)
    theirs = make(request.param, models[request.param][1])
    return theirs, make(request.param, "treadle", theirs.state_dict())


@pytest.fixture
def batch():
    torch.manual_seed(1)
    ids = torch.randint(0, 99, (2, 37))
    seen = torch.ones_like(ids)
    seen[0, :5] = 0  # padded on the left
    return ids, seen


def test_logits(pair, batch):
    ids, seen = batch
    with torch.no_grad():
        a, b = (m(ids, attention_mask=seen).logits for m in pair)
    torch.testing.assert_close(b[seen.bool()], a[seen.bool()], atol=2e-5, rtol=1e-4)


def test_generation_with_a_cache(pair, batch):
    ids, seen = batch
    a, b = (m.generate(ids, attention_mask=seen, max_new_tokens=12, do_sample=False) for m in pair)
    assert torch.equal(a, b)


def test_a_training_step(pair, batch):
    ids, seen = batch
    labels = ids.masked_fill(seen == 0, -100)
    labels[0, 5] = -100  # its prediction is made at a padded place, where a query sees nothing: zeros here, a mean there
    for m in pair:
        m.train()
        m(ids, attention_mask=seen, labels=labels).loss.backward()
    for (name, a), (_, b) in zip(pair[0].named_parameters(), pair[1].named_parameters()):
        if a.grad is not None:
            scale = a.grad.abs().max().clamp(min=1e-6)
            assert (a.grad - b.grad).abs().max() <= 1e-4 * scale, name


def test_dropout_is_refused(batch):
    model = make("Llama", "treadle")
    x = torch.randn(1, 4, 8, 16)
    with pytest.raises(ValueError, match="dropout"):
        integration.attention_forward(model, x, x, x, None, dropout=0.1)
