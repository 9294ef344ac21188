"""A call of a compiled graph does what has to be done and no more: what is looked at before it, and what is called in it.

Time is not measured here. Functions and guards are counted, which do not depend on the machine.
"""

import os
import sys

import mods
import pytest
import torch
import torch.fx.experimental.proxy_tensor
import treadle.torch
from torch.nn.attention.flex_attention import create_block_mask as torch_block_mask
from treadle.torch import AuxRequest, _ops, create_block_mask, flex_attention, paged_attention, varlen_attention

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))
slopes = torch.randn(2)
documents = torch.arange(16) // 5
causal = create_block_mask(mods.causal_mask, None, None, 16, 16)
of_documents = create_block_mask(lambda b, h, q, kv: documents[q] == documents[kv], None, None, 16, 16)


def plain(q, k, v):
    return flex_attention(q, k, v)


def masked(q, k, v):
    return flex_attention(q, k, v, block_mask=causal)


def with_mods(q, k, v):
    return flex_attention(q, k, v, lambda s, b, h, q, kv: s + slopes[h] * (kv - q), of_documents)


def packed(q, k, v):
    starts = torch.tensor([0, 5, 16])
    return varlen_attention(q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1), starts, causal=True)


def in_pages(q, k, v):
    table, length = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([16])
    with torch.no_grad():
        return paged_attention(q[0].transpose(0, 1), torch.tensor([0, 16]), k, v, table, length)


calls = pytest.mark.parametrize("attend", [plain, masked, with_mods], ids=lambda f: f.__name__)


# --- guards ---------------------------------------------------------------------------------------------------------


def guards_of(f, *arguments, backend="eager"):
    """The names of what torch looks at before a call of the compiled f."""
    seen = []

    def keep_all(entries):
        seen.extend([entry.orig_guard.name for entry in entries])
        return [True] * len(entries)

    compiled = torch.compile(f, fullgraph=True, backend=backend, options={"guard_filter_fn": keep_all})
    assert torch.equal(compiled(*arguments), f(*arguments))
    assert seen
    return seen


@pytest.mark.parametrize("attend", [plain, masked, with_mods, packed, in_pages], ids=lambda f: f.__name__)
def test_nobody_looks_whether_treadle_has_changed(attend):
    names = guards_of(attend, q, k, v)
    own = [name for name in names if "__import_treadle" in name or "flex_attention'].__defaults__" in name]
    # What makes results of the operation, and torch's state.
    assert not [name for name in own if "with_aux" not in name and "forward_ad" not in name]
    for name in ("L['q']", "L['k']", "L['v']"):
        assert name in names


def test_nobody_looks_at_treadle_where_it_is_compiled_itself():
    names = guards_of(flex_attention, q, k, v)
    assert not [name for name in names if name.startswith(("G['check", "G['attend']", "G['__import_treadle"))]


def test_what_the_user_may_change_is_looked_at():
    names = guards_of(with_mods, q, k, v)
    for name in ("G['flex_attention']", "G['slopes']", "G['documents']", "G['of_documents'].mask_mod"):
        assert name in names, name


shift, cap = 1.0, None


def shifted(score, b, h, q, kv):
    return score + shift * kv


def capped(score, b, h, q, kv):
    return torch.clamp(shifted(score, b, h, q, kv), max=cap) if cap is not None else shifted(score, b, h, q, kv)


def negated(score, b, h, q, kv):
    return -score


def test_changes_of_what_a_mod_sees_are_seen(monkeypatch):
    module = sys.modules[__name__]
    compiled = torch.compile(lambda: flex_attention(q, k, v, capped), fullgraph=True, backend="eager")
    changes = [("shift", -2.0), ("cap", 0.25), ("cap", None), ("shifted", negated), ("capped", negated)]
    results = [compiled()]
    for name, value in changes:
        monkeypatch.setattr(module, name, value)
        results.append(compiled())
        torch.testing.assert_close(results[-1], flex_attention(q, k, v, capped))
    assert not any(torch.equal(a, b) for a, b in zip(results, results[1:4]))


def test_changes_of_a_mask_are_seen():
    mask = create_block_mask(mods.causal_mask, None, None, 16, 16)
    compiled = torch.compile(lambda: flex_attention(q, k, v, block_mask=mask), fullgraph=True, backend="eager")
    assert torch.equal(compiled(), flex_attention(q, k, v, block_mask=causal))
    mask.mask_mod = lambda b, h, q, kv: q <= kv
    assert torch.equal(compiled(), flex_attention(q, k, v, block_mask=lambda b, h, q, kv: q <= kv))
    mask.seq_lengths = (32, 32)
    with pytest.raises(Exception, match="block_mask was created for 32 queries"):
        compiled()


def test_changes_of_torchs_state_are_seen():
    compiled = torch.compile(plain, fullgraph=True, backend="eager")
    assert compiled(q, k, v).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(q, k, v).dtype == torch.bfloat16
    assert compiled(q, k, v).dtype == torch.float32


