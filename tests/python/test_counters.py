"""torch.utils.flop_counter counts our calls as it counts torch's own."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from treadle.sparse_transformer import blocksparse_attention
from treadle.torch import flex_attention, paged_attention, scaled_dot_product_attention, varlen_attention


def counted(f) -> int:
    with FlopCounterMode(display=False) as counter:
        f()
    return counter.get_total_flops()


def of(pairs, d, dv) -> int:
    return 2 * pairs * (d + dv)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [4, 2])
def test_forward_and_backward(causal, heads):
    q, k, v = torch.randn(2, 4, 7, 16), torch.randn(2, heads, 9, 16), torch.randn(2, heads, 9, 8)
    for t in (q, k, v):
        t.requires_grad_()
    forward = lambda: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)  # noqa: E731
    assert counted(forward) == of(2 * 4 * 7 * 9, 16, 8)
    with sdpa_kernel(SDPBackend.MATH):
        step = counted(lambda: forward().sum().backward())
        plain = counted(lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=True).sum().backward())
    again = 2 * 2 * 4 * 7 * 9 * 16  # a fused backward computes scores once more, which torch's formula of such counts, too
    assert step == plain + again


def test_under_a_name():
    q = torch.randn(2, 4, 7, 16)
    with FlopCounterMode(display=False) as counter:
        flex_attention(q, q, q)
    assert counter.get_flop_counts()["Global"] == {torch.ops.treadle.attention: of(2 * 4 * 7 * 7, 16, 16)}


def test_calls_that_compute_forward_again():
    q, k, v = (torch.randn(1, 64, 64, requires_grad=True) for _ in range(3))
    how = dict(heads=4, attn_mode="all", recompute=True)
    forward = counted(lambda: blocksparse_attention(q, k, v, **how))
    step = counted(lambda: blocksparse_attention(q, k, v, **how).sum().backward())
    assert forward == of(4 * 64 * 64, 16, 16) and step == 2 * forward + 2 * 4 * 64 * 64 * 5 * 16


def test_sequences():
    q, k = torch.randn(10, 4, 16), torch.randn(12, 2, 16)
    q_starts, k_starts = torch.tensor([0, 3, 10]), torch.tensor([0, 4, 12])
    run = lambda: varlen_attention(q, k, k, q_starts, k_starts, enable_gqa=True)  # noqa: E731
    assert counted(run) == of(4 * (3 * 4 + 7 * 8), 16, 16)


@pytest.mark.parametrize("order", ["heads_first", "tokens_first"])
def test_pages(order):
    pool = torch.randn(6, 2, 4, 16) if order == "heads_first" else torch.randn(6, 4, 2, 16)
    table, lengths = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32), torch.tensor([5, 7])
    q, starts = torch.randn(3, 4, 16), torch.tensor([0, 1, 3])
    run = lambda: paged_attention(q, starts, pool, pool, table, lengths, order=order, enable_gqa=True)  # noqa: E731
    assert counted(run) == of(4 * (1 * 5 + 2 * 7), 16, 16)


def test_shapes_alone():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        q, k = torch.randn(10, 4, 16), torch.randn(12, 2, 16)
        q_starts, k_starts = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
        x = torch.randn(2, 4, 7, 16)
        assert counted(lambda: flex_attention(x, x, x)) == of(2 * 4 * 7 * 7, 16, 16)
        run = lambda: varlen_attention(q, k, k, q_starts, k_starts, enable_gqa=True)  # noqa: E731
        assert counted(run) == of(4 * 10 * 12, 16, 16)


def test_the_profiler_names_calls_that_compute_forward_again():
    q, k, v = (torch.randn(1, 64, 64, requires_grad=True) for _ in range(3))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        blocksparse_attention(q, k, v, heads=4, attn_mode="all", recompute=True).sum().backward()
    names = [event.name for event in profile.events()]
    assert names.count("treadle::attention") == 1 and names.count("treadle::attention_backward") == 1
