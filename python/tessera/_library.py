# SPDX-License-Identifier: Apache-2.0
"""The C interface: structs and functions of tessera.h and tessera_training.h, and statuses.

A class whose name begins with tsr_ is the struct of that name; tests/package compares each member
with the header's. The library is $TESSERA_LIBRARY, else the one beside this file (in a wheel), else
the system's.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import enum
import operator
import os
import pathlib
import threading
import time
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Callable, NamedTuple, Optional

_NAME = "libtessera_training.so.0"


class Code(enum.IntEnum):
    """What kind of failure an Error is. The numbers up to 16 are gRPC's.

    Example: `if error.code is tessera.Code.NOT_FOUND: ...`
    """

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16
    BUSY = 17


class Error(Exception):
    """A call failed. The text is one line that names the file, key or tensor; `code` is its kind.

    Example:
        try:
            model = tessera.Model("missing")
        except tessera.Error as error:
            print(error, error.code.name)
    """

    __module__ = "tessera"

    def __init__(self, message: str, code: Code = Code.UNKNOWN) -> None:
        super().__init__(message)
        self.code = code


# ---- Values --------------------------------------------------------------------------------------
# ctypes cuts numbers off that a C type cannot hold, and texts at a NUL; here both are refused.

_SIGNED = (c_int, c_int64)
_UNSIGNED = (c_size_t, c_uint64)


def given(kind: Any, name: str, value: Any) -> Any:
    """A value for a member or an argument of a C type; NumPy's numbers are taken as Python's."""
    if isinstance(value, kind):
        return value
    if kind in _SIGNED or kind in _UNSIGNED:
        return _whole(kind, name, value)
    if kind is c_double and not isinstance(value, float):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise Error(f"{name}: {value!r} is not a number", Code.INVALID_ARGUMENT) from None
    if kind is c_char_p and isinstance(value, bytes):
        return ended(value)
    return value


def _whole(kind: Any, name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise Error(f"{name}: {value!r} is not a whole number", Code.INVALID_ARGUMENT) from None
    bits = 8 * ctypes.sizeof(kind)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if kind in _UNSIGNED:
        least, most = 0, (1 << bits) - 1
    if not least <= number <= most:
        bound = f"less than {least}" if number < least else f"more than {most}"
        raise Error(f"{name} is {number}, which is {bound}", Code.INVALID_ARGUMENT)
    return number


def ended(text: bytes) -> bytes:
    """The bytes of a path or a setting, which C ends at the first NUL."""
    if 0 in text:
        shown = text.decode("utf-8", "replace")
        raise Error(f"{shown!r} has a NUL character", Code.INVALID_ARGUMENT)
    return text


def utf8(text: str) -> bytes:
    """The bytes of a text."""
    if not isinstance(text, str):
        raise Error(f"{text!r} is not a text", Code.INVALID_ARGUMENT)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Error(f"the text is not Unicode: {error.reason}", Code.INVALID_ARGUMENT) from None


# ---- Structs -------------------------------------------------------------------------------------


class _Struct(ctypes.Structure):
    """A struct whose members are checked as they are set."""

    def __setattr__(self, name: str, value: Any) -> None:
        kinds: Any = dict(self._fields_)
        super().__setattr__(name, given(kinds[name], name, value) if name in kinds else value)


logger_type = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
progress_type = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


class tsr_configuration(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("allocator", c_void_p),
        ("logger", logger_type),
        ("logger_user", c_void_p),
        ("threads", c_int),
    ]


class tsr_named_tensor(_Struct):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("rank", c_size_t),
        ("shape", POINTER(c_int64)),
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]


class tsr_load_options(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("copy_weights", c_int),
        ("tokenizer", c_char_p),
        ("progress", progress_type),
        ("progress_user", c_void_p),
        ("adapters", POINTER(c_char_p)),
        ("num_adapters", c_size_t),
        ("weights", c_int),
    ]


class tsr_model_info(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("model_type", c_char_p),
        ("architecture", c_char_p),
        ("config", c_char_p),
        ("parameters", c_int64),
        ("vocab_size", c_int64),
        ("max_positions", c_int64),
        ("hidden_size", c_int64),
        ("labels", c_int64),
        ("generates", c_int),
        ("has_tokenizer", c_int),
        ("image_channels", c_int64),
        ("image_height", c_int64),
        ("image_width", c_int64),
        ("embedding_size", c_int64),
        ("bos_token", c_int64),
        ("eos_token", c_int64),
        ("pad_token", c_int64),
        ("end_tokens", POINTER(c_int64)),
        ("num_end_tokens", c_size_t),
    ]


class tsr_tokenize_options(_Struct):
    _fields_ = [("size", c_size_t), ("text_only", c_int), ("special_as_text", c_int)]


class tsr_detokenize_options(_Struct):
    _fields_ = [("size", c_size_t), ("skip_special", c_int)]


class tsr_context_options(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("threads", c_int),
        ("memory_limit", c_uint64),
        ("adapter", c_int),
        ("kept_texts", c_int64),
    ]


class tsr_context_info(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("kept_texts", c_int64),
        ("kept_tokens", c_int64),
        ("cache_bytes", c_uint64),
        ("memory_bytes", c_uint64),
        ("memory_peak", c_uint64),
        ("tokens_read", c_int64),
        ("tokens_reused", c_int64),
        ("tokens_written", c_int64),
    ]


class tsr_memory_info(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("bytes", c_uint64),
        ("peak", c_uint64),
        ("reserved", c_uint64),
    ]


class tsr_forward_options(_Struct):
    _fields_ = [("size", c_size_t), ("all_hidden_states", c_int)]


class tsr_embed_options(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("pooling", c_int),
        ("normalise", c_int),
        ("prompt", c_char_p),
        ("max_tokens", c_int64),
    ]


class tsr_logprob(_Struct):
    _fields_ = [("id", c_int64), ("logprob", c_double)]


class tsr_logits(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("ids", POINTER(c_int64)),
        ("num_ids", c_size_t),
        ("logits", POINTER(c_double)),
        ("num_logits", c_size_t),
        ("sequence", c_int64),
    ]


logits_callback = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(tsr_logits))


class tsr_generate_options(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("max_new_tokens", c_int64),
        ("sampling", c_int),
        ("temperature", c_double),
        ("top_k", c_int64),
        ("top_p", c_double),
        ("repetition_penalty", c_double),
        ("num_beams", c_int64),
        ("length_penalty", c_double),
        ("stop", POINTER(c_char_p)),
        ("stop_count", c_size_t),
        ("seed", c_uint64),
        ("settings", c_void_p),
        ("json_schema", c_char_p),
        ("logprobs", c_int64),
        ("logits", logits_callback),
        ("logits_user", c_void_p),
    ]


class tsr_token(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("id", c_int64),
        ("text", c_void_p),
        ("length", c_size_t),
        ("end", c_int),
        ("sequence", c_int64),
        ("logprob", c_double),
        ("top", POINTER(tsr_logprob)),
        ("num_top", c_size_t),
    ]


class tsr_train_options(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("seed", c_uint64),
        ("optimizer", c_char_p),
        ("optimizer_options", c_char_p),
        ("learning_rate", c_double),
        ("weight_decay", c_double),
        ("max_grad_norm", c_double),
        ("accumulation_steps", c_int64),
        ("label_smoothing", c_double),
        ("dtype", c_int),
        ("products", c_int),
        ("config_changes", c_char_p),
        ("new_head", c_int),
        ("tokenizer", c_char_p),
        ("threads", c_int),
        ("memory_limit", c_uint64),
        ("adapter", c_char_p),
    ]


class tsr_train_info(_Struct):
    _fields_ = [
        ("size", c_size_t),
        ("updates", c_uint64),
        ("skipped", c_uint64),
        ("accumulated", c_int64),
        ("learning_rate", c_double),
        ("grad_norm", c_double),
        ("parameters", c_int64),
        ("config", c_char_p),
    ]


token_callback = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(tsr_token))

# ---- Functions -----------------------------------------------------------------------------------

_TENSORS_OUT = [POINTER(POINTER(tsr_named_tensor)), POINTER(c_size_t)]
_GENERATE_END = [POINTER(tsr_generate_options), token_callback, c_void_p]

# Those that return a status, by their arguments.
_STATUS_FUNCTIONS: dict[str, list[Any]] = {
    "tsr_configure": [POINTER(tsr_configuration)],
    "tsr_tensors_release": [POINTER(tsr_named_tensor)],
    "tsr_model_load": [c_char_p, POINTER(tsr_load_options), POINTER(c_void_p)],
    "tsr_model_load_memory": [c_void_p, c_size_t, POINTER(tsr_load_options), POINTER(c_void_p)],
    "tsr_model_describe": [c_void_p, POINTER(tsr_model_info)],
    "tsr_model_release": [c_void_p],
    "tsr_tokenize": [
        c_void_p,
        c_char_p,
        c_size_t,
        POINTER(tsr_tokenize_options),
        POINTER(c_int64),
        c_size_t,
        POINTER(c_size_t),
    ],
    "tsr_detokenize": [
        c_void_p,
        POINTER(c_int64),
        c_size_t,
        POINTER(tsr_detokenize_options),
        c_char_p,
        c_size_t,
        POINTER(c_size_t),
    ],
    "tsr_pixel_values": [
        c_void_p,
        c_void_p,
        c_int64,
        c_int64,
        c_int64,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
    ],
    "tsr_context_create": [c_void_p, POINTER(tsr_context_options), POINTER(c_void_p)],
    "tsr_context_cancel": [c_void_p],
    "tsr_context_release": [c_void_p],
    "tsr_context_fork": [c_void_p, POINTER(c_void_p)],
    "tsr_context_clear": [c_void_p],
    "tsr_context_save": [c_void_p, c_char_p],
    "tsr_context_restore": [c_void_p, c_char_p],
    "tsr_context_save_memory": [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)],
    "tsr_context_restore_memory": [c_void_p, c_char_p, c_size_t],
    "tsr_context_describe": [c_void_p, POINTER(tsr_context_info)],
    "tsr_memory": [POINTER(tsr_memory_info)],
    "tsr_forward_with": [
        c_void_p,
        POINTER(tsr_named_tensor),
        c_size_t,
        POINTER(tsr_forward_options),
        *_TENSORS_OUT,
    ],
    "tsr_embed": [
        c_void_p,
        POINTER(c_int64),
        c_size_t,
        POINTER(tsr_embed_options),
        c_void_p,
        c_size_t,
    ],
    "tsr_embed_text": [
        c_void_p,
        c_char_p,
        c_size_t,
        POINTER(tsr_embed_options),
        c_void_p,
        c_size_t,
    ],
    "tsr_rerank": [
        c_void_p,
        c_char_p,
        c_size_t,
        POINTER(c_char_p),
        POINTER(c_size_t),
        c_size_t,
        POINTER(c_double),
    ],
    "tsr_logprobs": [
        c_void_p,
        POINTER(c_int64),
        c_size_t,
        c_size_t,
        POINTER(c_double),
        POINTER(tsr_logprob),
    ],
    "tsr_generate_options_set": [POINTER(tsr_generate_options), c_char_p, c_char_p],
    "tsr_generate": [c_void_p, POINTER(c_int64), c_size_t, *_GENERATE_END],
    "tsr_generate_text": [c_void_p, c_char_p, c_size_t, *_GENERATE_END],
    "tsr_generate_batch": [
        c_void_p,
        POINTER(POINTER(c_int64)),
        POINTER(c_size_t),
        c_size_t,
        *_GENERATE_END,
    ],
    "tsr_step": [
        c_void_p,
        POINTER(c_int64),
        c_size_t,
        POINTER(tsr_generate_options),
        POINTER(c_int64),
        POINTER(c_double),
        c_size_t,
    ],
    "tsr_chat": [c_void_p, c_char_p, c_size_t, *_GENERATE_END],
    "tsr_chat_prompt": [
        c_void_p,
        c_char_p,
        c_size_t,
        POINTER(c_int64),
        c_size_t,
        POINTER(c_size_t),
    ],
    "tsr_chat_message": [
        c_void_p,
        c_char_p,
        c_size_t,
        POINTER(c_int64),
        c_size_t,
        c_char_p,
        c_size_t,
        POINTER(c_size_t),
    ],
    "tsr_train_create": [c_char_p, POINTER(tsr_train_options), POINTER(c_void_p)],
    "tsr_train_step": [c_void_p, POINTER(tsr_named_tensor), c_size_t, POINTER(c_double)],
    "tsr_train_evaluate": [c_void_p, POINTER(tsr_named_tensor), c_size_t, POINTER(c_double)],
    "tsr_train_set_learning_rate": [c_void_p, c_double],
    "tsr_train_cancel": [c_void_p],
    "tsr_train_describe": [c_void_p, POINTER(tsr_train_info)],
    "tsr_train_save": [c_void_p, c_char_p],
    "tsr_train_save_checkpoint": [c_void_p, c_char_p],
    "tsr_train_load_checkpoint": [c_void_p, c_char_p],
    "tsr_train_release": [c_void_p],
}


def _load() -> ctypes.CDLL:
    beside = pathlib.Path(__file__).with_name(_NAME)
    path = os.environ.get("TESSERA_LIBRARY") or (str(beside) if beside.exists() else _NAME)
    library = ctypes.CDLL(path)
    library.tsr_version.restype = c_char_p
    library.tsr_version.argtypes = []
    library.tsr_status_code.argtypes = [c_void_p]
    library.tsr_status_message.restype = c_char_p
    library.tsr_status_message.argtypes = [c_void_p]
    library.tsr_status_release.restype = None
    library.tsr_status_release.argtypes = [c_void_p]
    library.tsr_model_label.restype = c_char_p
    library.tsr_model_label.argtypes = [c_void_p, c_int64]
    library.tsr_generate_options_clear.restype = None
    library.tsr_generate_options_clear.argtypes = [POINTER(tsr_generate_options)]
    for name, arguments in _STATUS_FUNCTIONS.items():
        if name.startswith("tsr_train_") and not hasattr(library, name):
            continue  # libtessera without training
        function = getattr(library, name)
        function.restype = c_void_p
        function.argtypes = arguments
    return library


library = _load()


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; a failure is raised as Error."""
    if not hasattr(library, name):
        raise Error(f"{name}: this library has no training; load {_NAME}", Code.UNIMPLEMENTED)
    kinds = _STATUS_FUNCTIONS[name]
    checked = list(arguments)
    for i, kind in enumerate(kinds):
        # A text with its length behind it may have any bytes.
        measured = kind is c_char_p and kinds[i + 1 : i + 2] == [c_size_t]
        if not measured and i < len(checked):
            checked[i] = given(kind, f"{name}: argument {i + 1}", checked[i])
    status = getattr(library, name)(*checked)
    if status is None:
        return
    message = library.tsr_status_message(status).decode("utf-8", "replace")
    code = library.tsr_status_code(status)
    library.tsr_status_release(status)
    try:
        kind = Code(code)
    except ValueError:  # of a later library
        kind = Code.UNKNOWN
    raise Error(message, kind)


