# SPDX-License-Identifier: Apache-2.0
"""Texts that are written: settings, tokens, streams, and the contexts that calls run in."""

from __future__ import annotations

import contextlib
import ctypes
import json
import queue
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_int64, c_size_t, c_void_p, sizeof
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _library as c
from ._library import Code, Error, call, library, text_or_null, utf8

Prompt = Union[str, Sequence[int]]
# A list of messages, or a dict with `messages` and `tools`.
Messages = Union[Sequence[Mapping[str, Any]], Mapping[str, Any]]
Schema = Union[None, str, Mapping[str, Any]]
# A text, a number, or what JSON has for it.
Setting = Union[None, str, bool, int, float, Sequence[Any], Mapping[Any, Any]]

# Settings whose values are texts. The library reads them as they are; other lists are JSON.
_TEXTS = ("stop_strings", "stop")
_ENDS = (None, "length", "end_of_text", "stop")


class Logprob(NamedTuple):
    """A token and the natural logarithm of its probability, as the model gives it: before
    penalties, temperature and whatever else chooses among tokens.

    Example: `likeliest, logprob = token.top[0]`
    """

    id: int
    logprob: float


class Token(NamedTuple):
    """A step of a text that is written.

    `text` is what is certain with this token: whole characters, which may be none yet. The last
    token of each text has the id -1, and `end` says why the text ended: "length", "end_of_text" or
    "stop". `sequence` counts the texts of num_return_sequences, from 0. With the argument logprobs,
    `logprob` is the token's own and `top` are the likeliest tokens at its place; else 0 and none.

    Example: `for token in model.stream("Once"): print(token.text, end="")`
    """

    id: int
    text: str
    end: Optional[str]
    sequence: int
    logprob: float = 0.0
    top: Sequence[Logprob] = ()


class Generated(NamedTuple):
    """A text that was written, its ids, why it ended (as in Token), and its tokens as a Stream
    gives them, without the last, which has no id.

    Example: `print(model.generate_texts("Once")[0].text)`
    """

    text: str
    ids: list[int]
    end: Optional[str]
    tokens: list[Token]

def ids_array(ids: Sequence[int]) -> Any:
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__"):
        raise Error(f"{ids!r} is not a list of token ids", Code.INVALID_ARGUMENT)
    checked = [c.given(c_int64, "a token id", one) for one in ids]
    return (c_int64 * max(len(checked), 1))(*checked)


class Own:
    """The place of a context that only calls of one tessera.Context take. The context is released
    with this object, which those calls hold."""

    def __init__(self, contexts: Contexts, context: c_void_p) -> None:
        self.contexts = contexts
        self.idle = [context]
        self.closed = False

    def close(self) -> None:
        self.contexts.release(self)

    def __del__(self) -> None:
        with contextlib.suppress(Error):
            self.close()


# Where a call's context comes from: an adapter's number, or the one context of an Own.
Place = Union[int, Own]


