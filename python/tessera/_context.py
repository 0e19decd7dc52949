# SPDX-License-Identifier: Apache-2.0
"""Contexts that keep texts: conversations, and prompts that begin alike."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_int64, c_size_t, c_void_p, sizeof
from typing import NamedTuple, Optional, Union

from . import _library as c
from ._generation import (
    Generated,
    Messages,
    Own,
    Prompt,
    Schema,
    Setting,
    Stream,
    answer,
    collect,
    continuation,
    ids_array,
    options_of,
)
from ._library import call


class ContextInfo(NamedTuple):
    """What a context keeps and has done.

    `kept_texts` and `kept_tokens` are there now, `cache_bytes` is the memory of their keys and
    values. `memory_bytes` and `memory_peak` are of the context's tensors, and 0 for a model without
    memory_limit. The last three count tokens of all calls so far: those of prompts that the model
    has read, those of prompts that were kept, and new ones.

    Example: `print(talk.info.tokens_reused)`
    """

    kept_texts: int
    kept_tokens: int
    cache_bytes: int
    memory_bytes: int
    memory_peak: int
    tokens_read: int
    tokens_reused: int
    tokens_written: int


class Context:
    """A context that keeps its last texts (prompt and answer) with what the model has computed for
    them, so that a prompt which begins like one of them is read from where they differ. What is
    written is the same with and without. Model.context makes contexts.

    It runs one call at a time; another raises Error with Code.BUSY. Its arguments are those of the
    Model's methods of the same names. It is closed with its model, at the latest.

    Example:
        with model.context() as talk:
            messages = [{"role": "user", "content": "Hi"}]
            text = talk.chat(messages)
            messages.append({"role": "assistant", "content": text})
            messages.append({"role": "user", "content": "Why?"})
            print(talk.chat(messages))         # what is new is read
            talk.save("talk.safetensors")
    """

    def __init__(self, own: Own) -> None:
        """For this package's use: Model.context makes contexts."""
        self._own = own
        self._contexts = own.contexts

    def close(self) -> None:
        """Forgets the texts; the context cannot be used afterwards. Twice does no harm.

        Example: `talk.close()`
        """
        self._own.close()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- Text ------------------------------------------------------------------------------------

    def generate(self, prompt: Prompt, *, json_schema: Schema = None, **settings: Setting) -> str:
        """Continues a text, or the tokens of one, as Model.generate does.

        Example: `talk.generate("Once upon a time", max_new_tokens=20)`
        """
        options = options_of(json_schema, None, settings)
        texts = collect(self._contexts, continuation(prompt, options), self._own)
        return texts[0].text if texts else ""

    def generate_texts(
        self,
        prompt: Prompt,
        *,
        json_schema: Schema = None,
        logprobs: Optional[int] = None,
        **settings: Setting,
    ) -> list[Generated]:
        """Like generate, with tokens, as Model.generate_texts does.

        Example: `[text] = talk.generate_texts("Once", logprobs=5)`
        """
        options = options_of(json_schema, logprobs, settings)
        return collect(self._contexts, continuation(prompt, options), self._own)

    def stream(
        self,
        prompt: Prompt,
        *,
        json_schema: Schema = None,
        logprobs: Optional[int] = None,
        **settings: Setting,
    ) -> Stream:
        """Like generate, token by token.

        Example: `for token in talk.stream("Once"): print(token.text, end="", flush=True)`
        """
        options = options_of(json_schema, logprobs, settings)
        return Stream(self._contexts, continuation(prompt, options), self._own)

    def chat(self, messages: Messages, *, json_schema: Schema = None, **settings: Setting) -> str:
        """Answers a conversation, as Model.chat does.

        Example: `talk.chat([{"role": "user", "content": "Hi"}], max_new_tokens=50)`
        """
        options = options_of(json_schema, None, settings)
        texts = collect(self._contexts, answer(messages, options), self._own)
        return texts[0].text if texts else ""

    def stream_chat(
        self,
        messages: Messages,
        *,
        json_schema: Schema = None,
        logprobs: Optional[int] = None,
        **settings: Setting,
    ) -> Stream:
        """Like chat, token by token.

        Example: `for token in talk.stream_chat(messages): print(token.text, end="")`
        """
        options = options_of(json_schema, logprobs, settings)
        return Stream(self._contexts, answer(messages, options), self._own)

    def step(self, ids: Sequence[int], **settings: Setting) -> int:
        """The token that follows others, for a loop of one's own. The model reads only what is new.

        settings: those of generate that choose among tokens; those that count new tokens do not
            apply.

        Example: `ids.append(talk.step(ids, do_sample=True, seed=1))`
        """
        options = options_of(None, None, settings)
        following = c_int64()
        with self._contexts.taken(self._own) as context:
            arguments = (ids_array(ids), len(ids), byref(options), byref(following))
            call("tsr_step", context, *arguments, None, 0)
        return following.value

    # ---- Kept texts ------------------------------------------------------------------------------

    @property
    def info(self) -> ContextInfo:
        """What the context keeps and has done.

        Example: `print(talk.info.kept_tokens)`
        """
        info = c.tsr_context_info(size=sizeof(c.tsr_context_info))
        with self._contexts.taken(self._own) as context:
            call("tsr_context_describe", context, byref(info))
        return ContextInfo(*(getattr(info, name) for name in ContextInfo._fields))

    def fork(self) -> Context:
        """Another context, which begins with what this one keeps; from then on each has its own.

        Example: `other = talk.fork()`
        """
        forked = c_void_p()
        with self._contexts.taken(self._own) as context:
            call("tsr_context_fork", context, byref(forked))
        return Context(self._contexts.adopt(forked))

    def clear(self) -> None:
        """Forgets all texts and gives their memory back.

        Example: `talk.clear()`
        """
        with self._contexts.taken(self._own) as context:
            call("tsr_context_clear", context)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes what the context keeps to a safetensors file, which appears whole or not at all.

        Example: `talk.save("talk.safetensors")`
        """
        with self._contexts.taken(self._own) as context:
            call("tsr_context_save", context, os.fsencode(path))

    def restore(self, path: Union[str, os.PathLike[str]]) -> None:
        """Keeps what is in a file of save, in place of the context's own texts. The file may come
        from another process or machine, of a model with the same configuration, weights and dtype.
        After a failure the context keeps what it kept.

        Example: `talk.restore("talk.safetensors")`
        """
        with self._contexts.taken(self._own) as context:
            call("tsr_context_restore", context, os.fsencode(path))

    def save_bytes(self) -> bytes:
        """What save writes, in memory.

        Example: `state = talk.save_bytes()`
        """
        size = c_size_t()
        with self._contexts.taken(self._own) as context:
            call("tsr_context_save_memory", context, None, 0, byref(size))
            data = ctypes.create_string_buffer(max(size.value, 1))
            call("tsr_context_save_memory", context, data, size.value, byref(size))
        return data.raw[: size.value]

    def restore_bytes(self, state: bytes) -> None:
        """Keeps what save_bytes gave, as restore does.

        Example: `talk.restore_bytes(state)`
        """
        state = bytes(state)  # a bytearray and a memoryview, too
        with self._contexts.taken(self._own) as context:
            call("tsr_context_restore_memory", context, state, len(state))
