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


def test_dropout_in_training_alone():
    model, x = make("Llama", "treadle"), torch.randn(1, 4, 8, 16)

    def attend(dropout):
        return integration.attention_forward(model, x, x, x, None, dropout=dropout)[0]

    model.eval()
    assert torch.equal(attend(0.5), attend(0.0))
    model.train()
    torch.manual_seed(3)
    first, second = attend(0.5), attend(0.5)
    assert not torch.equal(first, second) and not torch.equal(first, attend(0.0))
    torch.manual_seed(3)
    assert torch.equal(attend(0.5), first)


small = dict(vocab_size=99)
as_they_come = {  # with attention dropout alone, which eager's does, too
    "GPT2LMHeadModel": dict(
        config="GPT2Config", n_embd=32, n_layer=2, n_head=2, n_positions=64, embd_pdrop=0, resid_pdrop=0, **small
    ),
    "BertForMaskedLM": dict(
        config="BertConfig", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        hidden_dropout_prob=0, **small,
    ),
    "T5ForConditionalGeneration": dict(
        config="T5Config", d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0, **small
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(as_they_come))
def test_models_train_with_their_dropout(name):
    given = dict(as_they_come[name])
    config = getattr(transformers, given.pop("config"))(**given)
    config._attn_implementation = "treadle"
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).train()
    ids = torch.randint(0, 99, (2, 20))

    def step(seed):
        torch.manual_seed(seed)
        model.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        return loss.item(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    (loss, gradients), (again, same), (other, _) = step(1), step(1), step(2)
    assert loss == again and loss != other
    assert all(torch.equal(a, b) for a, b in zip(gradients, same))


def test_arguments_that_choose_keys_are_refused():
    model, x = make("Llama", "treadle"), torch.randn(1, 4, 8, 16)
    for argument in ("head_mask", "cache", "top_k", "something_new"):
        with pytest.raises(ValueError, match=f"LlamaForCausalLM passes {argument} to its attention"):
            integration.attention_forward(model, x, x, x, None, **{argument: torch.zeros(1)})
    harmless = dict(position_ids=torch.arange(8), use_cache=True, sliding_window=4, top_k=None, head_mask=False)
    out = integration.attention_forward(model, x, x, x, None, **harmless)[0]
    assert torch.equal(out, integration.attention_forward(model, x, x, x, None)[0])


def test_a_model_with_unknown_arguments(batch):
    model = make("Llama", "treadle")
    with pytest.raises(ValueError, match="passes chosen_keys"):
        model(batch[0], chosen_keys=torch.zeros(2, 37))


def test_causal_by_argument():
    """Without a mask, as sdpa has it; with one, it says nothing."""
    model, x = make("Llama", "treadle"), torch.randn(2, 4, 8, 16)
    plain, causal = (integration.attention_forward(model, x, x, x, None, is_causal=c)[0] for c in (False, True))
    expected = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).transpose(1, 2)
    torch.testing.assert_close(causal, expected)
    assert not torch.allclose(plain, expected)
    everything = integration.attention_mask(2, 8, 8, mask_function=lambda b, h, q, kv: q >= 0)
    assert torch.equal(integration.attention_forward(model, x, x, x, everything, is_causal=True)[0], plain)


class Asks(torch.nn.Module):
    """A layer that says whether it is causal, or does not."""

    def __init__(self, is_causal):
        super().__init__()
        self.eval()
        if is_causal is not None:
            self.is_causal = is_causal


@pytest.mark.parametrize("queries, keys", [(8, 8), (1, 8), (5, 8)])
@pytest.mark.parametrize("of_layer", [None, False, True])
@pytest.mark.parametrize("given", [None, False, True])
def test_who_says_that_a_layer_is_causal(queries, keys, of_layer, given):
    """The argument, then the layer, as for sdpa; a mask says all. A layer that says nothing is not, as for eager: sdpa
    is refused for models that have such."""
    theirs = transformers.integrations.sdpa_attention.sdpa_attention_forward
    layer, q, kv = Asks(of_layer), torch.randn(2, 4, queries, 16), torch.randn(2, 4, keys, 16)
    shown = torch.rand(2, 1, queries, keys) < 0.7
    shown[..., 0] = True
    for options in (
        {}, dict(is_causal=given), dict(is_causal=given, position_bias=torch.randn(1, 4, queries, keys)),
        dict(is_causal=given, attention_mask=shown),
    ):
        options = {"attention_mask": None, **options}
        got = integration.attention_forward(layer, q, kv, kv, **options)[0]
        wanted = theirs(Asks(bool(of_layer)), q, kv, kv, **options)[0]
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["Splinter", "AlignText"])
def test_encoders_whose_layers_do_not_say(name):
    config = getattr(transformers, f"{name}Config")(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=64,
        vocab_size=200,
    )
    ids, outs = torch.randint(5, 90, (2, 12)), []
    for implementation in ("treadle", "eager"):
        config._attn_implementation = implementation
        torch.manual_seed(0)
        outs.append(getattr(transformers, f"{name}Model")(config).eval()(input_ids=ids).last_hidden_state)
    torch.testing.assert_close(*outs, atol=1e-5, rtol=1e-5)


