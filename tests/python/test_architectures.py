"""Models of Hugging Face transformers beside themselves with attn_implementation="treadle": numbers, gradients, generation.

A few of them in every run, all of them where TREADLE_TEST_FUZZ is full.
"""

import os

import pytest
import torch

transformers = pytest.importorskip("transformers")

from architectures import few, inputs_of, name_of, others, pair_of  # noqa: E402

from treadle.integrations import transformers as integration  # noqa: E402

integration.register()
transformers.logging.set_verbosity_error()

_full = os.environ.get("TREADLE_TEST_FUZZ") == "full"
architectures = few + others if _full else few


@pytest.fixture(params=architectures, ids=name_of, scope="module")
def case(request):
    return request.param, *pair_of(request.param)


def _first(output):
    return output.logits if getattr(output, "logits", None) is not None else output.last_hidden_state


def _seen(a, inputs, out):
    """Outputs at places that are not padding. (A query that sees nothing is zeros here and a mean of all values there.)"""
    if a.kind in ("image", "both"):
        return out
    return out[inputs["attention_mask"].bool()]


@pytest.mark.parametrize("padded", [True, False])
def test_numbers_and_gradients(case, padded):
    a, *models = case
    inputs = inputs_of(a, padded)
    results = []
    for m in models:
        m.zero_grad()
        out = _seen(a, inputs, _first(m(**inputs)))
        (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
        results.append((out.detach(), {n: x.grad for n, x in m.named_parameters() if x.grad is not None}))
    (theirs, their_gradients), (ours, our_gradients) = results
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    # Some parameters get a gradient that is rounding alone, such as biases of keys.
    largest = max(x.abs().max() for x in their_gradients.values())
    for name, expected in their_gradients.items():
        error = (our_gradients[name] - expected).abs().max()
        assert error <= 1e-3 * expected.abs().max() + 1e-5 * largest, (name, error)


@pytest.mark.parametrize("way", ["greedy", "beams", "static"])
def test_generation(case, way):
    a, theirs, ours = case
    if a.kind in ("encoder", "image"):
        pytest.skip("does not generate")
    if way == "static" and not a.static_cache:
        pytest.skip("has no static cache with its own attention")
    inputs = inputs_of(a)
    inputs.pop("decoder_input_ids", None)
    options = dict(max_new_tokens=5, min_new_tokens=5, do_sample=False)
    if way == "beams":
        options["num_beams"] = 2
    elif way == "static":
        options.update(cache_implementation="static", disable_compile=True)
    assert torch.equal(ours.generate(**inputs, **options), theirs.generate(**inputs, **options))


@pytest.mark.skipif(not _full, reason="a minute; the first of them is compiled in test_transformers.py")
def test_compiled(case):
    a, theirs, ours = case
    torch._dynamo.reset()
    inputs = inputs_of(a)
    with torch.no_grad():
        expected = _seen(a, inputs, _first(theirs(**inputs)))
        compiled = torch.compile(ours, backend="aot_eager", fullgraph=a.graphs)
        out = _seen(a, inputs, _first(compiled(**inputs)))
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)