class Contexts:
    """A model's handle and its contexts. Each runs one call; a call takes one that is idle, or a
    new one. The model is released with this object, which calls and streams hold."""

    def __init__(self, model: c_void_p, threads: int, memory_limit: int) -> None:
        self._model = model
        self._threads = threads
        self._memory_limit = memory_limit
        # The collector may delete a stream, which takes the lock, in a thread that has it.
        self._lock = threading.RLock()
        self._idle: dict[int, list[c_void_p]] = {}
        self._own: weakref.WeakSet[Own] = weakref.WeakSet()
        self._running: list[c_void_p] = []
        self._stopping: list[threading.Thread] = []
        self._closed = False

    def take(self, place: Place) -> c_void_p:
        """A context for one call. The object is the call's own, so that cancel() meets no other."""
        with self._lock:
            model = self.model
            idle = self._idle_of(place)
            if idle:
                context = c_void_p(idle.pop().value)
            elif not isinstance(place, Own):
                context = self._create(model, place, 0)
            elif place.closed:
                raise Error("Context: it is closed", Code.INVALID_ARGUMENT)
            else:
                raise Error("Context: it runs one call at a time", Code.BUSY)
            self._running.append(context)
            return context

    def give_back(self, context: c_void_p, place: Place) -> None:
        with self._lock:
            self._running = [one for one in self._running if one is not context]
            self._idle_of(place).append(context)

    @contextlib.contextmanager
    def taken(self, place: Place) -> Iterator[c_void_p]:
        """take, and give_back at the end of the block."""
        context = self.take(place)
        try:
            yield context
        finally:
            self.give_back(context, place)

    def keep(self, adapter: int, kept_texts: int) -> Own:
        """The place of a new context that keeps texts."""
        with self._lock:
            return self.adopt(self._create(self.model, adapter, kept_texts))

    def adopt(self, context: c_void_p) -> Own:
        """The place of a context of this model."""
        with self._lock:
            own = Own(self, context)
            self._own.add(own)
            return own

    def release(self, own: Own) -> None:
        """Ends a place. Twice does no harm."""
        with self._lock:
            if own.closed:
                return
            if not own.idle:
                raise Error("Context.close: a call is running; cancel() ends it", Code.BUSY)
            own.closed = True
            call("tsr_context_release", own.idle.pop())

    def _idle_of(self, place: Place) -> list[c_void_p]:
        return place.idle if isinstance(place, Own) else self._idle.setdefault(place, [])

    def _create(self, model: c_void_p, adapter: int, kept_texts: int) -> c_void_p:
        options = c.tsr_context_options(
            size=sizeof(c.tsr_context_options),
            threads=self._threads,
            memory_limit=self._memory_limit,
            adapter=adapter,
            kept_texts=kept_texts,
        )
        context = c_void_p()
        call("tsr_context_create", model, byref(options), byref(context))
        return context

    def cancel(self) -> None:
        """Ends all calls that run."""
        with self._lock:
            for context in self._running:
                call("tsr_context_cancel", context)

    def stop(self, context: c_void_p, thread: threading.Thread) -> None:
        """Ends one call, if it runs; close() waits for its thread."""
        with self._lock:
            if any(one is context for one in self._running):
                self._stopping = [one for one in self._stopping if one.is_alive()] + [thread]
                call("tsr_context_cancel", context)

    def close(self) -> None:
        with self._lock:
            stopping, self._stopping = self._stopping, []
        for thread in stopping:
            if thread is not threading.current_thread():
                thread.join()
        with self._lock:
            if self._closed:
                return
            if self._running:
                raise Error("Model.close: a call is running; cancel() ends it", Code.BUSY)
            self._closed = True
            for own in list(self._own):
                self.release(own)
            for idle in self._idle.values():
                for context in idle:
                    call("tsr_context_release", context)
            call("tsr_model_release", self._model)

    def __del__(self) -> None:
        with contextlib.suppress(Error):
            self.close()

    def __reduce__(self) -> str:
        raise TypeError("a tessera.Model cannot be pickled or copied; open it in each process")

    @property
    def model(self) -> c_void_p:
        """The model's handle, for what runs without a context."""
        if self._closed:
            raise Error("Model: it is closed", Code.INVALID_ARGUMENT)
        return self._model


def _token_of(token: Any) -> Token:
    text = ctypes.string_at(token.text, token.length).decode("utf-8", "replace")
    end = _ENDS[token.end] if 0 <= token.end < len(_ENDS) else None
    return Token(
        token.id, text, end, token.sequence, token.logprob, _pairs(token.top, token.num_top)
    )


def _pairs(array: Any, n: int) -> list[Logprob]:
    """Those that are there: an id of -1 is none."""
    return [Logprob(array[i].id, array[i].logprob) for i in range(n) if array[i].id >= 0]


