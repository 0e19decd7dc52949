#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forward passes a second of encoders, and texts of encoder-decoders, beside peers.

  bazel build //tools:tessera //bench:inference
  python3 bench/forward_speed.py bert-base-uncased vit-base-patch16-224 t5-small --batches 1,16 --threads 2

Presets get random weights; text is 128 tokens, pictures are of the model's size. Float32 on all sides. Every program
is a process that stays alive and sleeps while another one is timed; in each round every one is timed once, in turns,
and figures are medians. A T5 writes 32 tokens for a source of 64, greedily.

Peers (development only): torch with transformers (scaled dot product attention, inference mode), onnxruntime (of the
encoder as torch exports it; needs onnx), ctranslate2 (T5; of a BERT it has no head). Options that begin with --serve are for the
processes themselves.
"""
import argparse
import json
import os
import sys
import tempfile
import time

from served import Program, run

TOKENS, SOURCE, NEW = 128, 64, 32


# ---- Peers, each a function that makes forward(rows) -------------------------------------------------------------

def model_and_inputs(folder):
    import torch
    import transformers
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config.architectures[0]).from_pretrained(folder).eval()
    if config.model_type == "vit":
        size = config.image_size
        return model, config, lambda rows: {"pixel_values": torch.randn(rows, config.num_channels, size, size)}
    length = SOURCE if config.model_type == "t5" else TOKENS
    return model, config, lambda rows: {"input_ids": torch.randint(5, 1000, (rows, length))}


def torch_peer(folder, threads):
    import torch
    torch.set_num_threads(threads)
    model, config, inputs = model_and_inputs(folder)

    def forward(rows):
        with torch.inference_mode():
            if config.model_type == "t5":
                model.generate(**inputs(rows), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
            else:
                model(**inputs(rows))
    return forward


def onnx_peer(folder, threads):
    import onnxruntime
    import torch
    model, config, inputs = model_and_inputs(folder)
    path = folder + "/exported.onnx"
    sample = inputs(2)
    name = next(iter(sample))

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(**{name: x})[0]
    with torch.inference_mode():
        torch.onnx.export(Logits().eval(), (sample[name],), path, input_names=[name], dynamic_axes={name: {0: "rows"}},
                          dynamo=False, opset_version=17)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(None, {name: inputs(rows)[name].numpy()})


def name_tokens(folder):
    """A vocabulary for a folder without one, which ctranslate2 insists on."""
    if os.path.exists(folder + "/tokenizer.json"):
        return
    size = json.load(open(folder + "/config.json"))["vocab_size"]
    words = ["<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(3, size))]
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    with open(folder + "/tokenizer.json", "w") as file:
        json.dump({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                   "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)},
                             "unk_token": "<unk>"}}, file)
    with open(folder + "/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **special}, file)


def ctranslate2_peer(folder, threads):
    import ctranslate2
    name_tokens(folder)
    target = folder + "/ct2"
    ctranslate2.converters.TransformersConverter(folder).convert(target, force=True)
    model = ctranslate2.Translator(target, compute_type="float32", intra_threads=threads)
    with open(target + "/shared_vocabulary.json") as file:
        words = json.load(file)
    return lambda rows: model.translate_batch([words[5:5 + SOURCE]] * rows, beam_size=1, max_decoding_length=NEW,
                                              min_decoding_length=NEW)


PEERS = {"torch": torch_peer, "onnxruntime": onnx_peer, "ctranslate2": ctranslate2_peer}
RUNS = {"bert": ("torch", "onnxruntime"), "vit": ("torch", "onnxruntime"), "t5": ("torch", "ctranslate2")}


def serve(options):
    forward = PEERS[options.serve](options.models[0], options.threads)
    print("start", flush=True)
    for line in sys.stdin:
        _, rows, _, times = line.split()
        seconds = []
        for _ in range(int(times)):
            begin = time.time()
            forward(int(rows))
            seconds.append(time.time() - begin)
        print(json.dumps({"seconds": seconds}), flush=True)


# ---- The comparison ----------------------------------------------------------------------------------------------

def seconds_of(program, family, rows, times):
    """The fastest of a few, since whatever else runs only ever adds."""
    if family == "t5" and program.name == "Tessera":
        said = [program.ask(f"generate {rows} {SOURCE} {NEW}") for _ in range(times)]
        return min(one["prompt_seconds"] + one["seconds"] for one in said)
    return min(program.ask(f"forward {rows} {TOKENS} {times}")["seconds"])


def compare(options, model, scratch):
    folder = f"{scratch}/{model}"
    if os.path.isdir(model):
        folder = model
    else:
        run(options.inference, "--model", model, "--save", folder)
    family = json.load(open(folder + "/config.json"))["model_type"]
    programs = [Program("Tessera", [options.inference, "--model", folder, "--threads", options.threads])]
    for peer in filter(None, options.peers.split(",")):
        if peer in RUNS[family]:
            programs.append(Program(peer, [sys.executable, __file__, folder, "--serve", peer, "--threads",
                                           options.threads]))
    for rows in [int(count) for count in options.batches.split(",")]:
        times = 5 if rows == 1 else 2
        for program in programs:
            seconds_of(program, family, rows, 1)
        for _ in range(options.rounds):
            for program in programs:
                program.note(rows, 1 / seconds_of(program, family, rows, times))
        rates = {program.name: program.rate(rows) for program in programs}
        fastest = max((rate for name, rate in rates.items() if name != "Tessera"), default=None)
        cells = [f"{1000 / rates[name]:.1f}" if name in rates else "" for name in ("Tessera", *PEERS)]
        print(f"| {model} | {rows} | {' | '.join(cells)} | {rates['Tessera'] / fastest if fastest else 0:.2f} |",
              flush=True)
    for program in programs:
        program.process.stdin.close()
        program.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="presets or folders")
    parser.add_argument("--inference", default="bazel-bin/bench/inference")
    parser.add_argument("--peers", default="torch,onnxruntime,ctranslate2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options)
    print(f"| model | rows | Tessera, ms | {', ms | '.join(PEERS)}, ms | beside the fastest peer |")
    print("|---" * (len(PEERS) + 4) + "|")
    with tempfile.TemporaryDirectory() as scratch:
        for model in options.models:
            compare(options, model, scratch)


if __name__ == "__main__":
    main()
