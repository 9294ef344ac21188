"""What goes wrong while a mod is traced, and where in the user's code."""

from __future__ import annotations

import linecache
import sys


class TraceError(RuntimeError):
    """A mod does something that cannot be compiled. No TypeError: torch's operators would try something else then."""


def where_in_user_code() -> str:
    """ " (file.py, line 3: return score + f(q))" of the innermost line that is not Treadle's, torch's or NumPy's."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_dynamo_compiling():
        from .torch._graph_trace import where_in_user_code as where_in_graph

        return where_in_graph()
    frame = sys._getframe(1)
    while frame is not None and is_of_package(frame.f_globals):
        frame = frame.f_back
    return "" if frame is None else place(frame.f_code.co_filename, frame.f_lineno)


def is_of_package(names: dict) -> bool:
    """Whether these are the globals of a module of Treadle, torch or NumPy."""
    return names.get("__name__", "").split(".")[0] in ("treadle", "torch", "numpy")


def place(file: str, line: int) -> str:
    return f" ({file}, line {line}: {linecache.getline(file, line).strip()})"
