"""XLA's foreign function interface, as far as handlers of ours need it: its C structs, read with ctypes.

In: a Python function of arrays and a text. Out: what jax.ffi.register_ffi_target takes. The structs are those of XLA's
xla/ffi/api/c_api.h, whose layout its major version promises; so no header of jax's is needed while Treadle is built.
"""

from __future__ import annotations

import ctypes
import traceback
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Callable

from .._program import Array, types

_MAJOR = 0  # of the interface
_EXECUTE, _METADATA, _STRING = 3, 1, 4  # a stage, an extension, a type of attribute
_INVALID_ARGUMENT = 3  # a code of errors
# XLA_FFI_DataType: ours.
_TYPES = {
    1: types["bool"], 2: types["i8"], 3: types["i16"], 4: types["i32"], 5: types["i64"], 6: types["u8"], 10: types["f16"],
    11: types["f32"], 12: types["f64"], 16: types["bf16"], 19: types["e5m2"], 20: types["e4m3"],
}  # fmt: skip


def _struct(name: str, *fields, sized: bool = True) -> type:
    first = [("struct_size", c_size_t), ("extension_start", c_void_p)] if sized else []
    return type(name, (Structure,), {"_fields_": first + list(fields)})


_Version = _struct("Version", ("major", c_int), ("minor", c_int))
_Span = _struct("Span", ("pointer", c_void_p), ("length", c_size_t), sized=False)
_Buffer = _struct("Buffer", ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)))
_Operands = _struct("Operands", ("size", c_int64), ("types", POINTER(c_int)), ("items", POINTER(POINTER(_Buffer))))
_Attributes = _struct(
    "Attributes", ("size", c_int64), ("types", POINTER(c_int)), ("names", POINTER(POINTER(_Span))),
    ("items", POINTER(c_void_p)),
)  # fmt: skip
_ErrorArguments = _struct("ErrorArguments", ("message", c_char_p), ("code", c_int))
_CreateError = ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))
_Api = _struct("Api", ("version", _Version), ("internal", c_void_p), ("create_error", _CreateError))
_Frame = _struct(
    "Frame", ("api", POINTER(_Api)), ("context", c_void_p), ("stage", c_int), ("arguments", _Operands),
    ("results", _Operands), ("attributes", _Attributes), ("future", c_void_p),
)  # fmt: skip
_Metadata = _struct(
    "Metadata", ("size", c_size_t), ("version", _Version), ("traits", c_uint32), ("state", c_int64), sized=False
)
_MetadataExtension = _struct(
    "MetadataExtension", ("size", c_size_t), ("type", c_int32), ("next", c_void_p), ("metadata", POINTER(_Metadata)),
    sized=False,
)  # fmt: skip
_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))


def handler(run: Callable):
    """run(arguments, results, text) as a handler; arrays are contiguous. Keep it as long as jax may call it."""

    def handle(pointer):
        frame = pointer.contents
        try:
            if frame.extension_start and _tell_version(frame):
                return None
            if frame.stage == _EXECUTE:
                run(_arrays(frame.arguments), _arrays(frame.results), _text(frame.attributes))
        except BaseException as error:  # nothing may leave through XLA
            name = type(error).__name__
            message = f"{name}: {error}" if str(error) else traceback.format_exc()
            arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, message.encode(), _INVALID_ARGUMENT)
            return frame.api.contents.create_error(ctypes.byref(arguments))
        return None

    return _Handler(handle)


def _tell_version(frame) -> bool:
    """XLA asks for it when a handler is registered, and for nothing else then."""
    extension = ctypes.cast(frame.extension_start, POINTER(_MetadataExtension)).contents
    if extension.type != _METADATA:
        return False
    version = extension.metadata.contents.version
    version.major, version.minor = _MAJOR, frame.api.contents.version.minor if frame.api else 0
    return True


def _arrays(operands) -> list:
    return [_array(operands.items[i].contents) for i in range(operands.size)]


def _array(buffer) -> Array:
    shape = tuple(buffer.dims[: buffer.rank]) if buffer.rank else ()
    if buffer.dtype not in _TYPES:
        raise TypeError(f"XLA's element type {buffer.dtype} is not supported")
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return (buffer.data or 0, _TYPES[buffer.dtype], shape, tuple(reversed(strides)))


def _text(attributes) -> str:
    """The only attribute."""
    if attributes.size != 1 or attributes.types[0] != _STRING:
        raise TypeError(f"{attributes.size} attributes were given; one text is expected")
    span = ctypes.cast(attributes.items[0], POINTER(_Span)).contents
    return ctypes.string_at(span.pointer, span.length).decode()
