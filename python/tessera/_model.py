# SPDX-License-Identifier: Apache-2.0
"""Models: text, tokens, vectors and tensors."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from ctypes import byref, c_int64, c_size_t, c_void_p, sizeof
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _library as c
from ._context import Context
from ._generation import (
    Contexts,
    Generated,
    Logprob,
    Messages,
    Prompt,
    Schema,
    Setting,
    Stream,
    answer,
    batch,
    collect,
    continuation,
    ids_array,
    logprobs_of,
    options_of,
)
from ._library import Code, Error, call, library, text_or_null, utf8
from ._tensor import Results, Tensor, dtype_number, floats, named_tensors, tensors_of

Path = Union[str, "os.PathLike[str]"]

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


def _number(what: str, name: str, names: Sequence[Optional[str]]) -> int:
    if name not in names:
        known = ", ".join(str(one) for one in names)
        raise Error(f"{what}: '{name}' is unknown (it is one of {known})", Code.INVALID_ARGUMENT)
    return names.index(name)

class ModelInfo(NamedTuple):
    """What a model is. 0, None and an empty list say that it has no such thing.

    `config` is the content of config.json, `max_positions` the longest input in tokens,
    `image_shape` what pixel_values gives: channels, height, width. `end_tokens` are all that end a
    text, and of a model with a chat template a turn.

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
    bos_token: Optional[int]
    eos_token: Optional[int]
    pad_token: Optional[int]
    end_tokens: list[int]

def _id_or_none(id: int) -> Optional[int]:
    return None if id < 0 else id


class Scored(NamedTuple):
    """A token of a text, its log-probability, and the likeliest tokens at its place.

    Example: `print(model.logprobs("Once upon a time", top=3)[1])`
    """

    id: int
    logprob: float
    top: list[Logprob]


