# SPDX-License-Identifier: Apache-2.0
"""Vectors and scores of texts against sentence-transformers, and their speed beside ONNX Runtime.

    pip install torch transformers sentence-transformers onnxruntime onnx
    bazel build -c opt //tools:tessera
    python tests/parity/text_vectors.py [--tessera BINARY] [--model FOLDER [--rates [--library libtessera.so]]]

Folders with every pooling, Dense, Normalize, lengths, prompts and paths are made of small random models, in
the files of sentence-transformers 2 and 6; `tessera embed` and `tessera rerank` must give what it gives.
With --model a real folder is compared on 200 texts, and with --rates timed beside its ONNX export: the server with
one connection, and with --library libtessera.so the C library, text by text.
"""
import argparse
import base64
import ctypes
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sentence_transformers.base.modules import Dense, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForSequenceClassification, CONFIG_MAPPING, PreTrainedTokenizerFast

WORDS = ("the quick brown fox jumps over lazy dog a man is eating food woman reads book find query "
         "numbers one two three four paris capital france tree house river find : , . ! ?").split()
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def texts(count, seed=1):
    pick = random.Random(seed)
    made = [" ".join(pick.choice(WORDS) for _ in range(pick.randint(1, 24))) for _ in range(count)]
    return made + ["", "The QUICK Brown fox", "[SEP] the fox", "unknownword the"]


def tokenizer(lower, typed):
    vocabulary = {w: i for i, w in enumerate(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + sorted(set(WORDS)) + ["The", "QUICK", "Brown"])}
    fast = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    if lower:
        fast.normalizer = normalizers.Lowercase()
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="[UNK]", pad_token="[PAD]",
                                   cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
                                   model_max_length=64, model_input_names=[
                                       "input_ids", *["token_type_ids"] * typed, "attention_mask"])


SMALL = dict(vocab_size=60, hidden_size=24, intermediate_size=36, num_hidden_layers=2,
             num_attention_heads=3, max_position_embeddings=66, pad_token_id=0)
LLAMA = dict(SMALL, num_key_value_heads=1, head_dim=8, bos_token_id=2, eos_token_id=3)
FAMILIES = {
    "bert": ("bert", SMALL), "roberta": ("roberta", dict(SMALL, type_vocab_size=2)),
    "xlm-roberta": ("xlm-roberta", dict(SMALL, type_vocab_size=2)),
    "modernbert": ("modernbert", dict(SMALL, local_attention=6, cls_token_id=2, sep_token_id=3,
                                      bos_token_id=2, eos_token_id=3)),
    "gpt2": ("gpt2", dict(vocab_size=60, n_positions=66, n_embd=24, n_layer=2, n_head=3, pad_token_id=0)),
    "llama": ("llama", LLAMA), "qwen2": ("qwen2", LLAMA), "qwen3": ("qwen3", LLAMA),
    "mistral": ("mistral", LLAMA), "gemma3": ("gemma3_text", LLAMA),
}


def randomised(model, seed=3):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def base(family, folder, classes=None, lower=True, **changes):
    kind, sizes = FAMILIES[family]
    config = CONFIG_MAPPING[kind](**{**sizes, **changes})
    torch.manual_seed(1)
    if classes is None:
        model = AutoModel.from_config(config)
    else:
        config.num_labels = classes
        model = AutoModelForSequenceClassification.from_config(config)
    randomised(model).save_pretrained(folder)
    tokenizer(lower, "type_vocab_size" in config.to_dict()).save_pretrained(folder)


def dense(size, out, activation, **more):
    layer = Dense(size, out, activation_function=activation, **more)
    return randomised(layer)


