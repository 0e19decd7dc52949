# SPDX-License-Identifier: Apache-2.0
"""The module of the wheel, as a program uses it: wheel_test.py MODEL COMMAND INCLUDE

MODEL is a folder of a small model with a tokenizer of bytes, COMMAND the program `tessera`, which
gives the same answers, and INCLUDE the folder of tessera.h, whose structs the module's are compared
with by the C compiler.
"""

import base64
import copy
import ctypes
import gc
import hashlib
import importlib.metadata
import importlib.util
import math
import pathlib
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import tessera
import tessera._library

MODEL, COMMAND, INCLUDE = sys.argv[1:4]
HAS_NUMPY = importlib.util.find_spec("numpy") is not None
IDS = [[72, 105, 32, 33], [10, 72, 72, 48]]


def command(*arguments: str) -> str:
    run = subprocess.run([COMMAND, *arguments], check=True, capture_output=True, text=True)
    return run.stdout.rstrip("\n")


class HeaderTest(unittest.TestCase):
    def test_structs(self):
        """Sizes, places of members and numbers are the header's."""
        lines = ["#include <stddef.h>", '#include "tessera_training.h"']
        structs = [
            value
            for name, value in vars(tessera._library).items()
            if name.startswith("tsr_") and isinstance(value, type)
        ]
        self.assertGreater(len(structs), 10)
        for struct in structs:
            name = struct.__name__
            lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
            for member, kind in struct._fields_:
                place = getattr(struct, member).offset
                size = ctypes.sizeof(kind)
                lines.append(f'_Static_assert(offsetof({name}, {member}) == {place} && '
                             f'sizeof((({name}*)0)->{member}) == {size}, "{name}.{member}");')
        for code in tessera.Code:
            lines.append(f'_Static_assert(TSR_{code.name} == {code.value}, "{code.name}");')
        for number, name in enumerate(tessera._model._WEIGHTS):
            lines.append(f'_Static_assert(TSR_WEIGHTS_{name.upper()} == {number}, "{name}");')
        for number, name in enumerate(tessera._model._POOLINGS):
            lines.append(f'_Static_assert(TSR_POOLING_{name.upper()} == {number}, "{name}");')
        for name, dtype in tessera._tensor._DTYPES.items():
            lines.append(f'_Static_assert(TSR_{name.upper()} == {dtype.number}, "{name}");')
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "structs.c")
            source.write_text("\n".join(lines) + "\n")
            run = subprocess.run(["cc", "-std=c11", "-fsyntax-only", "-I", INCLUDE, source],
                                 capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_version(self):
        self.assertEqual(tessera.__version__, command("--version").split()[1])


class InstallationTest(unittest.TestCase):
    def test_files(self):
        """Every file is there as the wheel's record has it."""
        files = importlib.metadata.files("tessera")
        for file in files:
            if file.hash is not None:
                digest = hashlib.new(file.hash.mode, file.read_binary()).digest()
                digest = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                self.assertEqual(digest, file.hash.value, file)
        names = {file.name for file in files}
        for name in ["py.typed", "tessera.spdx.json", "LICENSE", "NOTICE", "tessera.1"]:
            self.assertIn(name, names)

    def test_metadata(self):
        metadata = importlib.metadata.metadata("tessera")
        self.assertEqual(metadata["Version"], tessera.__version__)
        self.assertEqual(metadata["License-Expression"], "Apache-2.0")
        self.assertIsNone(importlib.metadata.requires("tessera"))


class ModelTest(unittest.TestCase):
    def setUp(self):
        self.model = tessera.Model(MODEL)

    def tearDown(self):
        self.model.close()

    def test_info(self):
        info = self.model.info
        self.assertEqual(info.model_type, "gpt2")
        self.assertEqual(info.config["n_embd"], info.hidden_size)
        self.assertTrue(info.generates and info.has_tokenizer)

    def test_tokens(self):
        self.assertEqual(self.model.encode("Hi"), [72, 105])
        self.assertEqual(self.model.decode([72, 105]), "Hi")
        self.assertEqual(self.model.encode(""), [])
        self.assertEqual(self.model.decode([0xC3]), "\ufffd")

    def test_text_is_the_commands(self):
        expected = command("generate", "--model", MODEL, "--ids", "72,105", "--max-new-tokens", "8")
        [text] = self.model.generate_texts([72, 105], max_new_tokens=8)
        self.assertEqual(",".join(map(str, [72, 105, *text.ids])), expected)
        self.assertEqual(text.end, "length")
        self.assertEqual(self.model.generate("Hi", max_new_tokens=8), text.text)

    def test_values_are_not_cut_off(self):
        """What a C type cannot hold, or a C string, is refused; NumPy's numbers are numbers."""
        for call in [
            lambda: self.model.generate([2**64 + 84], max_new_tokens=1),
            lambda: self.model.decode([2**64 + 65]),
            lambda: self.model.decode([self.model.info.vocab_size]),
            lambda: self.model.generate("Hi", adapter=2**32),
            lambda: self.model.context(2**64 + 1),
            lambda: tessera.Model(MODEL, threads=2**32 + 1),
            lambda: tessera.Model(MODEL, threads=-1),
            lambda: tessera.Model(MODEL, threads="2"),
            lambda: tessera.Model(MODEL, memory_limit=-1),
            lambda: tessera.Model(MODEL + "\0x"),
            lambda: tessera.Model(MODEL, tokenizer="byte\0x"),
            lambda: tessera.Model(MODEL, adapters=MODEL),
            lambda: self.model.generate("Hi", stop_strings=["h\0z"]),
            lambda: self.model.generate(None),
            lambda: self.model.generate("\ud800"),
            lambda: self.model.encode(None),
            lambda: self.model.encode(b"Hi"),
            lambda: self.model.generate_texts("Hi", logprobs="2"),
            lambda: tessera.as_tensor([[1, 2], [3]]),
            lambda: tessera.as_tensor([2**63]),
        ]:
            with self.assertRaises(tessera.Error) as raised:
                call()
            self.assertIs(raised.exception.code, tessera.Code.INVALID_ARGUMENT)

        class Index:
            def __index__(self):
                return 2

        sampled = {"max_new_tokens": 2, "do_sample": True, "seed": 1}
        [text] = self.model.generate_texts([Index(), 105], **sampled, top_k=-1)
        [all_tokens] = self.model.generate_texts([2, 105], **sampled, top_k=0)
        self.assertEqual(text, all_tokens)
        self.assertEqual(len(self.model.generate_texts("a\0b", max_new_tokens=2)[0].ids), 2)

    def test_settings(self):
        """Settings of every kind arrive."""
        forced = self.model.generate_texts("Hi", max_new_tokens=3, logit_bias={65: 100.0})
        self.assertEqual(forced[0].text, "AAA")
        stopped = self.model.generate_texts("Hi", max_new_tokens=9, logit_bias={65: 100},
                                            stop_strings=["no", "AAA"])
        self.assertEqual(stopped[0].end, "stop")
        for name in "stop_strings", "stop":
            self.assertEqual(stopped, self.model.generate_texts(
                "Hi", max_new_tokens=9, logit_bias={65: 100}, **{name: ("no", "AAA")}))
            for value in [], (), None:
                # A text of "[]" alone, which must not be looked for.
                text = self.model.generate(
                    "Hi", max_new_tokens=9, json_schema={"const": []},
                    logit_bias={ord(blank): -100 for blank in " \t\n\r"}, **{name: value})
                self.assertEqual(text, "[]")
            for value, wrong in [(["a", 5], 5), ([5], 5), ([["a"]], ["a"]), ([None], None)]:
                with self.assertRaises(tessera.Error) as caught:
                    self.model.generate("Hi", max_new_tokens=1, **{name: value})
                self.assertEqual(str(caught.exception), f"{name}: {wrong!r} is no text")
            with self.assertRaises(tessera.Error) as caught:
                self.model.generate("Hi", max_new_tokens=1, **{name: 5})
            self.assertEqual(str(caught.exception), f"{name}: 5 is no text and no list of texts")
        with self.assertRaises(tessera.Error):  # not the last of them alone
            self.model.generate("Hi", max_new_tokens=1, suppress_tokens=["65", "66"])
        several = self.model.generate_texts("Hi", max_new_tokens=4, do_sample=True, seed=3,
                                            num_return_sequences=3)
        self.assertEqual(len(several), 3)
        again = self.model.generate_texts("Hi", max_new_tokens=4, do_sample=True, seed=3,
                                          num_return_sequences=3)
        self.assertEqual(several, again)
        other = self.model.generate_texts("Hi", max_new_tokens=4, do_sample=True, seed=4,
                                          num_return_sequences=3)
        self.assertNotEqual(several, other)

    def test_json_schema(self):
        blanks = {ord(blank): -100 for blank in " \t\n\r"}
        text = self.model.generate("Hi", max_new_tokens=9, json_schema={"enum": ["yes"]},
                                   logit_bias=blanks)
        self.assertEqual(text, '"yes"')

    def test_stream(self):
        text = self.model.generate("Hi", max_new_tokens=8)
        with self.model.stream("Hi", max_new_tokens=8) as tokens:
            found = list(tokens)
        self.assertEqual("".join(token.text for token in found), text)
        self.assertEqual(len(found), 9)
        self.assertEqual((found[-1].id, found[-1].end), (-1, "length"))
        with self.assertRaises(StopIteration):
            next(tokens)

    def test_stream_that_is_left(self):
        """A stream that nobody reads any more does not keep the model, whichever way it is left."""
        for token in self.model.stream("Hi", max_new_tokens=200):
            break
        with self.model.stream("Hi", max_new_tokens=200) as tokens:
            next(tokens)
        self.model.stream("Hi", max_new_tokens=200)
        self.model.close()

    def test_stream_outlives_its_model(self):
        tokens = tessera.Model(MODEL).stream("Hi", max_new_tokens=5)
        gc.collect()
        self.assertEqual(len(list(tokens)), 6)

    def test_failures(self):
        with self.assertRaises(tessera.Error) as caught:
            tessera.Model("missing")
        self.assertEqual(caught.exception.code, tessera.Code.NOT_FOUND)
        self.assertEqual(str(caught.exception), "missing: no such folder or archive")
        for call in [
            lambda: self.model.generate("Hi", temprature=1),
            lambda: self.model.generate("Hi", max_new_tokens=10**6),
            lambda: list(self.model.stream("Hi", max_new_tokens=10**6)),
            lambda: self.model.embed("Hi", pooling="median"),
            lambda: self.model.forward(input_ids=[[10**6]]),
            lambda: self.model.forward(**{"\udc80": [[1]]}),
            lambda: tessera.Model(MODEL, weights="q9"),
            lambda: tessera.Model(MODEL, dtype="int3"),
            lambda: self.model.rerank("a", ["b"]),
        ]:
            with self.assertRaises(tessera.Error) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))
        with self.assertRaises(tessera.Error) as caught:
            self.model.chat([{"role": "user", "content": "Hi"}])
        self.assertEqual(caught.exception.code, tessera.Code.NOT_FOUND)

    def test_closed(self):
        self.model.close()
        self.model.close()
        for call in [
            lambda: self.model.generate("Hi"),
            lambda: self.model.stream("Hi"),
            lambda: self.model.encode("Hi"),
            lambda: self.model.info,
        ]:
            with self.assertRaisesRegex(tessera.Error, "closed"):
                call()

    def test_special_tokens(self):
        info = self.model.info
        self.assertIsNone(info.pad_token)
        self.assertEqual(info.end_tokens, [info.eos_token])

    def test_logprobs(self):
        """They are the logits' log-softmax, of given tokens and of new ones."""
        ids = IDS[0]
        scored = self.model.logprobs(ids, top=3)
        self.assertEqual([token.id for token in scored], ids)
        self.assertTrue(math.isnan(scored[0].logprob))
        self.assertEqual(scored[0].top, [])
        rows = self.model.forward(input_ids=[ids])["logits"].tolist()[0]
        for row, token in zip(rows, scored[1:]):
            total = max(row) + math.log(sum(math.exp(x - max(row)) for x in row))
            self.assertAlmostEqual(token.logprob, row[token.id] - total, places=4)
            likeliest = sorted(range(len(row)), key=lambda i: -row[i])[:3]
            self.assertEqual([one.id for one in token.top], likeliest)
            self.assertAlmostEqual(token.top[0].logprob, max(row) - total, places=4)
        self.assertEqual([token.top for token in self.model.logprobs("Hi")], [[], []])

        [text] = self.model.generate_texts("Hi", max_new_tokens=4, logprobs=2)
        again = self.model.logprobs([72, 105, *text.ids])[2:]
        for token, wanted in zip(text.tokens, again):
            self.assertAlmostEqual(token.logprob, wanted.logprob, places=4)
            self.assertEqual((len(token.top), token.top[0].id), (2, token.id))
        [own] = self.model.generate_texts("Hi", max_new_tokens=4, logprobs=0)
        self.assertEqual([token.logprob for token in own.tokens],
                         [token.logprob for token in text.tokens])
        self.assertEqual([token.top for token in own.tokens], [[]] * 4)
        [none] = self.model.generate_texts("Hi", max_new_tokens=4)
        self.assertEqual([token.logprob for token in none.tokens], [0] * 4)

    def test_batch(self):
        prompts = ["Hi", IDS[1], "A longer one"]
        texts = self.model.generate_batch(prompts, max_new_tokens=6)
        self.assertEqual(len(texts), 3)
        for prompt, text in zip(prompts, texts):
            [alone] = self.model.generate_texts(prompt, max_new_tokens=6)
            self.assertEqual((text.text, text.ids, text.end), (alone.text, alone.ids, alone.end))
        several = self.model.generate_batch(["Hi", "Ho"], max_new_tokens=2, do_sample=True,
                                            num_return_sequences=2)
        self.assertEqual(len(several), 4)
        with self.assertRaises(tessera.Error):
            self.model.generate_batch(["Hi", [10**6]])

    def test_chat(self):
        """Chat's prompt is the template's; an answer continues it, and becomes a message."""
        messages = [{"role": "user", "content": "Hi"}]
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(MODEL, folder, dirs_exist_ok=True)
            pathlib.Path(folder, "chat_template.jinja").write_text(
                "{% for m in messages %}{{ m.role[0] ~ ':' ~ m.content ~ ' ' }}{% endfor %}"
                "{% if add_generation_prompt %}a:{% endif %}"
                "{# <tool_call>{...}</tool_call> #}")
            with tessera.Model(folder) as model, model.context() as talk:
                prompt = model.chat_prompt(messages)
                self.assertEqual(model.decode(prompt), "u:Hi a:")
                answer = model.chat(messages, max_new_tokens=5)
                self.assertEqual(answer, model.generate("u:Hi a:", max_new_tokens=5))
                with talk.stream_chat(messages, max_new_tokens=5) as tokens:
                    self.assertEqual("".join(token.text for token in tokens), answer)
                self.assertEqual(talk.chat(messages, max_new_tokens=5), answer)
                self.assertEqual(talk.info.tokens_reused, len(prompt) - 1)
                self.assertEqual(model.chat_message(messages, model.encode("Words.")),
                                 {"role": "assistant", "content": "Words."})
                tools = [{"type": "function", "function": {"name": "f"}}]
                call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
                message = model.chat_message({"messages": messages, "tools": tools},
                                             [*model.encode(call), -1])
                self.assertEqual(message["tool_calls"][0]["function"],
                                 {"name": "f", "arguments": '{"a":1}'})
                with self.assertRaisesRegex(tessera.Error, "unknown key 'max_tokens'"):
                    model.chat({"messages": messages, "max_tokens": 5})
        with self.assertRaises(tessera.Error) as caught:
            self.model.chat_prompt(messages)
        self.assertEqual(caught.exception.code, tessera.Code.NOT_FOUND)

    def test_kept_texts(self):
        """A context reads what is new alone, and writes what the model writes without it."""
        talk = self.model.context()
        first = "Once upon a time, "
        text = talk.generate(first, max_new_tokens=8)
        self.assertEqual(text, self.model.generate(first, max_new_tokens=8))
        self.assertEqual((talk.info.kept_texts, talk.info.tokens_reused), (1, 0))
        [before] = self.model.generate_texts(first, max_new_tokens=8)
        ids = [*self.model.encode(first), *before.ids, *b" more"]
        [more] = talk.generate_texts(ids, max_new_tokens=8)
        self.assertEqual([more], self.model.generate_texts(ids, max_new_tokens=8))
        info = talk.info
        self.assertGreaterEqual(info.tokens_reused, len(first))
        self.assertEqual(info.tokens_read + info.tokens_reused, len(first) + len(ids))
        self.assertEqual(info.tokens_written, 16)
        self.assertGreater(info.cache_bytes, 0)

        # By another's memory, by a file, in bytes: each begins with the same.
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "talk.safetensors")
            talk.save(path)
            others = [talk.fork(), self.model.context(), self.model.context()]
            others[1].restore(path)
            others[2].restore_bytes(bytearray(talk.save_bytes()))
            path.write_bytes(path.read_bytes()[:-1])
            with self.assertRaises(tessera.Error):
                others[1].restore(path)
        for other in others:
            self.assertEqual(other.info.kept_tokens, info.kept_tokens)
            reused = other.info.tokens_reused
            self.assertEqual(other.generate_texts(ids, max_new_tokens=8), [more])
            self.assertEqual(other.info.tokens_reused - reused, len(ids) - 1)
        talk.clear()
        self.assertEqual((talk.info.kept_tokens, talk.info.cache_bytes), (0, 0))

        # One token at a time.
        steps = list(self.model.encode(first))
        for _ in range(8):
            steps.append(talk.step(steps))
        self.assertEqual(steps[len(first):], before.ids)

    def test_context_runs_one_call(self):
        talk = self.model.context()
        with talk._contexts.taken(talk._own):
            for call in [lambda: talk.generate("Ho"), lambda: talk.info, talk.fork, talk.close]:
                with self.assertRaises(tessera.Error) as caught:
                    call()
                self.assertEqual(caught.exception.code, tessera.Code.BUSY)
        talk.close()
        talk.close()
        with self.assertRaisesRegex(tessera.Error, "closed"):
            talk.generate("Hi")
        # A stream keeps its context, the model closes those that are open.
        self.assertEqual(len(list(self.model.context().stream("Hi", max_new_tokens=5))), 6)
        talk = self.model.context()
        self.model.close()
        with self.assertRaisesRegex(tessera.Error, "closed"):
            talk.generate("Hi")

    def test_memory(self):
        memory = tessera.memory()
        self.assertGreaterEqual(memory.peak, memory.bytes)
        self.assertGreaterEqual(memory.reserved, memory.bytes)
        before = memory.bytes
        copied = tessera.Model(MODEL, copy_weights=True)
        self.assertGreaterEqual(tessera.memory().bytes - before, 4 * copied.info.parameters)
        copied.close()

    def test_progress(self):
        seen = []
        tessera.Model(MODEL, progress=lambda done, total: seen.append((done, total))).close()
        self.assertTrue(seen)
        self.assertEqual(*seen[-1])

        def give_up(done, total):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            tessera.Model(MODEL, progress=give_up)

    def interrupts(self, work):
        """How many of five signals end `work`, which is done again and again."""
        raised = 0
        for _ in range(5):
            timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
            timer.start()
            end = time.monotonic() + 2
            try:
                while time.monotonic() < end:
                    work()
            except KeyboardInterrupt:
                raised += 1
            timer.join()
        return raised

    def test_interrupts(self):
        """Ctrl-C is raised, also where it comes in a callback of the library. What is raised in a
        __del__ Python loses, which is seldom."""
        for work in [
            lambda: self.model.generate("Hi", max_new_tokens=200),
            lambda: self.model.generate_batch(["Hi", "Ho"], max_new_tokens=200),
            lambda: list(self.model.stream("Hi", max_new_tokens=200)),
            lambda: tessera.Model(MODEL, progress=lambda done, total: None).close(),
        ]:
            with mock.patch.object(sys, "unraisablehook"):
                self.assertGreaterEqual(self.interrupts(work), 3)
        self.model.close()

    def test_is_not_pickled(self):
        lost = []
        with mock.patch.object(sys, "unraisablehook", lost.append):
            for copied in [pickle.dumps, copy.deepcopy]:
                with self.assertRaisesRegex(TypeError, "open it in each process"):
                    copied(self.model)
        self.assertEqual(lost, [])

    def test_threads(self):
        """Calls at once give what each gives alone, and are cancelled together."""
        alone = [self.model.generate([i, i], max_new_tokens=20) for i in range(1, 5)]
        found = {}

        def work(i):
            found[i] = self.model.generate([i, i], max_new_tokens=20)

        threads = [threading.Thread(target=work, args=[i]) for i in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([found[i] for i in range(1, 5)], alone)

        tokens = self.model.stream("Hi", max_new_tokens=250)
        next(tokens)
        with self.assertRaises(tessera.Error) as caught:
            self.model.close()
        self.assertEqual(caught.exception.code, tessera.Code.BUSY)
        self.model.cancel()
        with self.assertRaises(tessera.Error) as caught:
            list(tokens)
        self.assertEqual(caught.exception.code, tessera.Code.CANCELLED)

    def test_forward(self):
        results = self.model.forward(input_ids=IDS, all_hidden_states=True)
        logits = results["logits"]
        self.assertEqual(logits.shape, (2, 4, self.model.info.vocab_size))
        self.assertIn("hidden_states.0", results)
        row = logits.tolist()[0][3]
        [text] = self.model.generate_texts(IDS[0], max_new_tokens=1)
        self.assertEqual(row.index(max(row)), text.ids[0])
        # What one call gave stays when another is made, and when all else is gone.
        kept = logits.tobytes()
        del results
        self.model.forward({"input_ids": [[1, 2, 3]]})
        gc.collect()
        self.assertEqual(logits.tobytes(), kept)

    def test_embed(self):
        vector = self.model.embed("Hi")
        self.assertEqual(vector.shape, (self.model.info.embedding_size,))
        states = self.model.forward(input_ids=[[72, 105]])["last_hidden_state"].tolist()[0]
        mean = [sum(column) / 2 for column in zip(*states)]
        for got, want in zip(self.model.embed([72, 105], pooling="mean").tolist(), mean):
            self.assertAlmostEqual(got, want, places=5)
        length = sum(x * x for x in self.model.embed("Hi", normalise=True).tolist())
        self.assertAlmostEqual(length, 1, places=5)


class TensorTest(unittest.TestCase):
    def test_parts(self):
        rows = [[1.5, 2, 3], [4, 5, 6]]
        halves = b"".join(struct.pack("<f", value)[2:] for row in rows for value in row)
        for tensor in (tessera.as_tensor(rows), tessera.as_tensor(rows, dtype="float64"),
                       tessera._tensor._of_bytes(halves, (2, 3), "bfloat16")):
            self.assertEqual(tensor[1].tolist(), rows[1])
            self.assertEqual((tensor[-1, 0], tensor[0][-1]), (4, 3))
            self.assertIsInstance(tensor[0, 0], float)
            self.assertEqual(tensor[1:].tolist(), rows[1:])
            self.assertEqual(tensor[0, 1:].tolist(), rows[0][1:])
            self.assertEqual(tensor[2:].shape, (0, 3))
            self.assertEqual([row.tolist() for row in tensor], rows)
            self.assertEqual(list(tensor[0]), rows[0])
            self.assertEqual(max(tensor[1]), 6)
            self.assertIs(tensor[()], tensor)
        self.assertIsInstance(tessera.as_tensor([1, 2])[0], int)
        for index in (2, -3, (0, 0, 0), "a", slice(None, None, 2), (slice(0, 1), 0), Ellipsis):
            with self.assertRaises(IndexError):
                tensor[index]
        # A part keeps the memory.
        part = tessera.as_tensor(rows)[1]
        gc.collect()
        self.assertEqual(part.tolist(), rows[1])
        one = tessera.as_tensor(7)
        self.assertEqual((one.item(), float(one), int(tessera.as_tensor([3]))), (7, 7.0, 3))
        for several in (tensor, tensor[2:]):
            with self.assertRaises(ValueError):
                several.item()

    def test_lists(self):
        for values, dtype, shape in [
            ([[1, 2, 3], [4, 5, 6]], "int64", (2, 3)),
            ([1.5, 2], "float32", (2,)),
            ([True, False], "bool", (2,)),
            (7, "int64", ()),
            ([[], []], "int64", (2, 0)),
        ]:
            tensor = tessera.as_tensor(values)
            self.assertEqual((tensor.dtype, tensor.shape), (dtype, shape))
            self.assertEqual(tensor.tolist(), values)
        self.assertEqual(tessera.as_tensor([1, 2], dtype="float64").tolist(), [1.0, 2.0])
        for values in [[[1, 2], [3]], ["one"]]:
            with self.assertRaises(tessera.Error):
                tessera.as_tensor(values)

    def test_dlpack_between_tensors(self):
        """A capsule shows the same memory, and keeps it as long as anybody has it."""
        tensor = tessera.as_tensor([[1, 2], [3, 4]])
        other = tessera.from_dlpack(tensor)
        self.assertEqual(other.tolist(), [[1, 2], [3, 4]])
        self.assertEqual(other._address, tensor._address)
        del tensor
        gc.collect()
        self.assertEqual(other.tolist(), [[1, 2], [3, 4]])
        self.assertEqual(len(tessera._tensor._exported), 1)
        del other
        gc.collect()
        self.assertEqual(tessera._tensor._exported, {})
        for version, name in [(None, "dltensor"), ((0, 8), "dltensor"),
                              ((1, 0), "dltensor_versioned")]:
            unused = tessera.as_tensor([1]).__dlpack__(max_version=version)
            self.assertIn(f'"{name}"', repr(unused))
            self.assertEqual(len(tessera._tensor._exported), 1)
            del unused
            gc.collect()
            self.assertEqual(tessera._tensor._exported, {})

    def test_dlpack_elsewhere(self):
        class OnDevice:
            def __dlpack_device__(self):
                return (2, 0)

        with self.assertRaisesRegex(tessera.Error, "move it to the CPU"):
            tessera.from_dlpack(OnDevice())

    @unittest.skipUnless(HAS_NUMPY, "NumPy is not installed")
    def test_numpy(self):
        import numpy

        ids = numpy.array(IDS)
        with tessera.Model(MODEL) as model:
            results = model.forward(input_ids=ids)
            logits = results["logits"]
            array = logits.numpy()
            self.assertEqual(array.tolist(), logits.tolist())
            # Where no element lies beside the next, and where nobody may write.
            wide = numpy.zeros((2, 8), numpy.int32)
            wide[:, ::2] = ids
            turned = numpy.asfortranarray(ids)
            turned.flags.writeable = False
            for inputs in (wide[:, ::2], turned, tessera.from_dlpack(wide[:, ::2])):
                same = model.forward(input_ids=inputs)["logits"]
                self.assertTrue((same.numpy() == array).all())
        self.assertEqual(numpy.asarray(logits).__array_interface__["data"][0], logits._address)
        shared = numpy.from_dlpack(logits)
        array[0, 0, 0] = 5
        self.assertEqual(shared[0, 0, 0], 5)
        if int(numpy.__version__.split(".")[0]) > 1:  # from 2 on it asks for DLPack 1
            shared[0, 0, 1] = 6
            self.assertEqual(array[0, 0, 1], 6)
        del logits, results, shared
        gc.collect()
        self.assertEqual(array[0, 0, 0], 5)
        self.assertEqual(tessera.from_dlpack(ids)._address, ids.__array_interface__["data"][0])
        half = tessera.as_tensor(numpy.array([1.5], numpy.float16))
        self.assertEqual((half.dtype, half.tolist()), ("float16", [1.5]))
        small = tessera.as_tensor(numpy.array([1], numpy.uint16))
        self.assertEqual((small.dtype, small.tolist()), ("int64", [1]))
        for dtype in ("uint64", "complex64", "object", "str", "M8[ns]"):
            with self.assertRaises(tessera.Error):
                tessera.as_tensor(numpy.array([1]).astype(dtype))
        # Within lists, too.
        rows = tessera.as_tensor([numpy.array([1, 2]), [numpy.int64(3), 4]])
        self.assertEqual((rows.dtype, rows.tolist()), ("int64", [[1, 2], [3, 4]]))
        self.assertEqual(tessera.as_tensor([numpy.float32(1.5)]).tolist(), [1.5])

    @unittest.skipUnless(HAS_NUMPY, "NumPy is not installed")
    def test_numpy_of_bfloat16(self):
        import numpy

        with tessera.Model(MODEL, dtype="bfloat16") as model:
            logits = model.forward(input_ids=IDS)["logits"]
            if logits.dtype == "bfloat16":
                self.assertEqual(logits.numpy().dtype, numpy.float32)
            self.assertEqual(logits.numpy().tolist(), logits.tolist())


class TrainerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def test_training(self):
        """The loss falls, and a checkpoint continues with the same bits."""
        with tessera.Trainer(MODEL, learning_rate=1e-3, max_grad_norm=1) as trainer:
            before = trainer.evaluate(input_ids=IDS, labels=IDS)
            for _ in range(3):
                trainer.step(input_ids=IDS, labels=IDS)
            trainer.save_checkpoint(self.path / "checkpoint")
            losses = [trainer.step(input_ids=IDS, labels=IDS) for _ in range(3)]
            after = trainer.evaluate({"input_ids": IDS, "labels": IDS})
            self.assertLess(after, before)
            self.assertEqual(trainer.info.updates, 6)
            trainer.learning_rate = 1e-5
            self.assertAlmostEqual(trainer.learning_rate, 1e-5)
            trainer.save(self.path / "tuned")
        with tessera.Trainer(MODEL, learning_rate=1e-3, max_grad_norm=1) as trainer:
            trainer.load_checkpoint(self.path / "checkpoint")
            self.assertEqual([trainer.step(input_ids=IDS, labels=IDS) for _ in range(3)], losses)
        with tessera.Model(self.path / "tuned") as model:
            loss = model.forward(input_ids=IDS, labels=IDS)["loss"].tolist()
            self.assertAlmostEqual(loss, after, places=5)
        with self.assertRaisesRegex(tessera.Error, "closed"):
            trainer.step(input_ids=IDS, labels=IDS)

    def test_adapter(self):
        """A model without its adapter is as it was; with it, it is not."""
        with tessera.Trainer(MODEL, learning_rate=1e-2, adapter={"r": 2}) as trainer:
            for _ in range(3):
                trainer.step(input_ids=IDS, labels=IDS)
            trainer.save(self.path / "adapter")
        with tessera.Model(MODEL) as plain, tessera.Model(
            MODEL, adapters=[self.path / "adapter"]
        ) as model:
            wanted = plain.forward(input_ids=IDS)["logits"].tobytes()
            self.assertEqual(model.forward(input_ids=IDS, adapter=-1)["logits"].tobytes(), wanted)
            self.assertNotEqual(model.forward(input_ids=IDS)["logits"].tobytes(), wanted)


class ProcessTest(unittest.TestCase):
    def run_program(self, text: str) -> None:
        run = subprocess.run([sys.executable, "-c", text, MODEL], capture_output=True, text=True,
                             timeout=60)
        self.assertEqual((run.returncode, run.stderr), (0, ""), text)

    def test_daemon_threads_at_the_end_of_a_program(self):
        """They may be amid a text, which does not end the program with a signal."""
        self.run_program("import sys, threading, time, tessera\n"
                         "model = tessera.Model(sys.argv[1])\n"
                         "def work():\n"
                         "    while True:\n"
                         "        model.generate('Hi', max_new_tokens=200)\n"
                         "for _ in range(3):\n"
                         "    threading.Thread(target=work, daemon=True).start()\n"
                         "time.sleep(0.2)")

    def test_generates_as_a_program_ends(self):
        """When Python starts no more threads."""
        self.run_program("import atexit, sys, tessera\n"
                         "model = tessera.Model(sys.argv[1])\n"
                         "def check():\n"
                         "    assert len(model.generate([72], max_new_tokens=3)) > 0\n"
                         "atexit.register(check)")

    def test_configure(self):
        self.run_program("import sys, tessera\n"
                         "tessera.configure(threads=2, log=print)\n"
                         "tessera.Model(sys.argv[1]).generate('Hi', max_new_tokens=2)")

    def test_end_of_a_program(self):
        """Whatever is open when a program ends, it ends in time and without a word."""
        self.run_program("import sys, tessera\n"
                         "model = tessera.Model(sys.argv[1])\n"
                         "tensor = model.forward(input_ids=[[1]])['logits']\n"
                         "capsule = tensor.__dlpack__()\n"
                         "other = tessera.from_dlpack(tensor)\n"
                         "next(model.stream('Hi', max_new_tokens=250))")

    def test_stream_at_the_end_of_a_program(self):
        """A stream that is open when a program ends does not write on."""
        self.run_program("import atexit, sys, tessera\n"
                         "model = tessera.Model(sys.argv[1])\n"
                         "tokens = model.stream('Hi', max_new_tokens=250, do_sample=True,\n"
                         "                      num_return_sequences=16, logit_bias={256: -100})\n"
                         "next(tokens)\n"
                         "def check():\n"
                         "    assert tokens._work.items.qsize() < 3000\n"
                         "atexit.register(check)")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
