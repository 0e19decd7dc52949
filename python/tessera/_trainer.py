# SPDX-License-Identifier: Apache-2.0
"""Training, step by step."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from ctypes import byref, c_double, c_void_p, sizeof
from typing import Any, NamedTuple, Optional, Union

from . import _library as c
from ._library import Code, Error, call, text_or_null
from ._tensor import dtype_number, named_tensors

Path = Union[str, "os.PathLike[str]"]


class TrainerInfo(NamedTuple):
    """Where a training is.

    `updates` counts those done, `skipped` those of them that were left out because a gradient was
    not finite, `accumulated` the batches since. `grad_norm` is the last update's.

    Example: `print(trainer.info.updates, trainer.info.grad_norm)`
    """

    updates: int
    skipped: int
    accumulated: int
    learning_rate: float
    grad_norm: float
    parameters: int
    config: dict[str, Any]


def _json_or_null(value: Optional[Mapping[str, Any]]) -> Optional[bytes]:
    return None if value is None else json.dumps(value).encode()


class Trainer:
    """Trains a model. A trainer runs one call at a time; a second one meanwhile is Code.BUSY.

    model: a folder or file as Model takes it, which is trained further, or the name of a preset
        (`tessera models`), whose parameters are new.
    optimizer, optimizer_options: "adamw" and others, {"betas": [0.9, 0.98]}.
    learning_rate: 0 is 3e-4.
    max_grad_norm: scales larger gradients down to it; 0: does not.
    accumulation_steps: how many batches make an update.
    dtype, products: of parameters, and of the operands of matrix products (mixed precision).
    config_changes: keys that replace those of config.json, {"num_labels": 3}.
    new_head: parameters of a head that the folder lacks are new ones.
    tokenizer: a folder, or "byte"; without it the model's.
    adapter: trains a LoRA in place of the weights: {"r": 8, "lora_alpha": 16}, as PEFT has it.

    Example:
        with tessera.Trainer("gpt2-folder", learning_rate=1e-4) as trainer:
            for batch in batches:
                loss = trainer.step(input_ids=batch, labels=batch)
            trainer.save("tuned")
    """

    def __init__(
        self,
        model: Path,
        *,
        seed: int = 0,
        optimizer: Optional[str] = None,
        optimizer_options: Optional[Mapping[str, Any]] = None,
        learning_rate: float = 0.0,
        weight_decay: float = 0.0,
        max_grad_norm: float = 0.0,
        accumulation_steps: int = 0,
        label_smoothing: float = 0.0,
        dtype: Optional[str] = None,
        products: Optional[str] = None,
        config_changes: Optional[Mapping[str, Any]] = None,
        new_head: bool = False,
        tokenizer: Optional[Path] = None,
        threads: int = 0,
        memory_limit: int = 0,
        adapter: Optional[Mapping[str, Any]] = None,
    ) -> None:
        options = c.tsr_train_options(
            size=sizeof(c.tsr_train_options),
            seed=seed,
            optimizer=text_or_null(optimizer),
            optimizer_options=_json_or_null(optimizer_options),
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
            accumulation_steps=accumulation_steps,
            label_smoothing=label_smoothing,
            dtype=dtype_number(dtype),
            products=dtype_number(products),
            config_changes=_json_or_null(config_changes),
            new_head=int(new_head),
            tokenizer=None if tokenizer is None else os.fsencode(tokenizer),
            threads=threads,
            memory_limit=memory_limit,
            adapter=_json_or_null(adapter),
        )
        handle = c_void_p()
        call("tsr_train_create", os.fsencode(model), byref(options), byref(handle))
        self._handle: Optional[c_void_p] = handle

    def _open(self) -> c_void_p:
        if self._handle is None:
            raise Error("Trainer: it is closed", Code.INVALID_ARGUMENT)
        return self._handle

    def _loss(self, name: str, inputs: Optional[Mapping[str, Any]], named: Any) -> float:
        given = {**(inputs or {}), **named}
        array, kept = named_tensors(given)
        loss = c_double()
        call(name, self._open(), array, len(given), byref(loss))
        del kept
        return loss.value

    def step(self, inputs: Optional[Mapping[str, Any]] = None, **named: Any) -> float:
        """Trains on a batch: the tensors of Model.forward, with labels. Returns the mean loss.

        Example: `loss = trainer.step(input_ids=ids, labels=ids)`
        """
        return self._loss("tsr_train_step", inputs, named)

    def evaluate(self, inputs: Optional[Mapping[str, Any]] = None, **named: Any) -> float:
        """The loss of a batch, without dropout and without an update.

        Example: `trainer.evaluate(input_ids=ids, labels=ids)`
        """
        return self._loss("tsr_train_evaluate", inputs, named)

    @property
    def info(self) -> TrainerInfo:
        """Where the training is.

        Example: `print(trainer.info.updates)`
        """
        info = c.tsr_train_info(size=sizeof(c.tsr_train_info))
        call("tsr_train_describe", self._open(), byref(info))
        return TrainerInfo(
            updates=info.updates,
            skipped=info.skipped,
            accumulated=info.accumulated,
            learning_rate=info.learning_rate,
            grad_norm=info.grad_norm,
            parameters=info.parameters,
            config=json.loads(info.config),
        )

    @property
    def learning_rate(self) -> float:
        """That of the updates to come; it may be set.

        Example: `trainer.learning_rate = 1e-5`
        """
        return self.info.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        call("tsr_train_set_learning_rate", self._open(), value)

    def cancel(self) -> None:
        """Ends the call that runs, from another thread: it raises Error with Code.CANCELLED.

        Example: `threading.Timer(60, trainer.cancel).start()`
        """
        call("tsr_train_cancel", self._open())

    def save(self, folder: Path) -> None:
        """Writes a folder that Model, `tessera` and transformers load; of an adapter PEFT's.

        Example: `trainer.save("tuned")`
        """
        call("tsr_train_save", self._open(), os.fsencode(folder))

    def save_checkpoint(self, directory: Path) -> None:
        """Writes all that the training continues from. Not between the batches of an update.

        Example: `trainer.save_checkpoint("checkpoint")`
        """
        call("tsr_train_save_checkpoint", self._open(), os.fsencode(directory))

    def load_checkpoint(self, directory: Path) -> None:
        """Continues from a checkpoint of a trainer made alike, with the same bits.

        Example: `trainer.load_checkpoint("checkpoint")`
        """
        call("tsr_train_load_checkpoint", self._open(), os.fsencode(directory))

    def close(self) -> None:
        """Releases the trainer. Refused while a call runs.

        Example: `trainer.close()`
        """
        if self._handle is not None:
            call("tsr_train_release", self._handle)
            self._handle = None

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            with contextlib.suppress(Error):
                self.close()
