#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One pass over conversations: packed, padded, and padded in PyTorch.

    bazel build //tools:tessera
    <venv>/bin/python bench/packing.py --model runs/finetune/text/model --data runs/finetune/chat.jsonl

The model is a Llama's folder with a chat template (bench/finetune.py makes one), the data JSON lines
of messages. Three processes take turns: `tessera train --task chat` with --packing true and
false, and a loop of PyTorch over transformers' model, with AdamW, whose batches are padded to their
longest conversation. All see the same tokens once at a rate of learning of nearly nothing, so that
the mean loss of a token is the same number. Needs torch and transformers in the Python that runs it.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

RATE = 1e-12


def clock(options):
    """Seconds: the wall's, or of the processors' time of the processes that have ended."""
    if not options.processor_time:
        return time.time()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(options, command):
    begin = clock(options)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"seconds": clock(options) - begin, "last": done.stdout.splitlines()[-1]}


def of_tessera(options, packing):
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "run")
        # Rows are full where they are packed: fewer of them hold as much as a padded batch may.
        batch = options.batch if not packing else options.packed_batch
        run = timed(
            options,
            [options.tessera, "train", options.model, "--task", "chat", "--data", options.data,
             "--out", out, "--packing", "true" if packing else "false", "--seq-len",
             str(options.tokens), "--batch-size", str(batch), "--epochs", "1", "--lr", str(RATE),
             "--val-fraction", "0", "--long-samples", "drop", "--log-interval", "1", "--threads",
             str(options.threads)])
        with open(out + "/metrics.jsonl", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    return {"seconds": run["seconds"], "steps": sum("loss" in row for row in rows)}


def samples(options, tokenizer):
    taken = []
    with open(options.data, encoding="utf-8") as file:
        for line in file:
            ids = tokenizer.apply_chat_template(json.loads(line)["messages"], return_dict=True,
                                                return_assistant_tokens_mask=True)
            if len(ids["input_ids"]) <= options.tokens:
                taken.append((ids["input_ids"], ids["assistant_masks"]))
    return taken


def of_torch(options):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    rows = samples(options, tokenizer)[:options.rows]
    random.Random(1).shuffle(rows)
    model = AutoModelForCausalLM.from_pretrained(options.model, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    total, count, used = 0.0, 0, 0
    for at in range(0, len(rows), options.batch):
        batch = rows[at:at + options.batch]
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        mask = torch.zeros(len(batch), longest, dtype=torch.long)
        labels = torch.full((len(batch), longest), -100)
        for row, (tokens, assistant) in enumerate(batch):
            n = len(tokens)
            ids[row, :n], mask[row, :n] = torch.tensor(tokens), 1
            learnt = torch.tensor(assistant, dtype=torch.bool)
            labels[row, :n][learnt] = ids[row, :n][learnt]
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        n = int((labels[:, 1:] != -100).sum())
        total, count, used = total + loss.item() * n, count + n, used + int(mask.sum())
    return {"loss": total / max(1, count), "tokens": used, "conversations": len(rows)}


def loss_of(options, packing):
    """The mean loss of a token by `tessera eval` over all rows."""
    done = subprocess.run(
        [options.tessera, "eval", "--model", options.model, "--task", "chat", "--data", options.data,
         "--packing", "true" if packing else "false", "--seq-len", str(options.tokens), "--long-samples",
         "drop"], check=True, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tokens", type=int, default=256, help="of a row, and the longest taken")
    parser.add_argument("--batch", type=int, default=16, help="padded conversations a step")
    parser.add_argument("--packed-batch", type=int, default=4, help="packed rows a step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor-time", action="store_true",
                        help="in place of the wall's: with one thread, where others use the machine")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print(json.dumps(of_torch(options)))
        return
    times = {"packed": [], "padded": [], "PyTorch": []}
    for _ in range(options.rounds):
        packed, padded = of_tessera(options, True), of_tessera(options, False)
        run = timed(options, [sys.executable, *sys.argv, "--peer"])
        # What it takes to import PyTorch is not counted against it.
        start = timed(options, [sys.executable, *sys.argv, "--peer", "--rows", "0"])
        peer = {**json.loads(run["last"]), "seconds": run["seconds"] - start["seconds"]}
        for name, run in (("packed", packed), ("padded", padded), ("PyTorch", peer)):
            times[name].append(run["seconds"])
        print(json.dumps({"packed": packed, "padded": padded, "PyTorch": peer}), flush=True)
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        print(f"{name:8} {middle:7.1f} s  {peer['tokens'] / middle:7.0f} tokens of use a second  "
              f"{statistics.median(times['PyTorch']) / middle:.2f} of PyTorch's")
    print("loss of a token: packed", loss_of(options, True), "| padded", loss_of(options, False),
          "| PyTorch", peer["loss"])


if __name__ == "__main__":
    main()
