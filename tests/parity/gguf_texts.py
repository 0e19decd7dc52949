# SPDX-License-Identifier: Apache-2.0
"""GGUF files that the program writes, continued by llama.cpp beside the program itself.

    pip install llama-cpp-python numpy
    bazel build -c opt //tools:tessera
    python tests/parity/gguf_texts.py FOLDER --types f16,q8_0,q4_0 --prompts "The history of" "I went to"

FOLDER is a trained model with its tokenizer, of a family that GGUF files can hold. For each type it is converted as
`tessera convert` and `tessera quantize` do, and each prompt is continued greedily by both (llama.cpp with keys and
values in float32). Printed is how many prompts have the same ids, how many texts are the same, and, where one parts,
after how many tokens and how far apart llama.cpp's two likeliest tokens are there: it rounds the scales of
activations to float16, so that quantised files part at near ties. Ends with 1 where ids or float16 texts differ.
"""
import argparse
import subprocess
import sys
import tempfile

import llama_cpp
import numpy


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(text):
    return [int(word) for word in text.replace(",", " ").split()]


def likeliest(model, ids):
    """The next token after `ids`, and how far it is above the second."""
    model.reset()
    model.eval(ids)
    scores = model.scores[model.n_tokens - 1]
    second, first = numpy.sort(scores)[-2:]
    return int(scores.argmax()), float(first - second)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--types", default="f16,q8_0,q4_0")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--prompts", nargs="+", default=["The history of", "I went to"])
    options = parser.parse_args()
    failed = False
    for kind in options.types.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            held, path, text = f"{scratch}/held", f"{scratch}/held.gguf", f"{scratch}/prompt.txt"
            if kind == "f16":
                run(options.tessera, "convert", options.folder, held, "--dtype", "float16")
            else:
                run(options.tessera, "quantize", options.folder, held, "--type", kind)
            run(options.tessera, "convert", held, path)
            model = llama_cpp.Llama(path, n_ctx=256, n_threads=1, verbose=False, logits_all=True, flash_attn=False,
                                    type_k=0, type_v=0)
            same_ids, same_texts, parted = 0, 0, []
            for prompt in options.prompts:
                with open(text, "w") as file:
                    file.write(prompt + "\n")
                ids = model.tokenize(prompt.encode(), add_bos=True, special=False)
                said = numbers(run(options.tessera, "tokenize", "--tokenizer", held, "--input", text, "--print-ids"))
                same_ids += said in (ids, ids[1:])
                ours = numbers(run(options.tessera, "generate", "--model", held, "--dtype", "float32" if kind == "f16"
                                   else kind, "--ids", ",".join(map(str, ids)), "--max-new-tokens", options.tokens,
                                   "--temperature", 0))
                at, margin = len(ids), None
                while at < len(ours):
                    token, margin = likeliest(model, ours[:at])
                    if token != ours[at]:
                        break
                    at += 1
                same_texts += at == len(ours)
                if at < len(ours):
                    parted.append(f"{prompt!r} after {at - len(ids)} tokens, margin {margin:.4f}")
            count = len(options.prompts)
            failed = failed or same_ids < count or (kind == "f16" and same_texts < count)
            print(f"{kind}: {same_ids} of {count} prompts have the same ids, {same_texts} of {count} texts are the same",
                  *parted, sep="; ")
    return failed


if __name__ == "__main__":
    sys.exit(main())
