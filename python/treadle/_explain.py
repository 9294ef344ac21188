"""What Treadle makes of mods, as human-readable text."""

from __future__ import annotations

from ._program import Program, function_for, numbers_of


def explain_program(program: Program) -> str:
    """The simplified graphs, then the captures and the numbers that they read."""
    function = function_for(program, (), None)
    score_mod, mask = function.score_mod, function.mask
    both = f"{score_mod}\n{mask}"
    captures = [(i, program.captures[i]) for i in numbers_of("c", both)]
    sections = {
        "score mod": score_mod.splitlines(),
        "mask": mask.splitlines(),
        "captures": [f"c{i}: {buffer.dtype} {list(buffer.shape)}" for i, buffer in captures],
        "numbers": [f"s{i} = {program.scalars[i]}" for i in numbers_of("s", both)],
    }
    return "\n".join([line for title, lines in sections.items() if lines for line in _section(title, lines)])


def _section(title: str, lines: list) -> list:
    return [f"{title}:", *[f"  {line}" for line in lines]]