def _load(
    path: bytes, options: c.tsr_load_options, progress: Optional[Callable[[int, int], None]]
) -> c_void_p:
    """A model's handle. What `progress` raises ends loading, and is raised here."""
    handle = c_void_p()
    raised: list[BaseException] = []
    failed: list[BaseException] = []
    begins = c.First()
    # Of loading in another thread; None is the end of it.
    reports: queue.SimpleQueue[Optional[tuple[int, int]]] = queue.SimpleQueue()

    def load(tell: Callable[[int, int], object]) -> None:
        def on_progress(user: Optional[int], done: int, total: int) -> int:
            try:
                if not raised:
                    tell(done, total)
            except BaseException as error:
                raised.append(error)
            return len(raised)

        if progress is not None:
            options.progress = c.progress_type(on_progress)
        call("tsr_model_load", path, byref(options), byref(handle))

    def load_apart() -> None:
        if not begins():
            return
        try:
            load(lambda done, total: reports.put((done, total)))
        except BaseException as error:
            failed.append(error)
        finally:
            reports.put(None)

    def load_here() -> None:
        try:
            load(progress or (lambda done, total: None))
        except Error as error:
            failed.append(error)

    if progress is None or not c.takes_signals():
        load_here()
    else:
        thread = threading.Thread(target=load_apart, name="tessera.Model")
        try:
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads
                load_here()
            else:
                for report in iter(reports.get, None):
                    progress(*report)
        except BaseException as error:
            raised.append(error)
            if not begins():
                thread.join()
    if raised and handle:
        call("tsr_model_release", handle)
    failures = raised + failed
    if failures:
        raise failures[0] from None
    return handle


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

    A call that fails raises Error. Ctrl-C ends generate and chat within milliseconds, and loading
    with `progress` at the next report; other calls finish first.

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
        # A context checks them, too; the first call makes it.
        if c.given(ctypes.c_int, "threads", threads) < 0:
            raise Error(f"threads is {threads}, which is less than 0", Code.INVALID_ARGUMENT)
        c.given(ctypes.c_uint64, "memory_limit", memory_limit)
        if isinstance(adapters, (str, bytes, os.PathLike)):
            raise Error("adapters: give a list of folders", Code.INVALID_ARGUMENT)
        folders = [c.ended(os.fsencode(adapter)) for adapter in adapters]
        options = c.tsr_load_options(
            size=sizeof(c.tsr_load_options),
            dtype=dtype_number(dtype),
            copy_weights=int(copy_weights),
            tokenizer=None if tokenizer is None else os.fsencode(tokenizer),
            adapters=(ctypes.c_char_p * max(len(folders), 1))(*folders),
            num_adapters=len(folders),
            weights=_number("weights", weights, _WEIGHTS),
        )
        handle = _load(os.fsencode(path), options, progress)
        self._contexts = Contexts(handle, threads, memory_limit)
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
                bos_token=_id_or_none(info.bos_token),
                eos_token=_id_or_none(info.eos_token),
                pad_token=_id_or_none(info.pad_token),
                end_tokens=info.end_tokens[: info.num_end_tokens],
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
        data = utf8(text)
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
        arguments = (self._contexts.model, ids_array(ids), len(ids), byref(options))
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
        json_schema: Schema = None,
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
        options = options_of(json_schema, None, settings)
        texts = collect(self._contexts, continuation(prompt, options), adapter)
        return texts[0].text if texts else ""

    def generate_texts(
        self,
        prompt: Prompt,
        *,
        json_schema: Schema = None,
        logprobs: Optional[int] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> list[Generated]:
        """Like generate, with the tokens of each of num_return_sequences texts.

        logprobs: gives tokens their log-probabilities, and so many likeliest ones at each place.

        Example: `model.generate_texts("Once", num_return_sequences=3, do_sample=True)`
        """
        options = options_of(json_schema, logprobs, settings)
        return collect(self._contexts, continuation(prompt, options), adapter)

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        json_schema: Schema = None,
        logprobs: Optional[int] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> list[Generated]:
        """Continues several prompts at the same time, which is faster than one after the other.

        Each text is the one that its prompt gets by itself, unless it is sampled. With
        num_return_sequences of k, those of prompt i are i * k to i * k + k - 1. A failure of one
        ends all. logprobs as in generate_texts.

        Example: `for text in model.generate_batch(["Once", "Twice"]): print(text.text)`
        """
        ids = [self.encode(one) if isinstance(one, str) else one for one in prompts]
        options = options_of(json_schema, logprobs, settings)
        return collect(self._contexts, batch(ids, options), adapter)

    def stream(
        self,
        prompt: Prompt,
        *,
        json_schema: Schema = None,
        logprobs: Optional[int] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> Stream:
        """Like generate, token by token; logprobs as in generate_texts.

        Example: `for token in model.stream("Once"): print(token.text, end="", flush=True)`
        """
        options = options_of(json_schema, logprobs, settings)
        return Stream(self._contexts, continuation(prompt, options), adapter)

    def chat(
        self,
        messages: Messages,
        *,
        json_schema: Schema = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> str:
        """Answers a conversation, by the chat template of the model's folder.

        messages: a list of messages, or a dict with `messages` and `tools`.

        Example: `model.chat([{"role": "user", "content": "Hi"}], max_new_tokens=50)`
        """
        options = options_of(json_schema, None, settings)
        texts = collect(self._contexts, answer(messages, options), adapter)
        return texts[0].text if texts else ""

    def stream_chat(
        self,
        messages: Messages,
        *,
        json_schema: Schema = None,
        logprobs: Optional[int] = None,
        adapter: int = 0,
        **settings: Setting,
    ) -> Stream:
        """Like chat, token by token; logprobs as in generate_texts.

        Example: `for token in model.stream_chat(messages): print(token.text, end="")`
        """
        options = options_of(json_schema, logprobs, settings)
        return Stream(self._contexts, answer(messages, options), adapter)

    def chat_prompt(self, messages: Messages) -> list[int]:
        """The tokens of the prompt that chat makes of a conversation.

        Example: `print(model.decode(model.chat_prompt(messages)))`
        """
        data = json.dumps(messages).encode()
        count = c_size_t()
        arguments = (self._contexts.model, data, len(data))
        call("tsr_chat_prompt", *arguments, None, 0, byref(count))
        ids = (c_int64 * max(count.value, 1))()
        call("tsr_chat_prompt", *arguments, ids, count.value, byref(count))
        return list(ids[: count.value])

    def chat_message(self, messages: Messages, ids: Sequence[int]) -> dict[str, Any]:
        """The message that an answer is: role, content, reasoning_content and tool_calls.

        messages: the conversation that was answered; calls are those of tools that it names.
        ids: the answer's tokens.

        Example: `messages.append(model.chat_message(messages, [token.id for token in answer]))`
        """
        data = json.dumps(messages).encode()
        length = c_size_t()
        given = [one for one in ids if one >= 0]  # a stream's last token has no id
        arguments = (self._contexts.model, data, len(data), ids_array(given), len(given))
        call("tsr_chat_message", *arguments, None, 0, byref(length))
        text = ctypes.create_string_buffer(length.value + 1)
        call("tsr_chat_message", *arguments, text, length.value, byref(length))
        message: dict[str, Any] = json.loads(text.raw[: length.value])
        return message

    def logprobs(self, text: Prompt, *, top: int = 0, adapter: int = 0) -> list[Scored]:
        """The log-probability of each token of a text behind those before it.

        The first, which has nothing before it, has NaN.
        top: gives so many likeliest tokens at each place.

        Example: `sum(token.logprob for token in model.logprobs("Once upon a time")[1:])`
        """
        ids = self.encode(text) if isinstance(text, str) else text
        with self._contexts.taken(adapter) as context:
            found = logprobs_of(context, ids, top)
        return [Scored(one, *scores) for one, scores in zip(ids, found)]

    def context(self, kept_texts: int = 1, *, adapter: int = 0) -> Context:
        """A context that keeps its last texts. A prompt that begins like one of them is read from
        where they differ: of a conversation's next turn, only what is new.

        Example: `talk = model.context()`
        """
        return Context(self._contexts.keep(adapter, kept_texts))

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
        with self._contexts.taken(adapter) as context:
            if isinstance(text, str):
                data = utf8(text)
                call("tsr_embed_text", context, data, len(data), *end)
            else:
                call("tsr_embed", context, ids_array(text), len(text), *end)
        return vector

    def rerank(self, query: str, documents: Sequence[str], *, adapter: int = 0) -> list[float]:
        """How relevant each document is for a query, by a classifier with one label.

        Example: `scores = model.rerank("Who wrote it?", ["Page one.", "Page two."])`
        """
        asked = utf8(query)
        texts = [utf8(document) for document in documents]
        n = len(texts)
        scores = (ctypes.c_double * max(n, 1))()
        with self._contexts.taken(adapter) as context:
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
        with self._contexts.taken(adapter) as context:
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