def as_version_2(folder):
    """The same in the files of version 2: names of classes, switches, pytorch_model.bin."""
    old = {"Transformer": "models.Transformer", "Pooling": "models.Pooling", "Dense": "models.Dense",
           "Normalize": "models.Normalize"}
    path = os.path.join(folder, "modules.json")
    listed = json.load(open(path))
    for module in listed:
        name = module["type"].rsplit(".", 1)[1]
        module["type"] = "sentence_transformers." + old[name]
        inner = os.path.join(folder, module["path"])
        if name == "Pooling":
            config = json.load(open(os.path.join(inner, "config.json")))
            modes = config["pooling_mode"]
            modes = [modes] if isinstance(modes, str) else modes
            legacy = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens",
                      "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
                      "weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}
            json.dump({"word_embedding_dimension": config["embedding_dimension"],
                       **{"pooling_mode_" + legacy[m]: m in modes for m in MODES}},
                      open(os.path.join(inner, "config.json"), "w"))
        if name == "Normalize":
            shutil.rmtree(inner, ignore_errors=True)
        if name == "Dense":
            from safetensors.torch import load_file
            weights = os.path.join(inner, "model.safetensors")
            torch.save(load_file(weights), os.path.join(inner, "pytorch_model.bin"))
            os.remove(weights)
            config = json.load(open(os.path.join(inner, "config.json")))
            keep = ("in_features", "out_features", "bias", "activation_function")
            json.dump({k: config[k] for k in keep}, open(os.path.join(inner, "config.json"), "w"))
    json.dump(listed, open(path, "w"))
    json.dump({"max_seq_length": 12, "do_lower_case": False},
              open(os.path.join(folder, "sentence_bert_config.json"), "w"))
    json.dump({"__version__": {"sentence_transformers": "2.0.0"}},
              open(os.path.join(folder, "config_sentence_transformers.json"), "w"))


def into_folder(folder):
    """The Transformer in a folder of its own, as versions 0 and 1 wrote it."""
    inner = os.path.join(folder, "0_Transformer")
    os.mkdir(inner)
    keep = {"modules.json", "config_sentence_transformers.json", "README.md", "0_Transformer"}
    for name in os.listdir(folder):
        if name in keep or name[0].isdigit() and os.path.isdir(os.path.join(folder, name)):
            continue
        shutil.move(os.path.join(folder, name), inner)
    path = os.path.join(folder, "modules.json")
    listed = json.load(open(path))
    listed[0]["path"] = "0_Transformer"
    json.dump(listed, open(path, "w"))


def patched(name, **changes):
    def patch(folder):
        path = os.path.join(folder, name)
        config = json.load(open(path)) if os.path.exists(path) else {}
        json.dump({**config, **changes}, open(path, "w"))
    return patch


def variants():
    """Name, family, modules behind the Transformer, SentenceTransformer's arguments, what is then done."""
    for mode in MODES:
        yield mode, "bert", [Pooling(24, mode)], {}, []
        yield mode + "_2", "bert", [Pooling(24, mode)], {}, [as_version_2]
    yield "two", "bert", [Pooling(24, ("mean", "cls"))], {}, []
    yield "two_other_order", "bert", [Pooling(24, ("max", "cls"))], {}, []
    yield "two_2", "bert", [Pooling(24, ("cls", "mean"))], {}, [as_version_2]
    yield "six", "bert", [Pooling(24, tuple(MODES))], {}, []
    yield "unit", "bert", [Pooling(24), Normalize()], {}, []
    yield "unit_2", "bert", [Pooling(24), Normalize()], {}, [as_version_2]
    for name in ("Tanh", "Identity", "ReLU", "Sigmoid", "GELU", "SiLU"):
        yield name, "bert", [Pooling(24), dense(24, 10, getattr(torch.nn, name)())], {}, []
    yield "dense_2", "bert", [Pooling(24), dense(24, 32, torch.nn.Tanh()), Normalize()], {}, [as_version_2]
    yield "no_bias", "bert", [Pooling(24), dense(24, 32, torch.nn.Identity(), bias=False)], {}, []
    yield "two_dense", "bert", [Pooling(24), dense(24, 48, torch.nn.Identity(), bias=False),
                                dense(48, 16, torch.nn.Identity(), bias=False), Normalize()], {}, []
    yield "residual", "bert", [Pooling(24), dense(24, 24, torch.nn.Tanh(), use_residual=True)], {}, []
    yield "residual_other", "bert", [Pooling(24), dense(24, 9, torch.nn.Tanh(), use_residual=True)], {}, []
    yield "tokens_dense", "bert", [dense(24, 12, torch.nn.Identity(), module_input_name="token_embeddings"),
                                   Pooling(12, "max")], {}, []
    yield "tokens_unit", "bert", [Normalize(module_input_name="token_embeddings"), Pooling(24)], {}, []
    yield "short", "bert", [Pooling(24)], {}, [patched("sentence_bert_config.json", max_seq_length=9)]
    yield "short_tokenizer", "bert", [Pooling(24)], {}, [patched("tokenizer_config.json", model_max_length=7)]
    yield "cut_left", "bert", [Pooling(24)], {}, [patched("tokenizer_config.json", model_max_length=7,
                                                          truncation_side="left")]
    yield "lower", "bert", [Pooling(24)], {"lower": False}, [
        patched("sentence_bert_config.json", do_lower_case=True)]
    yield "cased", "bert", [Pooling(24)], {"lower": False}, []
    prompts = dict(prompts={"query": "find : ", "document": ""}, default_prompt_name="query")
    yield "prompt", "bert", [Pooling(24)], prompts, []
    for mode in MODES:
        yield "without_prompt_" + mode, "bert", [Pooling(24, mode, include_prompt=False)], prompts, []
    yield "shortened", "bert", [Pooling(24), Normalize()], {}, [
        patched("config_sentence_transformers.json", truncate_dim=8)]
    yield "inner", "bert", [Pooling(24), Normalize()], {}, [into_folder]
    yield "inner_2", "bert", [Pooling(24), dense(24, 5, torch.nn.Tanh())], {}, [as_version_2, into_folder]
    for family in FAMILIES:
        yield family, family, [Pooling(24), Normalize()], {}, []
        yield family + "_last", family, [Pooling(24, "lasttoken")], prompts, []


