"""Misuse: the kinds of errors that torch raises, and what they say."""

import inspect
import math

import mods
import numpy as np
import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
import treadle
from treadle.torch import AuxRequest, create_block_mask, create_mask, flex_attention


def mask_of(length, keys=None, B=None, H=None):
    return lambda engine: engine.create_block_mask(mods.causal_mask, B, H, length, keys or length, "cpu")


def call(engine, q, k, v, mask=None, **options):
    return engine.flex_attention(q, k, v, block_mask=mask(engine) if mask else None, **options)


x = torch.randn(2, 4, 16, 8)
misuses = {
    "dims of q and k": (ValueError, (x, x[..., :4], x), {}),
    "one dimension": (ValueError, (x[0, 0, 0], x, x), {}),
    "three dimensions": (NotImplementedError, (x[0], x[0], x[0]), {}),
    "heads without enable_gqa": (ValueError, (x, x[:, :2], x[:, :2]), {}),
    "heads that do not divide": (ValueError, (x, x[:, :3], x[:, :3]), {"enable_gqa": True}),
    "batches without a mask": (ValueError, (x, x[:1], x[:1]), {}),
    "batches and a mask of one": (ValueError, (x, x[:1], x[:1]), {"mask": mask_of(16)}),
    "longer than the mask": (ValueError, (x, x, x), {"mask": mask_of(8)}),
    "shorter than the mask": (ValueError, (x, x, x), {"mask": mask_of(32)}),
    "other keys than the mask": (ValueError, (x, x, x), {"mask": mask_of(16, 20)}),
    "lse twice": (ValueError, (x, x, x), {"return_lse": True, "return_aux": AuxRequest(lse=True)}),
    "unknown backend": (ValueError, (x, x, x), {"kernel_options": {"BACKEND": "SUN"}}),
    "backend twice": (
        RuntimeError, (x, x, x), {"kernel_options": {"BACKEND": "TRITON", "FORCE_USE_FLEX_ATTENTION": True}},
    ),
    "lse as an option": (AssertionError, (x, x, x), {"kernel_options": {"OUTPUT_LOGSUMEXP": True}}),
    "max as an option": (AssertionError, (x, x, x), {"kernel_options": {"OUTPUT_MAX": True}}),
    "other device": (ValueError, (x, x.to("meta"), x), {}),
    "length of v": (RuntimeError, (x, x, x[:, :, :5]), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", misuses)
def test_same_kind_as_torch(case):
    kind, tensors, options = misuses[case]
    with pytest.raises(kind):
        call(torch_flex, *tensors, **options)
    if case == "length of v":
        kind = ValueError  # torch leaves it to bmm
    with pytest.raises(kind) as raised:
        call(treadle.torch, *tensors, **options)
    assert len(str(raised.value)) > 20


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors():
    nested = torch.nested.nested_tensor([torch.randn(4, 3, 8), torch.randn(4, 5, 8)])
    with pytest.raises(NotImplementedError):
        flex_attention(nested, nested, nested)


def test_errors_tell_numbers():
    with pytest.raises(ValueError, match="4 and 3"):
        flex_attention(x, x[:, :3], x[:, :3])
    with pytest.raises(ValueError, match="8 .*16"):
        flex_attention(x, x, x, block_mask=create_block_mask(mods.causal_mask, None, None, 8, 8))


def test_heads_and_batches_of_the_mask():
    with pytest.raises(ValueError, match="heads"):
        flex_attention(x, x, x, block_mask=create_block_mask(mods.causal_mask, None, 3, 16, 16))
    with pytest.raises(ValueError, match="batch"):
        flex_attention(x, x, x, block_mask=create_block_mask(mods.causal_mask, 5, None, 16, 16))


def test_types():
    with pytest.raises(TypeError):
        flex_attention(x.numpy(), x, x)
    with pytest.raises((TypeError, ValueError)):
        flex_attention(x.int(), x.int(), x.int())
    with pytest.raises(TypeError, match="BlockMask"):
        flex_attention(x, x, x, block_mask=torch.ones(16, 16).bool())
    with pytest.raises(TypeError):
        flex_attention(x, x, x, block_mask=mods.causal)  # a score_mod


def test_score_mod_in_place_of_a_mask_mod():
    with pytest.raises(AssertionError, match="mask_mod"):
        create_block_mask(mods.causal, None, None, 16, 16)
    with pytest.raises(AssertionError):
        create_mask(lambda a, b: a, None, None, 16, 16)


def test_mask_that_is_no_bool():
    with pytest.raises(treadle.TraceError, match="bool"):
        create_block_mask(lambda b, h, q, kv: q - kv, None, None, 16, 16)


def test_device_of_masks():
    with pytest.raises(ValueError, match="CPU"):
        create_block_mask(mods.causal_mask, None, None, 16, 16, device="meta")
    with pytest.raises(ValueError, match="CPU"):
        create_mask(mods.causal_mask, None, None, 16, 16, device="meta")


# --- what cannot be traced: (what the error names, the mod) ------------------------------------------------------

table = torch.randn(16)


def if_on_a_score(score, b, h, q, kv):
    if score > 0:
        return score
    return score * 2


def if_on_an_index(score, b, h, q, kv):
    return score if q >= kv else score * 2


def boolean_and(score, b, h, q, kv):
    return torch.where(q > kv and q > 3, score, 0.0)


def chained_comparison(score, b, h, q, kv):
    return torch.where(0 < q - kv < 4, score, 0.0)


def loop_over_an_index(score, b, h, q, kv):
    for i in range(q):
        score = score + i
    return score


def write_to_a_capture(score, b, h, q, kv):
    table[q] = 1.0
    return score


def add_in_place(score, b, h, q, kv):
    table.add_(1)
    return score + table[q]


def accumulate(score, b, h, q, kv):
    global table
    table += 1
    return score


def unsupported_function(score, b, h, q, kv):
    return torch.lgamma(score)


def unsupported_method(score, b, h, q, kv):
    return score.cumsum(0)


def reduction(score, b, h, q, kv):
    return score + torch.sum(score)


def matrix_product(score, b, h, q, kv):
    return torch.matmul(score, score)


def random_number(score, b, h, q, kv):
    return score + torch.rand_like(score)


def whole_tensor(score, b, h, q, kv):
    return score + table


def too_many_indices(score, b, h, q, kv):
    return score + table[q, kv]


def index_that_is_no_integer(score, b, h, q, kv):
    return score + table[score]


def list_element(score, b, h, q, kv):
    return score + [1, 2, 3][q]


def python_number_of_a_value(score, b, h, q, kv):
    return score + float(q)


def item(score, b, h, q, kv):
    return score + q.item()


def reduction_of_rows(score, b, h, q, kv):
    return score + torch.ones(16, 3, 3)[q].sum()


def arithmetic_of_rows(score, b, h, q, kv):
    return score + (torch.ones(16, 3, 3)[q] * 2)[0]


def function_of_python(score, b, h, q, kv):
    return score * math.exp(q)


def smaller_of_two(score, b, h, q, kv):
    return score * min(q, kv)


def function_of_numpy(score, b, h, q, kv):
    return np.frexp(score)[0]


def boolean_index(score, b, h, q, kv):
    return score + table[q > kv]


def write_out(score, b, h, q, kv):
    return torch.exp(score, out=table)


untraceable = [
    (if_on_a_score, "if"), (if_on_an_index, "if"), (boolean_and, "and"), (chained_comparison, "comparison"),
    (loop_over_an_index, ""), (write_to_a_capture, "write"), (add_in_place, "write"), (accumulate, "write"),
    (unsupported_function, "lgamma"), (unsupported_method, "cumsum"), (reduction, "sum"),
    (matrix_product, "matmul"), (random_number, "rand_like"), (whole_tensor, "whole"),
    (too_many_indices, "2 indices"), (index_that_is_no_integer, "integer"),
    (list_element, "list"), (python_number_of_a_value, ""), (item, "item"), (write_out, "out="),
    (reduction_of_rows, "1 indices"), (arithmetic_of_rows, "1 indices"), (function_of_python, "math"),
    (smaller_of_two, "minimum"), (function_of_numpy, "numpy.frexp"), (boolean_index, "bool"),
]  # fmt: skip


@pytest.mark.parametrize("mod, says", untraceable, ids=lambda p: getattr(p, "__name__", None))
def test_untraceable(mod, says):
    """The error names what it is about, the file and the line."""
    before = table.clone()
    with pytest.raises(treadle.TraceError) as raised:
        flex_attention(x, x, x, mod)
    message = str(raised.value)
    assert says in message
    assert "test_errors.py, line " in message, message
    lines, start = inspect.getsourcelines(mod)
    line = int(message.split("test_errors.py, line ")[1].split(":")[0])
    assert start < line < start + len(lines), "a line of the mod itself"
    assert torch.equal(table, before), "nothing was written"


def test_result_that_is_no_number():
    for result in (None, "text", [1.0], torch.randn(3)):
        with pytest.raises(treadle.TraceError):
            flex_attention(x, x, x, lambda s, b, h, q, kv: result)


def test_errors_of_the_mod_itself_come_through():
    def mod(score, b, h, q, kv):
        raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        flex_attention(x, x, x, mod)


def test_wrong_number_of_arguments():
    with pytest.raises(TypeError):
        flex_attention(x, x, x, lambda s, q, kv: s)


def test_capture_of_an_unsupported_type():
    with pytest.raises(treadle.TraceError, match="complex"):
        flex_attention(x, x, x, lambda s, b, h, q, kv: s + torch.ones(16, dtype=torch.complex64)[q].real)


def test_capture_on_another_device():
    far = torch.empty(16, device="meta")
    with pytest.raises(ValueError, match="meta"):
        flex_attention(x, x, x, lambda s, b, h, q, kv: s + far[q])


def test_after_an_error_all_goes_on():
    good = flex_attention(x, x, x, mods.alibi)
    for mod, _ in untraceable[:4]:
        with pytest.raises(treadle.TraceError):
            flex_attention(x, x, x, mod)
    assert torch.equal(flex_attention(x, x, x, mods.alibi), good)
    assert torch.equal(torch.ones(3)[torch.tensor(1)], torch.tensor(1.0))


def test_unknown_kernel_options_are_refused():
    with pytest.raises(ValueError, match="'BLOCK_MM', which is unknown"):
        flex_attention(x, x, x, kernel_options={"BLOCK_MM": 3})


def test_torchs_wording():
    """Of messages that its users match on."""
    mask = treadle.torch.create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 64, 64)
    for wanted, options in {
        "block_mask was created for": {"block_mask": mask},
        "Cannot specify both return_lse and return_aux": {"return_lse": True, "return_aux": treadle.torch.AuxRequest()},
        "BACKEND cannot be combined with legacy FORCE_USE_FLEX_ATTENTION": {
            "kernel_options": {"BACKEND": "TRITON", "FORCE_USE_FLEX_ATTENTION": True}
        },
    }.items():
        with pytest.raises((ValueError, RuntimeError), match=wanted):
            flex_attention(x, x, x, **options)


def test_kernel_options_are_taken():
    options = {"BLOCK_M": 64, "num_warps": 8, "PRESCALE_QK": True, "BACKEND": "TRITON", "fwd_BLOCK_N": 32}
    assert torch.equal(flex_attention(x, x, x, kernel_options=options), flex_attention(x, x, x))




def test_random_numbers_in_mods():
    for draw in (lambda: torch.rand(()), lambda: torch.randn(16)[0], lambda: torch.bernoulli(torch.ones(()) / 2)):
        with pytest.raises(treadle.TraceError, match="same number.*test_errors.py, line"):
            flex_attention(x, x, x, lambda s, b, h, q, kv: s + draw())
