# SPDX-License-Identifier: Apache-2.0
"""Models: text, tokens, vectors and tensors."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_int64, c_size_t, c_void_p, sizeof
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _library as c
from ._library import Code, Error, call, library, text_or_null
from ._tensor import Results, Tensor, dtype_number, floats, named_tensors, tensors_of

Prompt = Union[str, Sequence[int]]
Path = Union[str, "os.PathLike[str]"]
# A text, a number, or what JSON has for it.
Setting = Union[None, str, bool, int, float, Sequence[Any], Mapping[Any, Any]]

_WEIGHTS = (
    "as_stored",
    "int8",
    "q8_0",
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "iq4_nl",
    "iq4_xs",
)
_POOLINGS = ("mean", "first", "last", "pooler", "of_model")
_ENDS = (None, "length", "end_of_text", "stop")


def _number(what: str, name: str, names: Sequence[Optional[str]]) -> int:
    if name not in names:
        known = ", ".join(str(one) for one in names)
        raise Error(f"{what}: '{name}' is unknown (it is one of {known})", Code.INVALID_ARGUMENT)
    return names.index(name)


class Token(NamedTuple):
    """A step of a text that is written.

    `text` is what is certain with this token: whole characters, which may be none yet. The last
    token of each text has the id -1, and `end` says why the text ended: "length", "end_of_text" or
    "stop". `sequence` counts the texts of num_return_sequences, from 0.

    Example: `for token in model.stream("Once"): print(token.text, end="")`
    """

    id: int
    text: str
    end: Optional[str]
    sequence: int


class Generated(NamedTuple):
    """A text that was written, its tokens, and why it ended (as in Token).

    Example: `text, ids, end = model.generate_texts("Once")[0]`
    """

    text: str
    ids: list[int]
    end: Optional[str]


class ModelInfo(NamedTuple):
    """What a model is. 0 and an empty list say that it has no such thing.

    `config` is the content of config.json, `max_positions` the longest input in tokens,
    `image_shape` what pixel_values gives: channels, height, width.

    Example: `print(model.info.architecture, model.info.parameters)`
    """

    model_type: str
    architecture: str
    config: dict[str, Any]
    parameters: int
    vocab_size: int
    max_positions: int
    hidden_size: int
    embedding_size: int
    labels: list[str]
    generates: bool
    has_tokenizer: bool
    image_shape: tuple[int, int, int]


def _ids_array(ids: Sequence[int]) -> Any:
    return (c_int64 * max(len(ids), 1))(*ids)


class _Contexts:
    """A model's handle and its contexts. Each runs one call; a call takes one that is idle, or a new
    one. The model is released with this object, which calls and streams hold."""

    def __init__(self, model: c_void_p, threads: int, memory_limit: int) -> None:
        self._model = model
        self._threads = threads
        self._memory_limit = memory_limit
        # The collector may delete a stream, which takes the lock, in a thread that has it.
        self._lock = threading.RLock()
        self._idle: dict[int, list[c_void_p]] = {}
        self._running: list[c_void_p] = []
        self._stopping: list[threading.Thread] = []
        self._closed = False

    def take(self, adapter: int) -> c_void_p:
        """A context for one call. The object stands for the call, so that cancel() meets no other."""
        with self._lock:
            model = self.model
            idle = self._idle.setdefault(adapter, [])
            if idle:
                context = c_void_p(idle.pop().value)
            else:
                options = c.tsr_context_options(
                    size=sizeof(c.tsr_context_options),
                    threads=self._threads,
                    memory_limit=self._memory_limit,
                    adapter=adapter,
                )
                context = c_void_p()
                call("tsr_context_create", model, byref(options), byref(context))
            self._running.append(context)
            return context

    def give_back(self, context: c_void_p, adapter: int) -> None:
        with self._lock:
            self._running = [one for one in self._running if one is not context]
            self._idle[adapter].append(context)

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
            for idle in self._idle.values():
                for context in idle:
                    call("tsr_context_release", context)
            call("tsr_model_release", self._model)

    def __del__(self) -> None:
        with contextlib.suppress(Error):
            self.close()

    @property
    def model(self) -> c_void_p:
        """The model's handle, for what runs without a context."""
        if self._closed:
            raise Error("Model: it is closed", Code.INVALID_ARGUMENT)
        return self._model


