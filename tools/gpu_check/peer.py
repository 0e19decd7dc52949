#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of Tessera and of PyTorch on one GPU, taking turns.

    python3 peer.py --benchmark ./gpu_benchmark --json peer.json
    python3 peer.py --benchmark ./gpu_benchmark --json peer.json --models gpt2:32 --rounds 3

For development: needs torch with CUDA in the Python that runs it. A step is forward, backward,
clipping of the gradient's norm to 1 and AdamW, of GPT-2 on random tokens (batch x 1024), without
dropout, in bfloat16: autocast over float32 weights there, bfloat16 weights with float32 masters here.
The peer is written for speed as its users write it: scaled_dot_product_attention, tanh-GELU, fused
AdamW, eager and under torch.compile. Both have GPT-2's 50257 words; --peer-words 50304 pads the peer's,
as some of its users do. Each turn is a process of its own,
which has the GPU for itself; per contender the fastest turn counts, all are in the JSON.

Model-FLOP utilisation counts 6 (12 L C^2 + V C) + 6 L T C FLOP per token (L layers of width C, T
tokens of context of which half are seen, V words) against --peak TFLOP/s (989: H100 and H200).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PRESETS = {"gpt2": (12, 12, 768), "gpt2-xl": (48, 25, 1600)}  # layers, heads, width
WORDS = 50257
TOKENS = 1024
CONTENDERS = ("tessera", "tessera as a CUDA graph", "torch eager", "torch compile")
STEPS = 10


def build_gpt(layers, heads, width, words):
    """GPT-2 in PyTorch: tied embeddings, pre-norm blocks, packed query, key and value."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, tokens, _ = x.shape
            q, k, v = (t.view(batch, tokens, heads, width // heads).transpose(1, 2)
                       for t in self.packed(self.norm_1(x)).split(width, dim=2))
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.places = nn.Embedding(TOKENS, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            for parameter in self.parameters():
                if parameter.ndim == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, ids):
            x = self.words(ids) + self.places.weight[:ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.words.weight)
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(),
                                            ids[:, 1:].flatten())

    with torch.device("cuda"):
        return Gpt()


def run_torch(model_name, batch, compiled, words):
    """The worker: median milliseconds of a step and the peak of memory."""
    import torch

    torch.manual_seed(1)
    model = build_gpt(*PRESETS[model_name], words)
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                                   {"params": plain, "weight_decay": 0.0}], lr=1e-4, fused=True)
    forward = torch.compile(model) if compiled else model
    ids = torch.randint(WORDS, (batch, TOKENS), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(STEPS):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    print(json.dumps({"milliseconds": statistics.median(times),
                      "peak_bytes": torch.cuda.max_memory_allocated()}))


def torch_turn(options, model, batch, compiled):
    command = [sys.executable, os.path.abspath(__file__), "--worker", f"{model}:{batch}",
               "--peer-words", str(options.peer_words)]
    done = subprocess.run(command + (["--compiled"] if compiled else []), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=options.timeout, check=False)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def tessera_turn(options, model, batch, graph):
    """The case of gpu_benchmark of this name."""
    name = f"training step {'as a CUDA graph ' if graph else ''}{model} bf16 {batch}x{TOKENS}"
    environment = dict(os.environ)
    if "TESSERA_LIBRARIES" in environment:
        environment["LD_LIBRARY_PATH"] = environment["TESSERA_LIBRARIES"]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        done = subprocess.run([options.benchmark, out, name], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=options.timeout,
                              env=environment, check=False)
        if done.returncode != 0:
            return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
        with open(out, encoding="utf-8") as file:
            cases = [case for case in json.load(file)["cases"] if case["name"] == name]
    if not cases:
        return {"error": f"gpu_benchmark has no case '{name}'"}
    case = cases[0]
    return {key: case[key] for key in ("milliseconds", "peak_bytes", "error") if key in case}


def turn(options, contender, model, batch):
    try:
        if contender.startswith("tessera"):
            return tessera_turn(options, model, batch, contender.endswith("graph"))
        return torch_turn(options, model, batch, contender.endswith("compile"))
    except subprocess.TimeoutExpired:
        return {"error": f"no answer after {options.timeout} s"}


def flops_per_token(model):
    layers, _, width = PRESETS[model]
    return 6 * (12 * layers * width**2 + WORDS * width) + 6 * layers * TOKENS * width


def compare(options, model, batch):
    turns = {contender: [] for contender in CONTENDERS}
    for _ in range(options.rounds):
        for contender in CONTENDERS:
            turns[contender].append(turn(options, contender, model, batch))
    rows = []
    for contender in CONTENDERS:
        row = {"model": model, "batch": batch, "contender": contender, "turns": turns[contender]}
        good = [t for t in turns[contender] if "milliseconds" in t]
        if good:
            best = min(good, key=lambda t: t["milliseconds"])
            rate = batch * TOKENS / (best["milliseconds"] * 1e-3)
            row |= best | {"tokens_per_second": rate,
                           "utilisation": rate * flops_per_token(model) / (options.peak * 1e12)}
        rows.append(row)
        print(line_of(row), flush=True)
    return rows


def line_of(row):
    head = f"{row['model']:8} batch {row['batch']:3}  {row['contender']:24}"
    if "milliseconds" not in row:
        return f"{head} failed: {row['turns'][-1]['error']}"
    return (f"{head} {row['milliseconds']:10.2f} ms {row['tokens_per_second']:12.0f} tokens/s "
            f"{row['peak_bytes'] / 2**30:8.2f} GiB {100 * row['utilisation']:6.1f} % of peak")


def parse_model(text):
    name, _, batch = text.partition(":")
    if name not in PRESETS or not batch.isdigit() or int(batch) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not gpt2:<batch> or gpt2-xl:<batch>")
    return name, int(batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benchmark", default="./gpu_benchmark")
    parser.add_argument("--json", default="peer.json")
    parser.add_argument("--models", type=parse_model, nargs="+",
                        default=[("gpt2", 32), ("gpt2", 64), ("gpt2-xl", 8)])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300, help="seconds of a turn")
    parser.add_argument("--peak", type=float, default=989, help="TFLOP/s of the GPU in bfloat16")
    parser.add_argument("--peer-words", type=int, default=WORDS, help="the peer's vocabulary")
    parser.add_argument("--worker", type=parse_model, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return run_torch(*options.worker, options.compiled, options.peer_words)
    try:
        import torch
    except ImportError:
        sys.exit("error: peer.py needs torch in the python3 that runs it")
    if not torch.cuda.is_available():
        sys.exit("error: torch sees no GPU")
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"{torch.cuda.get_device_name(0)}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}")
    rows = []
    for model, batch in options.models:
        rows += compare(options, model, batch)
        with open(options.json, "w", encoding="utf-8") as file:  # a time limit may end the next one
            json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(0),
                       "peer_words": options.peer_words, "peak_teraflops": options.peak,
                       "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