def run(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def lines_of(all_texts, folder):
    path = os.path.join(folder, "texts.txt")
    with open(path, "w", encoding="utf-8") as out:
        out.write("".join(t + "\n" for t in all_texts))
    return path


def embed(binary, folder, all_texts, work, *flags):
    out = os.path.join(work, "vectors.npy")
    run(binary, "embed", folder, "--input", lines_of(all_texts, work), "--output", out, "--overwrite", *flags)
    return numpy.load(out)


def cosines(a, b):
    return (a * b).sum(1) / (numpy.linalg.norm(a, axis=1) * numpy.linalg.norm(b, axis=1))


def check_folders(binary, work):
    bad = count = 0
    worst = 0.0
    for name, family, modules, options, patches in variants():
        folder = os.path.join(work, name)
        origin = os.path.join(work, "base")
        shutil.rmtree(origin, ignore_errors=True)
        base(family, origin, lower=options.pop("lower", True))
        peer = SentenceTransformer(modules=[Transformer(origin), *modules], device="cpu", **options)
        peer.save(folder)
        for patch in patches:
            patch(folder)
        count += 1
        try:
            want = SentenceTransformer(folder, device="cpu").encode(texts(20), batch_size=1)
            got = embed(binary, folder, texts(20), work)
            error = abs(got - want).max() / abs(want).max()
            worst = max(worst, error)
            fine = got.shape == want.shape and error < 5e-6
            note = "%.1e" % error
        except Exception as failure:
            fine, note = False, str(failure)[:300]
        bad += not fine
        print("%-32s %s  %s" % (name, "ok" if fine else "BAD", note), flush=True)
        shutil.rmtree(folder)
    print("%d folders, %d bad, largest relative difference %.1e" % (count, bad, worst))
    return bad


def check_rerankers(binary, work):
    bad = 0
    kinds = [(f, {}) for f in ("bert", "roberta", "xlm-roberta", "modernbert")]
    kinds += [("bert", {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}),
              ("bert", {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"})]
    for number, (family, changes) in enumerate(kinds):
        for saved in (False, True):
            folder = os.path.join(work, "reranker")
            shutil.rmtree(folder, ignore_errors=True)
            base(family, folder, classes=1)
            patched("config.json", **changes)(folder)
            if saved:
                peer = CrossEncoder(folder, device="cpu")
                shutil.rmtree(folder)
                peer.save(folder)
            documents = texts(20, seed=2)
            query = "find the capital"
            want = CrossEncoder(folder, device="cpu").predict([(query, d) for d in documents], batch_size=1)
            try:
                out = run(binary, "rerank", folder, "--query", query, "--input", lines_of(documents, work))
                rows = [json.loads(line) for line in out.splitlines()]
                got = numpy.zeros(len(documents))
                for row in rows:
                    got[row["index"]] = row["relevance_score"]
                order = [row["relevance_score"] for row in rows]
                error = abs(got - want).max()
                fine = len(rows) == len(documents) and error < 5e-6 and order == sorted(order, reverse=True)
                note = "%.1e" % error
            except Exception as failure:
                fine, note = False, str(failure)[:300]
            bad += not fine
            print("reranker %d %-12s %s %s  %s" % (number, family, "saved" if saved else "plain",
                                                   "ok" if fine else "BAD", note), flush=True)
    return bad


def real_texts(count):
    pick = random.Random(7)
    return [" ".join(pick.choice(WORDS) for _ in range(pick.randint(3, 40))) for _ in range(count)]


def check_real(binary, model, work):
    all_texts = real_texts(200)
    want = SentenceTransformer(model, device="cpu").encode(all_texts)
    got = embed(binary, model, all_texts, work)
    least = cosines(got, want).min()
    print("%s: 200 texts, least cosine %.9f, largest difference %.1e" %
          (model, least, abs(got - want).max()))
    return int(least < 0.999999)


class Library:
    """The C library, text by text."""

    def __init__(self, path, model, threads, size):
        self.c = ctypes.CDLL(path)
        for name in ("tsr_model_load", "tsr_context_create", "tsr_embed_text"):
            getattr(self.c, name).restype = ctypes.c_void_p
        self.c.tsr_status_message.restype = ctypes.c_char_p
        self.c.tsr_status_message.argtypes = [ctypes.c_void_p]

        class Options(ctypes.Structure):  # the first members of tsr_context_options
            _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int)]
        loaded, self.context = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.c.tsr_model_load(model.encode(), None, ctypes.byref(loaded)))
        options = Options(ctypes.sizeof(Options), threads)
        self.check(self.c.tsr_context_create(loaded, ctypes.byref(options), ctypes.byref(self.context)))
        self.vector = numpy.zeros(size, numpy.float32)

    def check(self, status):
        if status:
            sys.exit(self.c.tsr_status_message(status).decode())

    def __call__(self, batch):
        vectors = []
        for text in batch:
            text = text.encode()
            self.check(self.c.tsr_embed_text(
                self.context, text, ctypes.c_size_t(len(text)), None,
                self.vector.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(self.vector))))
            vectors.append(self.vector.copy())
        return numpy.stack(vectors)