def _token_of(token: Any) -> Token:
    text = ctypes.string_at(token.text, token.length).decode("utf-8", "replace")
    end = _ENDS[token.end] if 0 <= token.end < len(_ENDS) else None
    return Token(token.id, text, end, token.sequence)


# Runs a generation in a context, with the callback that is given its tokens.
_Run = Callable[[c_void_p, Any], None]


def _run_with(run: _Run, context: c_void_p, on_token: Callable[[Token], bool]) -> None:
    """What `on_token` raises ends the generation, and is raised here."""
    raised: list[BaseException] = []

    def callback(user: Optional[int], token: Any) -> int:
        try:
            return 1 if on_token(_token_of(token[0])) else 0
        except BaseException as error:
            raised.append(error)
            return 1

    run(context, c.token_callback(callback))
    if raised:
        raise raised[0]


class Stream(Iterator[Token]):
    """The tokens of a text, as they are written by a thread in the background.

    The end of a `with` block, `close()` or the loss of the last reference ends the writing.

    Example:
        with model.stream("Once upon a time", max_new_tokens=50) as tokens:
            for token in tokens:
                print(token.text, end="", flush=True)
    """

    def __init__(self, contexts: _Contexts, run: _Run, adapter: int) -> None:
        """For this package's use: Model.stream makes streams."""
        self._work = _Work(contexts, run, adapter)
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

    def __init__(self, contexts: _Contexts, run: _Run, adapter: int) -> None:
        self.items: queue.SimpleQueue[Union[Token, BaseException, None]] = queue.SimpleQueue()
        self._contexts = contexts
        self._adapter = adapter
        self._context = contexts.take(adapter)
        self._run = run
        self._stopped = False
        self.thread = threading.Thread(target=self._write, name="tessera.Stream")
        try:
            self.thread.start()
        except BaseException:
            contexts.give_back(self._context, adapter)
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
        error: Optional[BaseException] = None
        try:
            if not self._stopped:
                _run_with(self._run, self._context, self._on_token)
        except BaseException as raised:
            error = raised
        self._contexts.give_back(self._context, self._adapter)
        self.items.put(error)


