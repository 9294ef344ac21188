"""When a result counts as right.

gold is the same call in float64 and ref the plain one in the inputs' type. The mean error against gold may be as large
as ref's, with a little more for the order of sums: `close(x, gold, ref)`.

    check(q, k, v, score_mod, mask_mod)             forward, against torch's flex_attention
    check_gradients(q, k, v, score_mod, mask_mod)   forward and gradients, against `dense`
"""

import contextlib
import math

import torch
import torch.nn.attention.flex_attention as torch_flex
from treadle.torch import AuxRequest, create_block_mask, flex_attention

FUDGE = {torch.float64: 2, torch.float32: 2, torch.bfloat16: 1.1, torch.float16: 1.1}
LEAST = {torch.float64: 1e-14, torch.float32: 1e-7, torch.bfloat16: 1e-7, torch.float16: 1e-7}


def close(x, gold, ref, fudge=None, what="result"):
    assert x.shape == gold.shape, f"{what}: shape {tuple(x.shape)} instead of {tuple(gold.shape)}"
    assert x.dtype == ref.dtype, f"{what}: {x.dtype} instead of {ref.dtype}"
    assert not x.isnan().any(), f"{what} has NaN"
    x64, ref64 = x.detach().double(), ref.detach().double()
    finite = gold.isfinite()
    assert torch.equal(x64[~finite], gold[~finite]), f"{what}: other infinities"
    if not finite.any():
        return
    error = (x64 - gold)[finite].abs().mean().item()
    allowed = (ref64 - gold)[finite].abs().mean().item() * (fudge or FUDGE[x.dtype])
    least = LEAST[x.dtype] * max(1.0, gold[finite].abs().mean().item())
    if gold.numel() == 1:  # an error of one number does not average out, and ref's may be small by luck
        least *= 10
    assert error <= max(allowed, least), f"{what}: mean error {error:.3g}, allowed {allowed:.3g}"


def inputs(B=2, H=4, Q=70, D=16, *, Hkv=None, KV=None, Dv=None, Bkv=None, dtype=torch.float32, requires_grad=False):
    """q, k and v of normal numbers."""
    Hkv, KV, Dv, Bkv = Hkv or H, Q if KV is None else KV, Dv or D, Bkv or B
    shapes = (B, H, Q, D), (Bkv, Hkv, KV, D), (Bkv, Hkv, KV, Dv)
    return [torch.randn(s, dtype=torch.float64).to(dtype).requires_grad_(requires_grad) for s in shapes]


@contextlib.contextmanager
def one_thread():
    """For the small sums of an oracle: threads that wait for each other cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def of_torch(q, k, v, score_mod=None, mask_mod=None, *, B=None, H=None, block_size=128, **options):
    """torch's flex_attention: materializes all scores."""
    mask = None
    if mask_mod is not None:
        mask = torch_flex.create_block_mask(mask_mod, B, H, q.size(2), k.size(2), "cpu", BLOCK_SIZE=block_size)
    return torch_flex.flex_attention(q, k, v, score_mod, mask, **options)


def of_treadle(q, k, v, score_mod=None, mask_mod=None, *, B=None, H=None, block_size=128, **options):
    mask = None
    if mask_mod is not None:
        mask = create_block_mask(mask_mod, B, H, q.size(2), k.size(2), BLOCK_SIZE=block_size)
    return flex_attention(q, k, v, score_mod, mask, **options)


def check(q, k, v, score_mod=None, mask_mod=None, *, fudge=None, **options):
    """Forward against torch's. Gives Treadle's result."""
    with torch.no_grad():
        out = of_treadle(q, k, v, score_mod, mask_mod, **options)
        ref = of_torch(q, k, v, score_mod, mask_mod, **options)
        gold = of_torch(q.double(), k.double(), v.double(), score_mod, mask_mod, **options)
    close(out, gold, ref, fudge, "out")
    return out


def over_pairs(mod, *sizes):
    """mod for all pairs at once: mod(b, h, q, kv), or mod(score, b, h, q, kv) with scores [B, H, Q, KV]."""
    indices = [torch.arange(n) for n in sizes]

    def apply(*scores):
        f = mod
        for axis in (3, 2, 1, 0):
            dims = [None] * 4
            dims[axis] = 0
            f = torch.vmap(f, in_dims=(*[0] * len(scores), *dims))
        return f(*scores, *indices)

    return apply


