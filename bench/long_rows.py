#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on ever longer rows, on 1, 2 and 4 context-parallel ranks: tokens per second, and the memory of a rank's tensors.

  bazel build //tools:tessera
  python3 bench/long_rows.py book.txt [--tokens 1024,4096,16384] [--ranks 1,2,4] [--steps 4] [--overrides hidden_size=512]

Each run is a `llama-tiny` of that configuration with rows of one length, one row a step. The first step is left out of the speed. Ranks have one
thread each; with fewer cores than ranks they take turns. Standard library alone.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile


def run(options, tokens, ranks):
    """Tokens per second, and the peak of bytes of tensors of the rank that reports."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        train = ["train", "llama-tiny", "--data", options.data, "--out", out, "--seq-len", tokens, "--batch-size", 1, "--max-steps", options.steps,
                 "--cp", ranks, "--threads", 1, "--log-interval", 1, "--tokenizer", "byte", "--config-overrides",
                 f"max_position_embeddings={tokens},{options.overrides}"]
        launch = [] if ranks == 1 else ["launch", "--num-gpus", ranks, "--"]
        subprocess.run([options.tessera, *map(str, launch + train)], check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "metrics.jsonl")) as lines:
            rows = [row for row in map(json.loads, lines) if "tokens_per_second" in row]
    return statistics.median(row["tokens_per_second"] for row in rows[1:]), max(row["peak_bytes"] for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a text")
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--tokens", default="1024,2048,4096,8192,16384")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--overrides", default="num_hidden_layers=4")
    options = parser.parse_args()
    print("| tokens of a row | ranks | tokens/s | peak of a rank, MiB |\n|---|---|---|---|")
    for tokens in map(int, options.tokens.split(",")):
        for ranks in map(int, options.ranks.split(",")):
            speed, peak = run(options, tokens, ranks)
            print(f"| {tokens} | {ranks} | {speed:.0f} | {peak / 2**20:.0f} |", flush=True)


if __name__ == "__main__":
    main()