def logprobs_of(
    context: c_void_p, ids: Sequence[int], top: int
) -> list[tuple[float, list[Logprob]]]:
    """tsr_logprobs: of each token its own, and the `top` likeliest."""
    n = len(ids)
    if top < 0:
        raise Error(f"logprobs: top is {top}", Code.INVALID_ARGUMENT)
    own = (ctypes.c_double * max(n, 1))()
    likeliest = (c.tsr_logprob * max(n * top, 1))()
    call("tsr_logprobs", context, ids_array(ids), n, top, own, likeliest if top else None)
    return [(own[i], _pairs(likeliest[i * top : (i + 1) * top], top)) for i in range(n)]


# Runs a generation in a context, with the callback that is given its tokens.
Run = Callable[[c_void_p, Any], None]


def run_with(run: Run, context: c_void_p, on_token: Callable[[Token], bool]) -> None:
    """What `on_token` raises ends the generation, and is raised here."""
    raised: list[BaseException] = []

    def callback(user: Optional[int], token: Any) -> int:
        try:
            return 1 if c.is_ending() or on_token(_token_of(token[0])) else 0
        except BaseException as error:
            raised.append(error)
            return 1

    try:
        with c.with_callbacks():
            run(context, c.token_callback(callback))
    finally:
        if raised:
            raise raised[0] from None


class Stream(Iterator[Token]):
    """The tokens of a text, as they are written by a thread in the background.

    The end of a `with` block, `close()` or the loss of the last reference ends the writing.

    Example:
        with model.stream("Once upon a time", max_new_tokens=50) as tokens:
            for token in tokens:
                print(token.text, end="", flush=True)
    """

    def __init__(self, contexts: Contexts, run: Run, place: Place) -> None:
        """For this package's use: Model.stream makes streams."""
        self._work = _Work(contexts, run, place)
        self._ended = False

    def __next__(self) -> Token:
        if self._ended:
            raise StopIteration
        item = self._work.items.get()
        if isinstance(item, Token):
            return item
        self._ended = True
        self._work.thread.join()
        if item is not None:
            raise item
        raise StopIteration

    def close(self) -> None:
        """Ends the writing and waits until it has ended. Twice does no harm.

        Example: `tokens.close()`
        """
        self._ended = True
        self._work.stop()
        self._work.thread.join()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_work"):
            self._work.stop()


class _Work:
    """What the thread of a Stream knows; it does not hold the stream, whose loss ends it."""

    def __init__(self, contexts: Contexts, run: Run, place: Place) -> None:
        self.items: queue.SimpleQueue[Union[Token, BaseException, None]] = queue.SimpleQueue()
        self._contexts = contexts
        self._place = place
        self._run = run
        self._stopped = False
        # Who gives the context back: the thread, or this method where no thread has begun.
        self._owns = c.First()
        self.thread = threading.Thread(target=self._write, name="tessera.Stream")
        self._context = contexts.take(place)
        try:
            self.thread.start()
        except BaseException:
            # What a signal's handler raises here may come when the thread has begun.
            if self._owns():
                contexts.give_back(self._context, place)
            else:
                self.stop()
            raise

    def stop(self) -> None:
        self._stopped = True
        self._contexts.stop(self._context, self.thread)

    def _on_token(self, token: Token) -> bool:
        # When the program ends, nobody reads on.
        if self._stopped or not threading.main_thread().is_alive():
            return True
        self.items.put(token)
        return False

    def _write(self) -> None:
        if not self._owns():
            return
        error: Optional[BaseException] = None
        try:
            if not self._stopped:
                run_with(self._run, self._context, self._on_token)
        except BaseException as raised:
            error = raised
        self._contexts.give_back(self._context, self._place)
        self.items.put(error)

class _GenerateOptions(c.tsr_generate_options):
    """Options, with the settings that the library keeps for them."""

    def __del__(self) -> None:
        library.tsr_generate_options_clear(byref(self))


