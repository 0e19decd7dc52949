#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far a model with quantised weights is from the same in float32, on text.

  bazel build //tools:tessera
  python3 bench/quantized_quality.py FOLDER TEXT --types q8_0,q4_0,int8 --rows 32 --tokens 256

Rows of tokens of TEXT go through `tessera forward` with each kind of weights. Printed are the mean over tokens of
KL(float32 || quantised) in nats, the perplexity, and by how much it is above float32's. Needs numpy and safetensors
(development only).
"""
import argparse
import subprocess
import tempfile

import numpy
from safetensors.numpy import load_file, save_file


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def log_probabilities(options, dtype, ids, scratch):
    """float64 [rows, tokens, vocabulary]."""
    inputs, outputs = f"{scratch}/in.safetensors", f"{scratch}/out.safetensors"
    save_file({"input_ids": ids}, inputs)
    run(options.tessera, "forward", "--model", options.model, "--inputs", inputs, "--outputs", outputs, "--dtype", dtype)
    logits = load_file(outputs)["logits"].astype(numpy.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--types", default="q8_0,q4_0,int8")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    said = run(options.tessera, "tokenize", "--tokenizer", options.model, "--input", options.text, "--print-ids")
    ids = numpy.array(said.split(), numpy.int64)[:options.rows * options.tokens].reshape(-1, options.tokens)
    with tempfile.TemporaryDirectory() as scratch:
        sums = {}
        for row in ids:
            exact = log_probabilities(options, "float32", row[None], scratch)
            for dtype in ["float32", *options.types.split(",")]:
                held = exact if dtype == "float32" else log_probabilities(options, dtype, row[None], scratch)
                sums.setdefault(dtype, []).append((
                    (numpy.exp(exact) * (exact - held)).sum(-1).mean(),
                    -numpy.take_along_axis(held[0, :-1], row[1:, None], -1).mean()))
    base = None
    print("| weights | KL | perplexity | above float32's |\n|---|---|---|---|")
    for dtype, both in sums.items():
        divergence, loss = numpy.mean(both, axis=0)
        base = loss if base is None else base
        print(f"| {dtype} | {divergence:.2e} | {numpy.exp(loss):.3f} | {100 * (numpy.exp(loss - base) - 1):+.3f} % |")


if __name__ == "__main__":
    main()