def takes_signals() -> bool:
    """Whether Python runs the handlers of signals in this thread, between any two instructions.
    What a handler raises as a callback begins (KeyboardInterrupt, of Ctrl-C), ctypes prints and
    loses. So another thread makes the calls that have callbacks, while this one waits."""
    main = threading.main_thread()
    return threading.current_thread() is main and main.is_alive()


_ending = threading.Event()
_with_callbacks: set[object] = set()


def is_ending() -> bool:
    """Whether the program ends, in a thread that it leaves behind."""
    return _ending.is_set() and threading.current_thread() is not threading.main_thread()


@contextlib.contextmanager
def with_callbacks() -> Iterator[None]:
    """Around a call that has callbacks, which return 1 when is_ending().

    As a program ends, Python ends its daemon threads where they next run Python. In a callback that
    ends the process with SIGABRT, since the library's frames cannot be left so. The program waits
    until such calls have ended; then their threads wait here for its end."""
    call = object()
    _with_callbacks.add(call)
    try:
        if not is_ending():
            yield
    finally:
        _with_callbacks.discard(call)
        if is_ending():
            threading.Event().wait()


@atexit.register
def _leave_callbacks() -> None:
    _ending.set()
    end = time.monotonic() + 10
    while _with_callbacks and time.monotonic() < end:
        time.sleep(0.001)


