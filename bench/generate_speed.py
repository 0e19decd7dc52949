#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of greedy generation, by dtype and batch, beside what the memory gives and beside peers.

  bazel build //tools:tessera //bench:inference
  python3 bench/generate_speed.py FOLDER --threads 2 --rounds 5 --peers torch,ctranslate2,llama.cpp

FOLDER is a model that `tessera` and transformers read, with its tokenizer; a preset has random weights and no tokenizer,
which ctranslate2 needs. Every program is a process of its own that stays alive and sleeps while
another one is timed; in each round every one of them is timed once, in turns, and figures are medians. "Of the
memory" is the bytes of weights that a token reads, over the rate at which bench/inference.cc reads a buffer of that
size with the same threads in the same round. A prompt's rate counts its tokens over the time to the first new one.

Peers (development only) are Python packages: torch and transformers (greedy `generate` with its cache), ctranslate2
(float32 and int8), llama-cpp-python (reads the GGUF file that `tessera convert` writes; one row at a time, float16,
q8_0 and q4_0). Options that begin with --serve are for the processes themselves.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

from served import Program, run

NEW = 48


# ---- Peers, each a function that makes generate(rows of ids, count) ----------------------------------------------

def torch_peer(folder, dtype, threads):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))

    def generate(rows, count):
        ids = torch.tensor(rows)
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count,
                           do_sample=False, pad_token_id=0)
    return generate


def ctranslate2_peer(folder, dtype, threads):
    import ctranslate2
    model = ctranslate2.Generator(folder, compute_type=dtype, intra_threads=threads)
    with open(os.path.join(folder, "vocabulary.json")) as file:
        words = json.load(file)

    def generate(rows, count):
        model.generate_batch([[words[i] for i in row] for row in rows], max_length=count, min_length=count,
                             sampling_topk=1, include_prompt_in_result=False, end_token=[])
    return generate


def llama_cpp_peer(path, dtype, threads):
    import llama_cpp
    model = llama_cpp.Llama(path, n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)

    def generate(rows, count):
        assert len(rows) == 1
        model.reset()
        model.eval(rows[0])
        for _ in range(count - 1):
            model.eval([model.sample(temp=0.0)])
        model.sample(temp=0.0)
    return generate


PEERS = {"torch": torch_peer, "ctranslate2": ctranslate2_peer, "llama.cpp": llama_cpp_peer}


def serve(options):
    run_peer = PEERS[options.serve](options.model, options.serve_dtype, options.threads)
    print("start", flush=True)
    for line in sys.stdin:
        _, rows, prompt, count = line.split()
        ids = [[(31 * i + 7 * row) % 1000 for i in range(int(prompt))] for row in range(int(rows))]
        begin = time.time()
        run_peer(ids, 1)
        first = time.time()
        run_peer(ids, int(count))
        end = time.time()
        print(json.dumps({"prompt_seconds": first - begin, "seconds": end - first - (first - begin)}), flush=True)


# ---- The comparison ----------------------------------------------------------------------------------------------

def generate(program, rows, prompt, count):
    said = program.ask(f"generate {rows} {prompt} {count}")
    program.note(("prompt", rows, prompt), rows * prompt / said["prompt_seconds"])
    if count > 1:
        program.note(("tokens", rows, prompt), rows * (count - 1) / said["seconds"])
    return said


def weight_bytes(folder):
    """Of what a token reads: everything but the rows of tables that it does not look up."""
    total, tied = 0, json.load(open(os.path.join(folder, "config.json"))).get("tie_word_embeddings", True)
    for name in os.listdir(folder):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for entry, about in header.items():
            if entry == "__metadata__" or "wpe" in entry or ("embed_tokens" in entry and not tied):
                continue
            total += about["data_offsets"][1] - about["data_offsets"][0]
    return total


