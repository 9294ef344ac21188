"""Programs whose masks are the same text whatever the score mod is, so that one plan serves all calls with a mask."""

from __future__ import annotations

import functools
import re

from ..._program import Program

_words = re.compile(r"\b[cst]\d+\b")


def mask_first(program: Program) -> tuple:
    """The same program, in which what the mask reads comes first, in its order; and where its captures were before."""
    if not program.mask:
        return program, list(range(len(program.captures)))
    texts = program.score_mod, program.mask, *program.from_end
    (score, mask, score_from_end, mask_from_end), captures, scalars = _in_order(
        texts, len(program.captures), len(program.scalars)
    )
    ordered = Program(
        score, mask, tuple([program.captures[i] for i in captures]), tuple([program.scalars[i] for i in scalars]),
        (score_from_end, mask_from_end),
    )  # fmt: skip
    return ordered, captures


@functools.lru_cache(1024)
def _in_order(texts: tuple, captures: int, scalars: int) -> tuple:
    _, mask, _, mask_from_end = texts
    words = list(dict.fromkeys(_words.findall(mask) + _words.findall(mask_from_end)))
    orders = {}
    for letter, count in (("c", captures), ("s", scalars)):
        first = [n for n in (int(word[1:]) for word in words if word[0] == letter) if n < count]
        orders[letter] = first + [n for n in range(count) if n not in first]
    names = {f"{letter}{old}": f"{letter}{new}" for letter, order in orders.items() for new, old in enumerate(order)}
    # Values of the mask have names of its own, in its own order.
    values = {word: f"t{i}" for i, word in enumerate([word for word in words if word[0] == "t"])}

    def renamed(text: str, known: dict) -> str:
        return _words.sub(lambda found: known.get(found[0], found[0]), text)

    in_mask = {**names, **values}
    score_mod, _, score_from_end, _ = texts
    scores, masks = (score_mod, score_from_end), (mask, mask_from_end)
    (score_mod, score_from_end), (mask, mask_from_end) = (
        [renamed(text, known) for text in of] for of, known in ((scores, names), (masks, in_mask))
    )
    return (score_mod, mask, score_from_end, mask_from_end), orders["c"], orders["s"]
