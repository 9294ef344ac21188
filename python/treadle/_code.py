"""What the code of a function can look at: reads_of.

Only instructions that are listed here are known to compute with what they are given and to do nothing else. A function
with any other is not understood, and is called anew each time.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import NamedTuple, Optional

# Of Python 3.10 to 3.14.
_KNOWN = frozenset("""
    BINARY_ADD BINARY_AND BINARY_FLOOR_DIVIDE BINARY_LSHIFT BINARY_MATRIX_MULTIPLY BINARY_MODULO BINARY_MULTIPLY BINARY_OP
    BINARY_OR BINARY_POWER BINARY_RSHIFT BINARY_SLICE BINARY_SUBSCR BINARY_SUBTRACT BINARY_TRUE_DIVIDE BINARY_XOR
    BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SLICE BUILD_TUPLE CACHE CALL CALL_FUNCTION CALL_FUNCTION_KW CALL_KW
    CALL_METHOD COMPARE_OP CONTAINS_OP COPY COPY_FREE_VARS DUP_TOP DUP_TOP_TWO END_FOR EXTENDED_ARG FOR_ITER GET_ITER IS_OP
    JUMP_ABSOLUTE JUMP_BACKWARD JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP KW_NAMES LIST_EXTEND LIST_TO_TUPLE
    LOAD_ATTR LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK
    LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_METHOD LOAD_SMALL_INT NOP NOT_TAKEN POP_ITER POP_JUMP_BACKWARD_IF_FALSE
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PRECALL PUSH_NULL RESUME RETURN_CONST RETURN_VALUE ROT_FOUR ROT_THREE
    ROT_TWO STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST SWAP TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT
    UNARY_POSITIVE UNPACK_SEQUENCE
""".split())
_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_GENERATED = 0x20 | 0x80 | 0x100 | 0x200  # flags of generators and coroutines


class Reads(NamedTuple):
    globals: tuple  # names
    attributes: frozenset  # names, of whatever objects


def reads_of(code: CodeType) -> Optional[Reads]:
    """None if the code may do something else than to compute with what it reads."""
    if code.co_flags & _GENERATED or code.co_cellvars:
        return None
    names: dict = {}
    attributes = set()
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname not in _KNOWN:
            return None
        if instruction.opname == "IS_OP" and not (before.opname == "LOAD_CONST" and before.argval is None):
            return None  # what is equal may not be the same
        before = instruction
        if instruction.opname == "LOAD_GLOBAL":
            names[instruction.argval] = None
        elif instruction.opname in _ATTRIBUTE:
            if instruction.argval.startswith("__"):
                return None  # the insides of an object
            attributes.add(instruction.argval)
    return Reads(tuple(names), frozenset(attributes))
