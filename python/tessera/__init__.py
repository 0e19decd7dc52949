# SPDX-License-Identifier: Apache-2.0
"""Tessera's models in Python: generate text, run tensors through a model, train it.

    import tessera

    with tessera.Model("runs/book/model") as model:
        print(model.generate("Once upon a time", max_new_tokens=20))

The module calls the C library (tessera.h) by ctypes and needs no other package. NumPy, PyTorch and
whatever else knows DLPack give tensors and take them.

Threads: any number of threads may use one Model at once. A Trainer runs one call at a time. The
library computes without the interpreter's lock, so other threads run meanwhile.
"""

from ._context import Context, ContextInfo
from ._generation import Generated, Logprob, Stream, Token
from ._library import Code, Error, MemoryInfo, configure, memory, version
from ._model import Model, ModelInfo, Scored
from ._tensor import Tensor, as_tensor, from_dlpack
from ._trainer import Trainer, TrainerInfo

__version__ = version()

__all__ = [
    "Code",
    "Context",
    "ContextInfo",
    "Error",
    "Generated",
    "Logprob",
    "MemoryInfo",
    "Model",
    "ModelInfo",
    "Scored",
    "Stream",
    "Tensor",
    "Token",
    "Trainer",
    "TrainerInfo",
    "__version__",
    "as_tensor",
    "configure",
    "from_dlpack",
    "memory",
]
