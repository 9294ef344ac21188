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


def dense(q, k, v, score_mod=None, mask_mod=None, scale=None):
    """out and lse by the formula; whatever the mods read gets its gradient from autograd."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    group = q.size(1) // k.size(1)
    keys, values = (t.repeat_interleave(group, 1).expand(q.size(0), -1, -1, -1) for t in (k, v))
    scores = (q.to(wide) @ keys.to(wide).transpose(-1, -2)) * (1 / math.sqrt(q.size(3)) if scale is None else scale)
    sizes = scores.shape
    if score_mod is not None:
        scores = over_pairs(score_mod, *sizes)(scores).to(wide)
    if mask_mod is not None:
        visible = over_pairs(mask_mod, *sizes)()
        scores = torch.where(visible, scores, -math.inf)
    seen = (scores > -math.inf).any(-1, keepdim=True)
    lse = torch.logsumexp(scores, -1)
    weights = torch.softmax(torch.where(seen, scores, 0), -1) * seen
    return weights.to(q.dtype) @ values.to(q.dtype), lse


def check_gradients(q, k, v, make_score_mod=None, mask_mod=None, learned=(), *, dlse=False, fudge=None, **options):
    """Forward and all gradients against the formula; make_score_mod(*learned) gives the score mod."""
    make = make_score_mod or (lambda: None)
    dout = torch.randn(*q.shape[:3], v.shape[3], dtype=torch.float64)
    drows = torch.randn(q.shape[:3], dtype=torch.float64) if dlse else None
    scale = options.get("scale")

    def run(attend, convert):
        leaves = [convert(t.detach()).clone().requires_grad_() for t in (q, k, v, *learned)]
        # Strides as given: what gradients look like in memory depends on them.
        leaves = [
            leaf if leaf.stride() == t.stride() else torch.empty_strided(t.shape, t.stride(), dtype=leaf.dtype).copy_(leaf.detach()).requires_grad_()
            for leaf, t in zip(leaves, (q, k, v, *learned))
        ]
        out, lse = attend(*leaves[:3], make(*leaves[3:]))
        roots, seeds = [out], [dout.to(out.dtype)]
        if dlse:
            roots.append(lse)
            seeds.append(drows.to(lse.dtype))
        return (out, *torch.autograd.grad(roots, leaves, seeds, materialize_grads=True))

    def treadle(q, k, v, score_mod):
        out, aux = of_treadle(q, k, v, score_mod, mask_mod, return_aux=AuxRequest(lse=True), **options)
        return out, aux.lse

    def plain(q, k, v, score_mod):
        return dense(q, k, v, score_mod, mask_mod, scale)

    got = run(treadle, lambda t: t)
    with one_thread():
        ref = run(plain, lambda t: t)
        gold = run(plain, lambda t: t.double())
    names = ("out", "dq", "dk", "dv", *(f"gradient of learned {i}" for i in range(len(learned))))
    for name, a, g, r in zip(names, got, gold, ref):
        close(a, g, r, fudge, name)
    return got