def rates(binary, model, work, threads, library):
    """Texts a second of one server, of the library and of ONNX Runtime with the same tokenizer, alternating."""
    import onnxruntime
    peer = SentenceTransformer(model, device="cpu")
    onnx = os.path.join(work, "model.onnx")
    example = peer.tokenizer(["a text", "another text"], return_tensors="pt")
    names = list(example)
    bert = peer[0].auto_model
    bert.config._attn_implementation = "eager"

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = bert

        def forward(self, *inputs):
            return self.bert(**dict(zip(names, inputs))).last_hidden_state

    torch.onnx.export(Wrapped().eval(), tuple(example[n] for n in names), onnx, input_names=names, output_names=["h"],
                      dynamic_axes={n: {0: "b", 1: "t"} for n in [*names, "h"]}, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    most = peer.max_seq_length

    def with_onnx(batch):
        rows = peer.tokenizer(batch, padding=True, truncation=True, max_length=most, return_tensors="np")
        hidden = session.run(None, {n: rows[n] for n in names})[0]
        mask = rows["attention_mask"][:, :, None]
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return mean / numpy.linalg.norm(mean, axis=1, keepdims=True)

    server = subprocess.Popen([binary, "serve", model, "--port", "0", "--threads", str(threads)],
                              stdout=subprocess.PIPE, text=True)
    connection = http.client.HTTPConnection(server.stdout.readline().split()[-1].split("//")[1])

    def with_server(batch):
        body = json.dumps({"input": batch, "encoding_format": "base64"}).encode()
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        answer = json.load(connection.getresponse())["data"]
        return numpy.stack([numpy.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in answer])

    all_texts = real_texts(192)
    ours = {"server": with_server}
    if library:
        ours["C library"] = Library(library, model, threads, len(with_server(["a"])[0]))
    for ask in ours.values():
        assert cosines(ask(all_texts[:8]), with_onnx(all_texts[:8])).min() > 0.99999
    for size in (1, 32):
        batches = [all_texts[i:i + size] for i in range(0, len(all_texts), size)]
        taken = {with_onnx: [], **{ask: [] for ask in ours.values()}}
        for _ in range(7):
            for ask, seconds in taken.items():
                begin = time.perf_counter()
                for batch in batches:
                    ask(batch)
                seconds.append(time.perf_counter() - begin)
        rate = {ask: len(all_texts) / sorted(s)[len(s) // 2] for ask, s in taken.items()}
        for name, ask in ours.items():
            print("batch %d, %d threads: ONNX Runtime %.0f texts/s, %s %.0f, ratio %.2f" %
                  (size, threads, rate[with_onnx], name, rate[ask], rate[ask] / rate[with_onnx]), flush=True)
    server.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--model")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--library")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if flags.model is None:
            return check_folders(flags.tessera, work) + check_rerankers(flags.tessera, work)
        bad = check_real(flags.tessera, flags.model, work)
        if flags.rates:
            rates(flags.tessera, flags.model, work, flags.threads, flags.library)
        return bad


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