def scores_of(q, k, scale):
    """[B, H, Q, KV] in float32, or float64 if q is."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    scale = 1 / math.sqrt(q.size(3)) if scale is None else scale
    return (q.to(wide) @ repeated(k, q).to(wide).transpose(-1, -2)) * scale


def repeated(t, q):
    """Keys or values for every head and batch of q."""
    return t.repeat_interleave(q.size(1) // t.size(1), 1).expand(q.size(0), -1, -1, -1)


def summed(gradient, t):
    """The gradient of `t` from that of repeated(t)."""
    heads = t.size(1)
    gradient = gradient.unflatten(1, (heads, -1)).sum(2)
    return gradient if t.size(0) == gradient.size(0) else gradient.sum(0, keepdim=True)


def dense(q, k, v, score_mod=None, mask_mod=None, scale=None):
    """out and lse by the formula; whatever the mods read gets its gradient from autograd."""
    scores = scores_of(q, k, scale)
    sizes = scores.shape
    if score_mod is not None:
        scores = over_pairs(score_mod, *sizes)(scores).to(scores.dtype)
    if mask_mod is not None:
        scores = torch.where(over_pairs(mask_mod, *sizes)(), scores, -math.inf)
    seen = (scores > -math.inf).any(-1, keepdim=True)
    weights = torch.softmax(torch.where(seen, scores, 0), -1) * seen
    return weights.to(q.dtype) @ repeated(v, q).to(q.dtype), torch.logsumexp(scores, -1)


def dense_gradients(q, k, v, score_mod, mask_mod, learned, dout, dlse=None, scale=None):
    """out and the gradients of q, k, v and what is learned, rounded where torch's eager flex_attention rounds."""
    with torch.no_grad():
        out, lse = dense(q, k, v, score_mod, mask_mod, scale)
        before = scores_of(q, k, scale)
    before.requires_grad_()
    sizes = before.shape
    after = before * 1 if score_mod is None else over_pairs(score_mod, *sizes)(before).to(before.dtype)
    visible = torch.tensor(True) if mask_mod is None else over_pairs(mask_mod, *sizes)()
    with torch.no_grad():
        weights = torch.exp(torch.where(visible, after, -math.inf) - lse[..., None])
        weights = torch.where(lse[..., None] == -math.inf, 0, weights)
        wide_dout = dout.to(weights.dtype)
        dweights = wide_dout @ repeated(v, q).to(weights.dtype).transpose(-1, -2)
        row = (out.to(weights.dtype) * wide_dout).sum(-1, keepdim=True)
        dafter = weights * (dweights - row + (0 if dlse is None else dlse[..., None]))
    dbefore, *dlearned = torch.autograd.grad(after, (before, *learned), dafter, materialize_grads=True)
    scale = 1 / math.sqrt(q.size(3)) if scale is None else scale
    dbefore = torch.where(visible, (dbefore * scale).to(q.dtype), 0)
    dq = dbefore @ repeated(k, q).to(q.dtype)
    dk = summed(dbefore.transpose(-1, -2) @ q, k)
    dv = summed(weights.to(q.dtype).transpose(-1, -2) @ dout, v)
    return out, dq, dk, dv, *dlearned


def check_gradients(q, k, v, make_score_mod=None, mask_mod=None, learned=(), *, dlse=False, fudge=None, **options):
    """Forward and all gradients against the formula; make_score_mod(*learned) gives the score mod."""
    make = make_score_mod or (lambda: None)
    dout = torch.randn(*q.shape[:3], v.shape[3], dtype=torch.float64)
    drows = torch.randn(q.shape[:3], dtype=torch.float64) if dlse else None

    def leaves(convert):
        return [convert(t.detach()).clone().requires_grad_() for t in (q, k, v, *learned)]

    def formula(convert):
        tensors = leaves(convert)
        parts = [t.detach() for t in tensors[:3]]
        rows = drows if drows is None or parts[0].dtype == torch.float64 else drows.float()
        with one_thread():
            return dense_gradients(
                *parts, make(*tensors[3:]), mask_mod, tensors[3:], dout.to(q.dtype).to(parts[0].dtype), rows,
                options.get("scale"),
            )  # fmt: skip

    tensors = leaves(lambda t: t)
    out, aux = of_treadle(
        *tensors[:3], make(*tensors[3:]), mask_mod, return_aux=AuxRequest(lse=True), **options
    )
    roots, seeds = ([out, aux.lse], [dout.to(out.dtype), drows.to(aux.lse.dtype)]) if dlse else ([out], [dout.to(out.dtype)])
    got = (out, *torch.autograd.grad(roots, tensors, seeds, materialize_grads=True))
    names = ("out", "dq", "dk", "dv", *(f"gradient of learned {i}" for i in range(len(learned))))
    for name, a, gold, ref in zip(names, got, formula(lambda t: t.double()), formula(lambda t: t)):
        close(a, gold, ref, fudge, name)
    return got