def programs(options, scratch):
    for dtype in options.dtypes.split(","):
        folder = f"{scratch}/{dtype}"
        dense = dtype.startswith(("float", "bfloat"))
        run(options.tessera, *(["convert"] if dense else ["quantize"]), options.model, folder,
            "--dtype" if dense else "--type", dtype)
        program = Program(f"Tessera {dtype}", [options.inference, "--model", folder, "--threads", options.threads,
                                               "--dtype", dtype])
        program.weights, program.batches = weight_bytes(folder), True
        yield program
    for peer in filter(None, options.peers.split(",")):
        sources = {"torch": {"float32": options.model, "bfloat16": options.model}}.get(peer, {})
        if peer == "ctranslate2":
            sources = {dtype: f"{scratch}/ct2" for dtype in ("float32", "int8")}
            run(sys.executable, "-c", "import sys, ctranslate2; ctranslate2.converters.TransformersConverter("
                "sys.argv[1]).convert(sys.argv[2])", options.model, f"{scratch}/ct2")
        if peer == "llama.cpp":
            for dtype in [d for d in options.dtypes.split(",") if d in ("q8_0", "q4_0")]:
                sources[dtype] = f"{scratch}/{dtype}.gguf"
                run(options.tessera, "convert", f"{scratch}/{dtype}", sources[dtype])
        for dtype, source in sources.items():
            if options.peer_dtypes and dtype not in options.peer_dtypes.split(","):
                continue
            program = Program(f"{peer} {dtype}", [sys.executable, __file__, source, "--serve", peer, "--serve-dtype",
                                                  dtype, "--threads", options.threads])
            program.weights, program.batches = None, peer != "llama.cpp"
            yield program


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder or a preset")
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--inference", default="bazel-bin/bench/inference")
    parser.add_argument("--dtypes", default="float32,bfloat16,q8_0,q4_0")
    parser.add_argument("--peers", default="")
    parser.add_argument("--peer-dtypes", default="", help="only these of the peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", default="1,4,8")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt whose rate is measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--serve-dtype", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options)
    with tempfile.TemporaryDirectory() as scratch:
        if not os.path.isdir(options.model):
            run(options.inference, "--model", options.model, "--save", scratch + "/preset")
            options.model = scratch + "/preset"
        batches = [int(rows) for rows in options.batches.split(",")]
        all_programs, reads, quiet = list(programs(options, scratch)), {}, {}
        ours = [program for program in all_programs if program.weights]
        for _ in range(options.rounds):
            for program in all_programs:
                if program.weights:
                    said = ours[0].ask(f"read {program.weights >> 20} 5")
                    reads.setdefault(program, []).append(program.weights / min(said["seconds"]))
                for rows in batches:
                    if rows == 1 or program.batches:
                        quiet[program] = generate(program, rows, 16, NEW)
                generate(program, 1, options.prompt, 1)
        heads = [f"{rows} row{'s' * (rows > 1)}" for rows in batches]
        print(f"| program | MB | {' | '.join(heads)} | of the memory | prompt of {options.prompt} |")
        print("|---" * (len(heads) + 4) + "|")
        for program in all_programs:
            rates = [f"{program.rate(('tokens', rows, 16)):.1f}" if rows == 1 or program.batches else ""
                     for rows in batches]
            share, size = "", ""
            if program.weights:
                memory = statistics.median(reads[program])
                share = f"{program.weights * program.rate(('tokens', 1, 16)) / memory:.2f} of {memory / 1e9:.1f} GB/s"
                size = f"{program.weights / 1e6:.0f}"
            print(f"| {program.name} | {size} | {' | '.join(rates)} | {share} | "
                  f"{program.rate(('prompt', 1, options.prompt)):.0f} |")
        for program in ours:
            print(f"{program.name}: in the last {NEW // 4} tokens of {batches[-1]} rows {quiet[program]['allocations']} "
                  f"calls of the allocator, {quiet[program]['faults']} pages of the system")


if __name__ == "__main__":
    main()