class First:
    """True of the first call alone, from whatever thread."""

    def __init__(self) -> None:
        self._left = [True]

    def __call__(self) -> bool:
        try:
            return self._left.pop()
        except IndexError:
            return False


def version() -> str:
    """The library's version, "0.8.0"."""
    text: bytes = library.tsr_version()
    return text.decode()


class MemoryInfo(NamedTuple):
    """The memory of a process's tensors, in bytes: now, the most so far, and what is held for them,
    with blocks that wait to be used again. Mapped weights do not count.

    Example: `print(tessera.memory().peak)`
    """

    bytes: int
    peak: int
    reserved: int


def memory() -> MemoryInfo:
    """The memory of the process's tensors.

    Example: `print(tessera.memory().bytes)`
    """
    info = tsr_memory_info(size=ctypes.sizeof(tsr_memory_info))
    call("tsr_memory", ctypes.byref(info))
    return MemoryInfo(info.bytes, info.peak, info.reserved)


def text_or_null(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else utf8(text)


_logger: Any = None  # what the library calls must live as long as it may call it


def configure(threads: int = 0, log: Optional[Callable[[str], None]] = None) -> None:
    """Sets what holds for the whole process. No model and no trainer may be open.

    threads: how many threads compute in calls that name no number; 0: all cores of the process.
    log: is called with each warning of the library; without it the library says nothing.

    Example: `tessera.configure(threads=4, log=print)`
    """
    global _logger

    def on_message(user: Optional[int], level: int, message: bytes) -> None:
        if log is not None:
            log(message.decode("utf-8", "replace"))

    logger = logger_type(on_message) if log is not None else logger_type()
    options = tsr_configuration(
        size=ctypes.sizeof(tsr_configuration), logger=logger, threads=threads
    )
    call("tsr_configure", ctypes.byref(options))
    _logger = logger
