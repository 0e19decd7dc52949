# SPDX-License-Identifier: Apache-2.0
"""A GGUF file beside llama.cpp: logits, greedy texts, and tokens a second.

    pip install torch safetensors numpy llama-cpp-python
    bazel build -c opt //tools:tessera
    python tests/parity/beside_llama_cpp.py MODEL.gguf TEXT [--threads 1] [--only rates]
                                            [--tessera BINARY]

TEXT is a file of English, of which 32 pieces are taken. Printed are the KL divergences of either
program's distributions from those of the dequantised weights in float32, which the program gives
from a dense folder; at what margin llama.cpp's greedy texts leave the program's; and the rates of
both, alternating in one run.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

import numpy
import torch
from llama_cpp import Llama
from safetensors.torch import load_file, save_file

TOKENS = 64  # of a text whose logits are compared
NEW_TOKENS = 192  # that rates of generation are of
PROMPTS = ["The capital of France is", "Once upon a time", "Water boils at", "In 1969, the first",
           "def fibonacci(n):", "The best way to learn", "Dear Sir or Madam,",
           "A recipe for pancakes:", "The meaning of life", "My favourite book is",
           "The sun rises in", "Machine learning is", "It was a dark and", "The quick brown fox",
           "To be or not", "When I was young,", "The largest planet", "Photosynthesis is the",
           "List of colours: red,", "The president of the"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=["logits", "texts", "rates"])
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    return parser.parse_args()


def run(args, *words):
    done = subprocess.run([args.tessera, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tessera_logits(args, folder, ids):
    with tempfile.TemporaryDirectory() as work:
        files = [os.path.join(work, name) for name in ("in.safetensors", "out.safetensors")]
        save_file({"input_ids": ids[None].contiguous()}, files[0])
        run(args, "forward", folder, "--inputs", files[0], "--outputs", files[1])
        return load_file(files[1])["logits"][0].double().log_softmax(-1)


def llama_logits(llama, ids):
    llama.reset()
    llama.eval(ids.tolist())
    return torch.tensor(numpy.array(llama.scores[:len(ids)])).double().log_softmax(-1)


def divergence(p, q):
    return (p.exp() * (p - q)).sum(-1).mean().item()


def compare_logits(args, llama, dense):
    text = open(args.text, encoding="utf-8").read()
    ours, theirs = [], []
    for i in range(32):
        at = i * len(text) // 33
        ids = torch.tensor(llama.tokenize(text[at:at + 600].encode())[:TOKENS])
        wanted = tessera_logits(args, dense, ids)
        ours.append(divergence(wanted, tessera_logits(args, args.model, ids)))
        theirs.append(divergence(wanted, llama_logits(llama, ids)))
    print(f"KL from the dequantised model: {statistics.mean(ours):.2e}, at most {max(ours):.2e}; "
          f"llama.cpp {statistics.mean(theirs):.2e}, at most {max(theirs):.2e}")


def generate(args, prompt, count, least=0):
    said = run(args, "generate", args.model, "--ids", ",".join(map(str, prompt)), "--max-tokens",
               count, "--min-new-tokens", least, "--temperature", 0, "--threads", args.threads)
    return [int(i) for i in said.split(",")][len(prompt):]


def compare_texts(args, llama):
    same = 0
    for text in PROMPTS:
        prompt = llama.tokenize(text.encode())
        llama.reset()
        llama.eval(prompt)
        for place, token in enumerate(generate(args, prompt, 32)):
            logits = numpy.array(llama.scores[llama.n_tokens - 1]).astype(numpy.float64)
            if int(logits.argmax()) != token:
                shares = numpy.sort(numpy.exp(logits - logits.max()))[::-1]
                shares /= shares.sum()
                print(f"  {text!r}: another token at {place}; llama.cpp's two likeliest are "
                      f"{shares[0] - shares[1]:.4f} apart")
                break
            llama.eval([token])
        else:
            same += 1
    print(f"greedy texts: {same} of {len(PROMPTS)} the same")


def seconds(work):
    begin = time.time()
    work()
    return time.time() - begin


def compare_rates(args, llama, rounds=5):
    prompt = llama.tokenize(open(args.text, encoding="utf-8").read()[:3000].encode())[:448]

    def theirs():
        llama.reset()
        first = seconds(lambda: llama.eval(prompt))
        rest = seconds(lambda: [llama.eval([llama.sample(temp=0.0)]) for _ in range(NEW_TOKENS)])
        return len(prompt) / first, NEW_TOKENS / rest

    def ours():  # the program's start is taken away
        start = seconds(lambda: generate(args, prompt[:1], 1))
        first = seconds(lambda: generate(args, prompt, 1))
        rest = seconds(lambda: generate(args, prompt, NEW_TOKENS + 1, least=NEW_TOKENS + 1))
        return (len(prompt) - 1) / (first - start), NEW_TOKENS / (rest - first)

    theirs(), ours()
    rates = [(theirs(), ours()) for _ in range(rounds)]
    for i, name in enumerate(("prompt", "generation")):
        other, own = (statistics.median(pair[k][i] for pair in rates) for k in (0, 1))
        print(f"{name}: {own:.1f} tokens/s, llama.cpp {other:.1f}: {own / other:.2f} times")


def main():
    args = arguments()

    def llama(all_logits):
        return Llama(args.model, n_ctx=1024, n_threads=args.threads, n_threads_batch=args.threads,
                     logits_all=all_logits, verbose=False)

    if args.only in (None, "logits"):
        with tempfile.TemporaryDirectory() as work:
            blocks, dense = os.path.join(work, "blocks"), os.path.join(work, "dense")
            run(args, "convert", args.model, blocks)
            run(args, "convert", blocks, dense, "--dtype", "float32")
            compare_logits(args, llama(True), dense)
    if args.only in (None, "texts"):
        compare_texts(args, llama(True))
    if args.only in (None, "rates"):
        compare_rates(args, llama(False))


if __name__ == "__main__":
    main()