def test_a_function_of_the_users_own_in_place_of_ours_is_seen(monkeypatch):
    compiled = torch.compile(plain, fullgraph=True, backend="eager")
    compiled(q, k, v)
    monkeypatch.setattr(sys.modules[__name__], "flex_attention", lambda q, k, v: q + 1)
    assert torch.equal(compiled(q, k, v), q + 1)


# --- calls ----------------------------------------------------------------------------------------------------------


def frames_of(f, *arguments):
    """The functions of Treadle and of torch's operations that a call goes through."""
    seen = []

    def look(frame, event, argument):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and (name.startswith("treadle") or name in ("torch._ops", "torch._library.autograd")):
            seen.append(f"{name}.{frame.f_code.co_name}")

    for _ in range(3):
        f(*arguments)
    sys.setprofile(look)
    try:
        f(*arguments)
    finally:
        sys.setprofile(None)
    return seen


def has_inductors_register():
    return "torch._inductor.codegen.custom_extern_kernel_codegen" in sys.modules


@calls
@torch.no_grad()
def test_inductors_code_calls_no_more_than_an_eager_call(attend):
    compiled = torch.compile(attend, fullgraph=True)
    assert torch.equal(compiled(q, k, v), attend(q, k, v))
    if not has_inductors_register():
        pytest.skip("this torch has no register of what inductor writes")
    seen = frames_of(compiled, q, k, v)
    assert not [name for name in seen if name.startswith("torch.")]
    assert len(seen) <= len(frames_of(attend, q, k, v))


@calls
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@torch.no_grad()
def test_an_operation_is_dispatched_once(attend, backend):
    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    seen = frames_of(compiled, q, k, v)
    assert seen.count("torch._ops.__call__") == 1 and seen.count("treadle.torch._ops.forward") == 1
    assert not [name for name in seen if "redispatch" in name or "_library" in name]


def test_so_is_a_backward():
    def step(q):
        compiled(q, k, v).sum().backward()

    compiled = torch.compile(masked, fullgraph=True, backend="aot_eager")
    seen = frames_of(step, q.clone().requires_grad_())
    assert seen.count("treadle.torch._ops.forward") == seen.count("treadle.torch._ops.backward") == 1
    assert not [name for name in seen if "redispatch" in name or "_library" in name]


def wanted_by(f, monkeypatch):
    """Whether lse and max were computed by each forward of f()."""
    f()
    if not has_inductors_register():
        pytest.skip("this torch has no register of what inductor writes")
    wanted = []

    def run_forward(call, q, k, v, captured, lse):
        wanted.append((lse, call.max))
        return computed(call, q, k, v, captured, lse)

    computed = _ops.run_forward
    monkeypatch.setattr(_ops, "run_forward", run_forward)
    f()
    return wanted


def of_rows(lse, most):
    def attend(q, k, v):
        out, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse, most))
        return [x for x in (out, aux.lse, aux.max_scores) if x is not None]

    return attend


@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("most", [False, True])
@torch.no_grad()
def test_inductors_code_asks_for_what_it_uses(monkeypatch, lse, most):
    compiled = torch.compile(of_rows(lse, most), fullgraph=True)
    assert wanted_by(lambda: compiled(q, k, v), monkeypatch) == [(lse, most)]
    for a, b in zip(compiled(q, k, v), of_rows(lse, most)(q, k, v)):
        assert torch.equal(a, b)


def test_a_graph_for_gradients_needs_lse(monkeypatch):
    leaf = q.clone().requires_grad_()
    compiled = torch.compile(masked, fullgraph=True)
    step = lambda f: torch.autograd.grad(f(leaf, k, v).square().sum(), leaf)[0]  # noqa: E731
    assert wanted_by(lambda: step(compiled), monkeypatch) == [(True, False)]
    assert torch.equal(step(compiled), step(masked))


def test_several_calls_of_a_graph(monkeypatch):
    """Each asks for its own."""

    def attend(q, k, v):
        first, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True))
        return flex_attention(first * aux.lse.unsqueeze(-1), k, v, block_mask=causal)

    compiled = torch.compile(attend, fullgraph=True)
    with torch.no_grad():
        assert wanted_by(lambda: compiled(q, k, v), monkeypatch) == [(True, False), (False, False)]
        torch.testing.assert_close(compiled(q, k, v), attend(q, k, v))


def test_inductors_code_of_other_lengths_and_numbers():
    def attend(x, slope, first):
        return flex_attention(x, x, x, lambda s, b, h, q, kv: s + slope * (kv - q), lambda b, h, q, kv: kv >= first)

    compiled = torch.compile(attend, fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for length, slope, first in ((16, 0.5, 2), (40, 0.25, 3), (33, -0.5, 7)):
            x = torch.randn(1, 2, length, 8)
            torch.testing.assert_close(compiled(x, slope, first), attend(x, slope, first))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_profiler_sees_calls_of_graphs(backend):
    leaf = q.clone().requires_grad_()
    compiled = torch.compile(masked, fullgraph=True, backend=backend)
    compiled(leaf, k, v).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        compiled(leaf, k, v).sum().backward()
    names = [event.name for event in profile.events()]
    assert names.count("treadle::attention") == 1 and "treadle::attention_backward" in names


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])  # inductor loses the sign of any negated view
@torch.no_grad()
def test_a_negated_view_in_graphs(backend):
    z = torch.randn(1, 2, 16, 8, dtype=torch.complex64)
    compiled = torch.compile(plain, fullgraph=True, backend=backend)
    for x in (z.real, z.conj().imag):
        torch.testing.assert_close(compiled(x, k, v), plain(x.resolve_neg(), k, v))


