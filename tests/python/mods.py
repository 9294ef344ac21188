"""The mods that PyTorch tests its flex_attention with."""

import torch

H = 4  # heads, for ALiBi


def identity(score, b, h, q, kv):
    return score


def times_two(score, b, h, q, kv):
    return score * 2


def squared(score, b, h, q, kv):
    return score * score


def causal(score, b, h, q, kv):
    return torch.where(q >= kv, score, float("-inf"))


def inverse_causal(score, b, h, q, kv):
    return torch.where(q <= kv, score, float("-inf"))


def relative_bias(score, b, h, q, kv):
    return score + (q - kv)


def relative_causal(score, b, h, q, kv):
    return torch.where(q >= kv, score + (q - kv), float("-inf"))


def relative_causal_back(score, b, h, q, kv):
    return torch.where(q >= kv, score + (kv - q), float("-inf"))


def alibi(score, b, h, q, kv):
    return score + torch.exp2(-((h + 1) * 8.0 / H)) * (kv - q)


def trig(score, b, h, q, kv):
    return torch.sin(torch.cos(score)) + torch.tan(b)


def trig2(score, b, h, q, kv):
    return torch.cos(score) * torch.sin(score) + torch.tan(b)


score_mods = [identity, times_two, squared, causal, inverse_causal, relative_bias, relative_causal, alibi]


def noop_mask(b, h, q, kv):
    return q >= 0


def causal_mask(b, h, q, kv):
    return q >= kv


def inverse_causal_mask(b, h, q, kv):
    return q <= kv


def window_mask(b, h, q, kv):
    return (q >= kv) & (q - kv < 32)


mask_mods = [noop_mask, causal_mask, inverse_causal_mask, window_mask]
dtypes = [torch.float32, torch.bfloat16, torch.float16]


def name(x):
    """A readable id of a parameter."""
    return getattr(x, "__name__", str(x).replace("torch.", ""))