def options_of(
    json_schema: Schema, logprobs: Optional[int], settings: Mapping[str, Setting]
) -> _GenerateOptions:
    """Every setting is set by its name: the library knows the names and checks values."""
    if json_schema is not None and not isinstance(json_schema, str):
        json_schema = json.dumps(json_schema)
    if logprobs is not None and c.given(c_int64, "logprobs", logprobs) < 0:
        raise Error(f"logprobs: {logprobs} is less than 0", Code.INVALID_ARGUMENT)
    options = _GenerateOptions(
        size=sizeof(_GenerateOptions),
        json_schema=text_or_null(json_schema),
        logprobs=0 if logprobs is None else logprobs or -1,
    )
    for name, value in settings.items():
        for text in _texts_of(name, value):
            call("tsr_generate_options_set", byref(options), utf8(name), utf8(text))
    return options


def _texts_of(name: str, value: Setting) -> list[str]:
    """The values that the library is given one after the other; none: the setting is not set."""
    if name not in _TEXTS:
        if value is None or isinstance(value, str):
            return [] if value is None else [value]
        return [json.dumps(value, default=_number_of)]
    texts: Any = value.tolist() if hasattr(value, "tolist") else value  # NumPy's
    if texts is None or isinstance(texts, str):
        texts = [] if texts is None else [texts]
    if not isinstance(texts, (list, tuple)):
        raise Error(f"{name}: {value!r} is no text and no list of texts", Code.INVALID_ARGUMENT)
    for one in texts:
        if not isinstance(one, str):
            raise Error(f"{name}: {one!r} is no text", Code.INVALID_ARGUMENT)
    return list(texts)


def _number_of(value: Any) -> Any:
    """NumPy's numbers and arrays, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise Error(f"{value!r} is no value of a setting", Code.INVALID_ARGUMENT)


def _generation(name: str, text: Any, length: int, options: Any) -> Run:
    def run(context: c_void_p, callback: Any) -> None:
        call(name, context, text, length, byref(options), callback, None)

    return run


def continuation(prompt: Prompt, options: _GenerateOptions) -> Run:
    if isinstance(prompt, str):
        data = utf8(prompt)
        return _generation("tsr_generate_text", data, len(data), options)
    ids = ids_array(prompt)
    return _generation("tsr_generate", ids, len(prompt), options)


def answer(messages: Messages, options: _GenerateOptions) -> Run:
    data = json.dumps(messages).encode()
    return _generation("tsr_chat", data, len(data), options)


def batch(prompts: Sequence[Sequence[int]], options: _GenerateOptions) -> Run:
    n = len(prompts)
    arrays = [ids_array(ids) for ids in prompts]
    pointers = (POINTER(c_int64) * max(n, 1))(
        *(ctypes.cast(array, POINTER(c_int64)) for array in arrays)
    )
    lengths = (c_size_t * max(n, 1))(*map(len, prompts))

    def run(context: c_void_p, callback: Any) -> None:
        call("tsr_generate_batch", context, pointers, lengths, n, byref(options), callback, None)

    return run


def collect(contexts: Contexts, run: Run, place: Place) -> list[Generated]:
    """The texts of a generation, by their numbers."""
    tokens: dict[int, list[Token]] = {}

    def on_token(token: Token) -> bool:
        tokens.setdefault(token.sequence, []).append(token)
        return False

    stream: Optional[Stream] = None
    if c.takes_signals():
        with contextlib.suppress(RuntimeError):  # the system gives no more threads
            stream = Stream(contexts, run, place)
    if stream is None:
        with contexts.taken(place) as context:
            run_with(run, context, on_token)
    else:
        with stream:
            for token in stream:
                on_token(token)
    return [
        Generated(
            text="".join(token.text for token in of_text),
            ids=[token.id for token in of_text if token.id >= 0],
            end=of_text[-1].end,
            tokens=[token for token in of_text if token.id >= 0],
        )
        for _, of_text in sorted(tokens.items())
    ]
