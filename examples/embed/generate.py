# SPDX-License-Identifier: Apache-2.0
"""Continues a prompt, from Python without any build: generate.py MODEL [PROMPT]

The library is found where the loader finds it, or at $TESSERA_LIBRARY.
"""
import ctypes
import os
import sys


class GenerateOptions(ctypes.Structure):
    """tsr_generate_options; members that are 0 are the model's defaults."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("max_new_tokens", ctypes.c_int64),
        ("sampling", ctypes.c_int),
        ("temperature", ctypes.c_double),
        ("top_k", ctypes.c_int64),
        ("top_p", ctypes.c_double),
        ("repetition_penalty", ctypes.c_double),
        ("num_beams", ctypes.c_int64),
        ("length_penalty", ctypes.c_double),
        ("stop", ctypes.POINTER(ctypes.c_char_p)),
        ("stop_count", ctypes.c_size_t),
        ("seed", ctypes.c_uint64),
    ]


class Token(ctypes.Structure):
    """tsr_token."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("id", ctypes.c_int64),
        ("text", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("end", ctypes.c_int),
        ("sequence", ctypes.c_int64),
    ]


TokenCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Token))


class Tessera:
    """The functions that this program calls; a failure raises RuntimeError."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.tsr_status_message.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        function = self.library[name]
        function.restype = ctypes.c_void_p
        status = ctypes.c_void_p(function(*arguments))
        if not status:
            return
        message = self.library.tsr_status_message(status).decode()
        self.library.tsr_status_release(status)
        raise RuntimeError(message)


def main():
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} MODEL [PROMPT]")
    prompt = (sys.argv[2] if len(sys.argv) > 2 else "Once").encode()
    tessera = Tessera(os.environ.get("TESSERA_LIBRARY", "libtessera.so.0"))
    model, context = ctypes.c_void_p(), ctypes.c_void_p()

    @TokenCallback
    def show(user, token):
        sys.stdout.buffer.write(ctypes.string_at(token[0].text, token[0].length))
        sys.stdout.buffer.flush()
        return 0

    try:
        tessera.call("tsr_model_load", sys.argv[1].encode(), None, ctypes.byref(model))
        tessera.call("tsr_context_create", model, None, ctypes.byref(context))
        options = GenerateOptions(ctypes.sizeof(GenerateOptions), max_new_tokens=20, sampling=1)
        sys.stdout.buffer.write(prompt)
        tessera.call("tsr_generate_text", context, prompt, ctypes.c_size_t(len(prompt)),
                     ctypes.byref(options), show, None)
        print()
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    finally:
        tessera.call("tsr_context_release", context)
        tessera.call("tsr_model_release", model)


if __name__ == "__main__":
    main()
