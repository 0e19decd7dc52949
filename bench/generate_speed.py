#!/usr/bin/env python3
"""Tokens a second of greedy generation, by dtype, beside what the memory gives and beside PyTorch.

  bazel build //tools:tessera //ops/quantized:quantized_benchmark
  python3 bench/generate_speed.py --model gpt2 --threads 2 --rounds 5 --peer

A preset gets random weights (one training step over this file). A token's time is the difference of
two runs of different lengths, so that loading does not count. Each round times every kind once, in
turns; "of the memory" is the bytes of weights that a token reads, over the rate at which
ops/quantized/quantized_benchmark reads a buffer in the same round. The peer (development only)
needs torch and transformers: greedy `generate` with its cache, scaled dot product attention.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SHORT, LONG = 8, 72


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def weights_bytes(folder):
    """Of what a token reads: everything but the rows of tables that it does not look up."""
    total = 0
    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            with open(os.path.join(folder, name), "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            for entry, about in header.items():
                if entry == "__metadata__" or "wpe" in entry:
                    continue
                total += about["data_offsets"][1] - about["data_offsets"][0]
    return total


def seconds_per_token(options, model):
    def once(count):
        ids = ",".join(["40"] * options.prompt)
        begin = time.time()
        out = run([options.tessera, "generate", "--model", model, "--ids", ids, "--max-new-tokens",
                   count, "--temperature", 0, "--threads", options.threads, *options.more[model]])
        assert out.count(",") == options.prompt + count - 1, out
        return time.time() - begin
    short = once(SHORT)
    return (once(LONG) - short) / (LONG - SHORT)


def of_torch(options):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    rates = {}
    for dtype in ("float32", "bfloat16"):
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, dtype))
        ids = torch.full((1, options.prompt), 40)

        def once(count):
            begin = time.time()
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                               min_new_tokens=count, do_sample=False, pad_token_id=0)
            return time.time() - begin
        once(4)
        short = once(SHORT)
        rates["PyTorch " + dtype] = (once(LONG) - short) / (LONG - SHORT)
    return rates


def bandwidth(options):
    out = run(["taskset", "-c", f"0-{options.threads - 1}", options.reads,
               "--benchmark_filter=Read/512", "--benchmark_format=json",
               "--benchmark_min_time=0.3"])
    return json.loads(out)["benchmarks"][0]["bytes_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--reads", default="bazel-bin/ops/quantized/quantized_benchmark")
    parser.add_argument("--model", default="gpt2", help="a preset or a folder")
    parser.add_argument("--dtypes", default="float32,bfloat16,int8,q8_0,q4_0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=16, help="its tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--only-peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_peer:
        print(json.dumps(of_torch(options)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        if not os.path.isdir(options.model):
            run([options.tessera, "train", options.model, "--data", __file__, "--tokenizer", "byte",
                 "--max-steps", 1, "--seq-len", 16, "--batch-size", 1, "--val-fraction", 0, "--out",
                 scratch + "/run"])
            options.model = scratch + "/run/model"
        folders, options.more = {}, {}
        for dtype in options.dtypes.split(","):
            folders[dtype] = scratch + "/" + dtype
            kind = ["convert", "--dtype"] if dtype.startswith(("float", "bfloat")) else [
                "quantize", "--type"]
            run([options.tessera, kind[0], options.model, folders[dtype], kind[1], dtype])
            options.more[folders[dtype]] = (["--dtype", dtype] if kind[0] == "convert" else [])
        times, reads = {dtype: [] for dtype in folders}, []
        for _ in range(options.rounds):
            reads.append(bandwidth(options))
            for dtype, folder in folders.items():
                times[dtype].append(seconds_per_token(options, folder))
            if options.peer:
                peer = json.loads(run([sys.executable, __file__, "--only-peer", "--model",
                                       options.model, "--threads", options.threads, "--prompt",
                                       options.prompt]).splitlines()[-1])
                for name, seconds in peer.items():
                    times.setdefault(name, []).append(seconds)
        rate = statistics.median(reads)
        print(f"memory: {rate / 1e9:.1f} GB/s\n\n| weights | MB | tokens/s | of the memory |\n|---|---|---|---|")
        for name, seconds in times.items():
            seconds = statistics.median(seconds)
            size = weights_bytes(folders[name]) if name in folders else None
            share = f"{size / seconds / rate:.2f}" if size else ""
            print(f"| {name} | {size / 1e6 if size else 0:.0f} | {1 / seconds:.1f} | {share} |")


if __name__ == "__main__":
    main()