def test_texts_of_operations_are_lines():
    """As inductor writes them into C++, with cpp_wrapper."""
    graph = torch.fx.experimental.proxy_tensor.make_fx(with_mods)(q, k, v)
    (node,) = [node for node in graph.graph.nodes if node.target is torch.ops.treadle.attention.default]
    texts = [argument for argument in node.args if isinstance(argument, str)]
    assert len(texts) == 5 and any("c0[" in text for text in texts) and not any("\n" in text for text in texts)
    commented = "score * 2  # twice\n + 1"
    compiled = torch.compile(lambda: flex_attention(q, k, v, commented), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(), flex_attention(q, k, v, lambda s, b, h, q, kv: s * 2 + 1))


@torch.no_grad()
def test_none_as_an_empty_list():
    """So AOTInductor's executor calls operations."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU).add(torch._C.DispatchKey.AutogradCPU)

    def attend(captures, score_mod, mask, kinds, integers, reals, sinks, q_offsets):
        more = (kinds, integers, reals, None, sinks, q_offsets, None, False, False, 0.0)
        return _ops._forward_autograd(keys, q, k, v, captures, score_mod, mask, score_mod, mask, *more)[0]

    assert torch.equal(attend(None, "", "", "", None, None, False, None), plain(q, k, v))
    assert torch.equal(attend(None, "", "q >= kv", "", None, None, False, None), masked(q, k, v))
    twice = attend(None, "score * s0", "", "f", None, [2.0], False, None)
    assert torch.equal(twice, flex_attention(q, k, v, lambda s, b, h, q, kv: s * 2.0))
    assert torch.equal(attend([slopes], "", "", "", None, None, True, None), flex_attention(q, k, v, sinks=slopes))


@pytest.mark.skipif(os.environ.get("TREADLE_TEST_FUZZ") != "full", reason="half a minute of a C++ compiler")
@torch.no_grad()
def test_a_package_of_aotinductor(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return with_mods(q, k, v).relu() + flex_attention(q, k, v, block_mask=lambda b, h, q, kv: q >= kv)

    exported = torch.export.export(Model(), (q, k, v))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    torch.testing.assert_close(torch._inductor.aoti_load_package(path)(q, k, v), Model()(q, k, v))


def test_torchs_masks_in_inductors_code():
    mask = torch_block_mask(mods.causal_mask, None, None, 16, 16, "cpu", BLOCK_SIZE=8)
    compiled = torch.compile(lambda q: treadle.torch.flex_attention(q, k, v, block_mask=mask), fullgraph=True)
    torch.testing.assert_close(compiled(q), masked(q, k, v))


# --- errors ---------------------------------------------------------------------------------------------------------


def of(*shape):
    return torch.randn(*shape)


def with_mask_of(batch):
    return lambda q, k: flex_attention(q, k, k, block_mask=create_block_mask(mods.causal_mask, batch, None, 16, 16))


@pytest.mark.parametrize(
    "attend, q, k, wanted",
    [
        (with_mask_of(None), of(1, 2, 20, 8), of(1, 2, 20, 8), "block_mask was created for 16 queries and 16 keys, but"),
        (with_mask_of(3), of(2, 2, 16, 8), of(2, 2, 16, 8), "block_mask has batch 3, query has 2"),
        (with_mask_of(None), of(2, 2, 16, 8), of(3, 2, 16, 8), "block_mask have batch sizes 2, 3 and 1; those"),
        (lambda q, k: flex_attention(q, k, k), of(2, 2, 16, 8), of(3, 2, 16, 8), "have batch sizes 2 and 3; without"),
        (lambda q, k: flex_attention(q, k, k), of(1, 4, 16, 8), of(1, 2, 16, 8), "numbers of heads, 4 and 2; set"),
        (lambda q, k: flex_attention(q, k, k, enable_gqa=True), of(1, 5, 9, 8), of(1, 2, 9, 8), "heads of query, 5, must"),
        (lambda q, k: flex_attention(q, k, k), of(1, 2, 9, 8), of(1, 2, 9, 12), "embedding dimension, got 8 and 12"),
        (lambda q, k: flex_attention(q, k, k[:, :, 1:]), of(1, 2, 9, 8), of(1, 2, 9, 8), r"\(1, 2, 9, 8\) and \(1, 2, 8, 8"),
        (lambda q, k: varlen_attention(q, k, k, torch.tensor([0, 9])), of(9, 4, 8), of(9, 2, 8), "of heads, 4 and 2; set"),
    ],
)  # fmt: skip
def test_errors_say_numbers_that_graphs_have_not_fixed(attend, q, k, wanted):
    for f in (attend, torch.compile(attend, fullgraph=True, dynamic=True, backend="eager")):
        with pytest.raises(Exception, match=wanted):
            f(q, k)
