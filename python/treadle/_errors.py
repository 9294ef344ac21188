"""What goes wrong while a mod is traced, and where in the user's code."""

from __future__ import annotations

import linecache
import sys


class TraceError(RuntimeError):
    """A mod does something that cannot be compiled. No TypeError: torch's operators would try something else then."""


def where_in_user_code() -> str:
    """ " (file.py, line 3: return score + f(q))" of the innermost line that is not Treadle's, torch's or NumPy's."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] not in ("treadle", "torch", "numpy"):
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            return f" ({frame.f_code.co_filename}, line {frame.f_lineno}: {line})"
        frame = frame.f_back
    return ""