def test_a_layer_of_a_decoder_without_a_mask():
    models = [make("Llama", name).eval() for name in ("treadle", "sdpa")]
    models[1].load_state_dict(models[0].state_dict())
    x, at = torch.randn(2, 12, models[0].config.hidden_size), torch.arange(12)[None]
    angles = models[0].model.rotary_emb(x, at)
    got, wanted = (m.model.layers[0].self_attn(x, position_embeddings=angles, attention_mask=None)[0] for m in models)
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


def test_keys_that_arguments_choose_of_a_layer_that_is_causal():
    x, bounds = torch.randn(1, 4, 12, 16), torch.tensor([0, 5, 6, 12], dtype=torch.int32)
    packed = dict(cu_seq_lens_q=bounds, cu_seq_lens_k=bounds)
    got = [integration.attention_forward(Asks(c), x, x, x, None, **packed)[0] for c in (True, False, None)]
    parts = [[], []]
    for first, last in ((0, 5), (5, 6), (6, 12)):
        part = x[:, :, first:last]
        for causal in (True, False):
            out = torch.nn.functional.scaled_dot_product_attention(part, part, part, is_causal=causal)
            parts[0 if causal else 1].append(out)
    causal, full = (torch.cat(p, 2).transpose(1, 2) for p in parts)
    for out, expected in zip(got, (causal, full, full)):
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("mask", [False, True])
def test_packed_sequences(mask):
    """Given by where they begin, or by their numbers."""
    model, x = make("Llama", "treadle"), torch.randn(1, 4, 12, 16)
    causal = integration.attention_mask(1, 12, 12) if mask else None
    bounds = torch.tensor([0, 5, 6, 12], dtype=torch.int32)
    packed = [
        integration.attention_forward(model, x, x, x, causal, cu_seq_lens_q=bounds, cu_seq_lens_k=bounds)[0],
        integration.attention_forward(model, x, x, x, causal, seq_idx=torch.tensor([[0] * 5 + [1] + [2] * 6]))[0],
    ]
    parts = []
    for first, last in ((0, 5), (5, 6), (6, 12)):
        part = x[:, :, first:last]
        parts.append(torch.nn.functional.scaled_dot_product_attention(part, part, part, is_causal=mask))
    for out in packed:
        torch.testing.assert_close(out, torch.cat(parts, 2).transpose(1, 2))


def test_numbers_of_sequences_without_those_of_all_keys():
    model, q, k = make("Llama", "treadle"), torch.randn(1, 4, 1, 16), torch.randn(1, 4, 12, 16)
    with pytest.raises(ValueError, match="1 queries and 12 keys"):
        integration.attention_forward(model, q, k, k, None, seq_idx=torch.zeros(1, 1, dtype=torch.int32))


def test_no_mask_where_nothing_is_hidden():
    made = integration.attention_mask
    last = dict(batch_size=2, q_length=1, kv_length=20, q_offset=19, allow_is_causal_skip=True)
    assert made(**last) is None
    assert made(**last, local_size=21) is None
    assert made(**last, attention_mask=torch.ones(2, 20, dtype=torch.bool)) is None
    padded = torch.ones(2, 20, dtype=torch.bool)
    padded[0, 0] = False
    assert made(**last, attention_mask=padded) is not None
    assert made(**last, local_size=20) is not None
    assert made(**{**last, "q_offset": 18}) is not None  # the last key is in the future
    assert made(**{**last, "q_length": 2, "q_offset": 18}) is not None
    assert made(**{**last, "allow_is_causal_skip": False}) is not None


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_without_padding(pair, batch, cache):
    ids, _ = batch
    options = dict(max_new_tokens=12, do_sample=False, attention_mask=torch.ones_like(ids))
    if cache == "static":
        options.update(cache_implementation="static", disable_compile=True)
    a, b = (m.generate(ids, **options) for m in pair)
    assert torch.equal(a, b)


def test_masks_of_integers_are_refused():
    model, x = make("Llama", "treadle"), torch.randn(1, 4, 8, 16)
    seen = torch.ones(1, 8, dtype=torch.int64)
    with pytest.raises(ValueError, match="attention_mask has type torch.int64; it must be bool, or floats"):
        integration.attention_forward(model, x, x, x, seen)
    with pytest.raises(ValueError, match="position_bias has type torch.int64"):
        integration.attention_forward(model, x, x, x, None, position_bias=seen)