class Model:
    """A model, opened to be used. Any number of threads may call it at once.

    path: a Hugging Face folder (config.json, safetensors or pytorch_model.bin, tokenizer files), a
        GGUF file, or a tar file of a folder.
    dtype: of parameters and of what is computed: "float32" (the default), "bfloat16", "float16".
    weights: how weights are held: "as_stored", "int8", "q8_0", "q4_0", "q4_k", ...
    tokenizer: a folder of its own, or "byte"; without it the model's.
    adapters: folders of PEFT's adapters. Calls name one by `adapter`, from 0; -1 is none.
    copy_weights: copies the weights that would otherwise be the mapped file.
    threads: of each call; 0: those of the process, shared.
    memory_limit: bytes of the tensors of each call; 0: no limit.
    progress: is called with the bytes read so far and in all.

    A call that fails raises Error. Ctrl-C ends generate and chat at the next token; other calls
    finish first.

    Example:
        with tessera.Model("runs/book/model") as model:
            print(model.generate("Once upon a time", max_new_tokens=20))
    """

    def __init__(
        self,
        path: Path,
        *,
        dtype: Optional[str] = None,
        weights: str = "as_stored",
        tokenizer: Optional[Path] = None,
        adapters: Sequence[Path] = (),
        copy_weights: bool = False,
        threads: int = 0,
        memory_limit: int = 0,
        progress: Optional[Callable[[int, int], None]] = None,
    ) -> None:
        raised: list[BaseException] = []

        def on_progress(user: Optional[int], done: int, total: int) -> int:
            try:
                if progress is not None:
                    progress(done, total)
                return 0
            except BaseException as error:
                raised.append(error)
                return 1

        folders = [os.fsencode(adapter) for adapter in adapters]
        options = c.tsr_load_options(
            size=sizeof(c.tsr_load_options),
            dtype=dtype_number(dtype),
            copy_weights=int(copy_weights),
            tokenizer=None if tokenizer is None else os.fsencode(tokenizer),
            adapters=(ctypes.c_char_p * max(len(folders), 1))(*folders),
            num_adapters=len(folders),
            weights=_number("weights", weights, _WEIGHTS),
        )
        if progress is not None:
            options.progress = c.progress_type(on_progress)
        handle = c_void_p()
        try:
            call("tsr_model_load", os.fsencode(path), byref(options), byref(handle))
        except Error:
            if raised:
                raise raised[0] from None
            raise
        self._contexts = _Contexts(handle, threads, memory_limit)
        self._info: Optional[ModelInfo] = None

    def close(self) -> None:
        """Releases the model; it cannot be used afterwards. Refused while a call runs.

        Example: `model.close()`
        """
        self._contexts.close()

    def cancel(self) -> None:
        """Ends the calls that run, from another thread: they raise Error with Code.CANCELLED.

        Example: `threading.Timer(10, model.cancel).start()`
        """
        self._contexts.cancel()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _context(self, adapter: int) -> Iterator[c_void_p]:
        context = self._contexts.take(adapter)
        try:
            yield context
        finally:
            self._contexts.give_back(context, adapter)

    @property
    def info(self) -> ModelInfo:
        """What the model is.

        Example: `print(model.info.vocab_size)`
        """
        if self._info is None:
            model = self._contexts.model
            info = c.tsr_model_info(size=sizeof(c.tsr_model_info))
            call("tsr_model_describe", model, byref(info))
            labels = [library.tsr_model_label(model, i).decode() for i in range(info.labels)]
            self._info = ModelInfo(
                model_type=info.model_type.decode(),
                architecture=info.architecture.decode(),
                config=json.loads(info.config),
                parameters=info.parameters,
                vocab_size=info.vocab_size,
                max_positions=info.max_positions,
                hidden_size=info.hidden_size,
                embedding_size=info.embedding_size,
                labels=labels,
                generates=bool(info.generates),
                has_tokenizer=bool(info.has_tokenizer),
                image_shape=(info.image_channels, info.image_height, info.image_width),
            )
        return self._info

    # ---- Tokens and pictures ---------------------------------------------------------------------

    def encode(
        self, text: str, *, text_only: bool = False, special_as_text: bool = False
    ) -> list[int]:
        """The tokens of a text, as the model reads it.

        text_only: without the special tokens that the model has around a text.
        special_as_text: "<|endoftext|>" in the text is text, not a special token.

        Example: `ids = model.encode("Once upon a time")`
        """
        data = text.encode()
        options = c.tsr_tokenize_options(
            size=sizeof(c.tsr_tokenize_options),
            text_only=int(text_only),
            special_as_text=int(special_as_text),
        )
        count = c_size_t()
        arguments = (self._contexts.model, data, len(data), byref(options))
        call("tsr_tokenize", *arguments, None, 0, byref(count))
        ids = (c_int64 * max(count.value, 1))()
        call("tsr_tokenize", *arguments, ids, count.value, byref(count))
        return list(ids[: count.value])

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of tokens. Bytes that are no whole character become U+FFFD.

        skip_special: special tokens give no text.

        Example: `model.decode(model.encode("Hello", text_only=True))`
        """
        options = c.tsr_detokenize_options(
            size=sizeof(c.tsr_detokenize_options), skip_special=int(skip_special)
        )
        length = c_size_t()
        arguments = (self._contexts.model, _ids_array(ids), len(ids), byref(options))
        call("tsr_detokenize", *arguments, None, 0, byref(length))
        text = ctypes.create_string_buffer(length.value + 1)
        call("tsr_detokenize", *arguments, text, length.value, byref(length))
        return text.raw[: length.value].decode("utf-8", "replace")

    def pixel_values(self, pixels: bytes, height: int, width: int, channels: int = 3) -> Tensor:
        """A picture as the model takes it, [channels, height, width] of its own.

        pixels: 8 bits a sample, grey (1) or RGB (3) side by side, rows from the top.

        Example: `model.pixel_values(image.tobytes(), image.height, image.width)`
        """
        if len(pixels) != height * width * channels:
            raise Error(
                f"pixel_values: {len(pixels)} bytes, where {height} x {width} x {channels} "
                f"need {height * width * channels}",
                Code.INVALID_ARGUMENT,
            )
        count = c_size_t()
        arguments = (self._contexts.model, pixels, height, width, channels)
        call("tsr_pixel_values", *arguments, None, 0, byref(count))
        values = floats(self.info.image_shape)
        call("tsr_pixel_values", *arguments, values._address, count.value, byref(count))
        return values

    # ---- Text ------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: Prompt,
        *,
        json_schema: Union[None, str, Mapping[str, Any]] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> str:
        """Continues a text, or the tokens of one, and returns what was written.

        json_schema: a JSON Schema, which the new text fits.
        settings: those of `tessera generate`, by the names of its flags: max_new_tokens,
            temperature, top_k, top_p, do_sample, seed, num_beams, stop_strings=["\\n"],
            logit_bias={15: -1}, ... What is not named is as the model's folder has it.

        Example: `model.generate("Once upon a time", max_new_tokens=20, temperature=0.8, seed=1)`
        """
        texts = self.generate_texts(prompt, json_schema=json_schema, adapter=adapter, **settings)
        return texts[0].text if texts else ""

    def generate_texts(
        self,
        prompt: Prompt,
        *,
        json_schema: Union[None, str, Mapping[str, Any]] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> list[Generated]:
        """Like generate, with the tokens of each of num_return_sequences texts.

        Example: `model.generate_texts("Once", num_return_sequences=3, do_sample=True)`
        """
        return self._collect(_continuation(prompt, json_schema, settings), adapter)

    def stream(
        self,
        prompt: Prompt,
        *,
        json_schema: Union[None, str, Mapping[str, Any]] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> Stream:
        """Like generate, token by token.

        Example: `for token in model.stream("Once"): print(token.text, end="", flush=True)`
        """
        return Stream(self._contexts, _continuation(prompt, json_schema, settings), adapter)

    def chat(
        self,
        messages: Union[Sequence[Mapping[str, Any]], Mapping[str, Any]],
        *,
        json_schema: Union[None, str, Mapping[str, Any]] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> str:
        """Answers a conversation, by the chat template of the model's folder.

        messages: a list of messages, or a dict with `messages` and `tools`.

        Example: `model.chat([{"role": "user", "content": "Hi"}], max_new_tokens=50)`
        """
        texts = self._collect(_answer(messages, json_schema, settings), adapter)
        return texts[0].text if texts else ""

    def stream_chat(
        self,
        messages: Union[Sequence[Mapping[str, Any]], Mapping[str, Any]],
        *,
        json_schema: Union[None, str, Mapping[str, Any]] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> Stream:
        """Like chat, token by token.

        Example: `for token in model.stream_chat(messages): print(token.text, end="")`
        """
        return Stream(self._contexts, _answer(messages, json_schema, settings), adapter)

    def _collect(self, run: _Run, adapter: int) -> list[Generated]:
        tokens: dict[int, list[Token]] = {}

        def on_token(token: Token) -> bool:
            tokens.setdefault(token.sequence, []).append(token)
            return False

        with self._context(adapter) as context:
            _run_with(run, context, on_token)
        return [
            Generated(
                text="".join(token.text for token in of_text),
                ids=[token.id for token in of_text if token.id >= 0],
                end=of_text[-1].end,
            )
            for _, of_text in sorted(tokens.items())
        ]

    # ---- Vectors and tensors ---------------------------------------------------------------------

    def embed(
        self,
        text: Prompt,
        *,
        pooling: str = "of_model",
        normalise: bool = False,
        prompt: Optional[str] = None,
        max_tokens: int = 0,
        adapter: int = 0,
    ) -> Tensor:
        """The vector of a text, or of tokens: a float32 tensor of one dimension.

        pooling: how the vectors of tokens become one: "of_model" (what the folder says, else the
            mean), "mean", "first", "last", "pooler".
        normalise: divides the vector by its length.
        prompt: text put before a text; without it the folder's.
        max_tokens: cuts a longer text; 0: as the folder says.

        Example: `vector = model.embed("A sentence.", normalise=True).numpy()`
        """
        kind = _number("pooling", pooling, _POOLINGS)
        options = c.tsr_embed_options(
            size=sizeof(c.tsr_embed_options),
            pooling=kind,
            normalise=int(normalise),
            prompt=text_or_null(prompt),
            max_tokens=max_tokens,
        )
        of_model = pooling == "of_model"
        vector = floats((self.info.embedding_size if of_model else self.info.hidden_size,))
        end = (byref(options), vector._address, vector.shape[0])
        with self._context(adapter) as context:
            if isinstance(text, str):
                data = text.encode()
                call("tsr_embed_text", context, data, len(data), *end)
            else:
                call("tsr_embed", context, _ids_array(text), len(text), *end)
        return vector

    def rerank(self, query: str, documents: Sequence[str], *, adapter: int = 0) -> list[float]:
        """How relevant each document is for a query, by a classifier with one label.

        Example: `scores = model.rerank("Who wrote it?", ["Page one.", "Page two."])`
        """
        asked = query.encode()
        texts = [document.encode() for document in documents]
        n = len(texts)
        scores = (ctypes.c_double * max(n, 1))()
        with self._context(adapter) as context:
            call(
                "tsr_rerank",
                context,
                asked,
                len(asked),
                (ctypes.c_char_p * max(n, 1))(*texts),
                (c_size_t * max(n, 1))(*map(len, texts)),
                n,
                scores,
            )
        return list(scores[:n])

    def forward(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        *,
        all_hidden_states: bool = False,
        adapter: int = 0,
        **named: Any,
    ) -> dict[str, Tensor]:
        """Named tensors through the model, with the names and shapes of `tessera forward`.

        inputs, named: tensors of any kind that as_tensor takes: input_ids [B, T], pixel_values
            [B, C, H, W], labels, ...
        all_hidden_states: gives hidden_states.0 ... hidden_states.L, too.

        Example: `model.forward(input_ids=[[1, 2, 3]])["logits"].numpy()`
        """
        given = {**(inputs or {}), **named}
        array, kept = named_tensors(given)
        options = c.tsr_forward_options(
            size=sizeof(c.tsr_forward_options), all_hidden_states=int(all_hidden_states)
        )
        results = Results()
        with self._context(adapter) as context:
            call(
                "tsr_forward_with",
                context,
                array,
                len(given),
                byref(options),
                byref(results.tensors),
                byref(results.count),
            )
        del kept
        return tensors_of(results)


# ---- Generations ---------------------------------------------------------------------------------


class _GenerateOptions(c.tsr_generate_options):
    """Options, with the settings that the library keeps for them."""

    def __del__(self) -> None:
        library.tsr_generate_options_clear(byref(self))


def _options_of(
    json_schema: Union[None, str, Mapping[str, Any]], settings: Mapping[str, Setting]
) -> _GenerateOptions:
    """Every setting is set by its name: the library knows the names and checks values."""
    if json_schema is not None and not isinstance(json_schema, str):
        json_schema = json.dumps(json_schema)
    options = _GenerateOptions(
        size=sizeof(_GenerateOptions), json_schema=text_or_null(json_schema)
    )
    for name, value in settings.items():
        for text in _texts_of(value):
            call("tsr_generate_options_set", byref(options), name.encode(), text.encode())
    return options


def _texts_of(value: Setting) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, str) for one in value):
        return list(value)
    return [json.dumps(value)]


def _generation(name: str, text: Any, length: int, options: Any) -> _Run:
    def run(context: c_void_p, callback: Any) -> None:
        call(name, context, text, length, byref(options), callback, None)

    return run


def _continuation(
    prompt: Prompt,
    json_schema: Union[None, str, Mapping[str, Any]],
    settings: Mapping[str, Setting],
) -> _Run:
    options = _options_of(json_schema, settings)
    if isinstance(prompt, str):
        data = prompt.encode()
        return _generation("tsr_generate_text", data, len(data), options)
    return _generation("tsr_generate", _ids_array(prompt), len(prompt), options)


def _answer(
    messages: Union[Sequence[Mapping[str, Any]], Mapping[str, Any]],
    json_schema: Union[None, str, Mapping[str, Any]],
    settings: Mapping[str, Setting],
) -> _Run:
    data = json.dumps(messages).encode()
    return _generation("tsr_chat", data, len(data), _options_of(json_schema, settings))
