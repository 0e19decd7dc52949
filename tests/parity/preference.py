# SPDX-License-Identifier: Apache-2.0
"""Direct preference optimisation against TRL's formula, in a loop of PyTorch's and PEFT's.

    pip install torch safetensors 'transformers==4.57.6' peft
    bazel build -c opt //tools:tessera
    python tests/parity/preference.py [--tessera BINARY]

A tiny Llama with an adapter that PEFT made trains for ten steps, here with `--task preference` and
there with AdamW over the same pairs; losses, rewards and the trained adapter are compared.
"""
import argparse
import json
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, CONFIG_MAPPING

from adapters import LLAMA, NORMS, randomise_adapter
from parity import Report, randomise, run

STEPS, LR, EOS = 10, 1e-3, 256
PAIRS = [{"prompt": f"what is {7 * i}? ", "chosen": f"it is {i}!",
          "rejected": "." * (i % 4) + f"{i}"} for i in range(6)]
METRICS = ("rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins")


def log_probability(model, prompt, completion):
    """Of a completion and its end, of one row without padding."""
    front = list(prompt.encode())
    ids = torch.tensor([front + list(completion.encode()) + [EOS]])
    logits = model(input_ids=ids).logits[0, :-1]
    picked = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
    return picked[len(front) - 1:].sum()


def of_pairs(model):
    return torch.stack([torch.stack([log_probability(model, p["prompt"], p[c])
                                     for c in ("chosen", "rejected")]) for p in PAIRS])


def train(model, beta, smoothing):
    """Losses and metrics of every step."""
    with torch.no_grad(), model.disable_adapter():
        reference = of_pairs(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    rows = []
    for _ in range(STEPS):
        rewards = beta * (of_pairs(model) - reference)
        z = rewards[:, 0] - rewards[:, 1]
        loss = (-(1 - smoothing) * F.logsigmoid(z) - smoothing * F.logsigmoid(-z)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        chosen, rejected = rewards.detach().mean(0).tolist()
        won = (z > 0).double().mean().item()
        rows.append([loss.item(), chosen, rejected, won, chosen - rejected])
    return rows


def check(report, program, beta, smoothing, seed):
    fields = {**LLAMA, "vocab_size": 259, "max_position_embeddings": 64}
    config = CONFIG_MAPPING["llama"](**fields)
    config._attn_implementation = "eager"
    base = randomise(AutoModelForCausalLM.from_config(config), seed, norm_names=NORMS)
    with tempfile.TemporaryDirectory() as work:
        folder, adapter, out, data = (os.path.join(work, n)
                                      for n in ("base", "adapter", "out", "pairs.jsonl"))
        base.save_pretrained(folder)
        model = get_peft_model(base, LoraConfig(r=4, lora_alpha=6, lora_dropout=0.0,
                                                target_modules=["q_proj", "v_proj", "down_proj"]))
        randomise_adapter(model, seed + 1)
        model.save_pretrained(adapter)
        with open(data, "w") as file:
            file.writelines(json.dumps(pair) + "\n" for pair in PAIRS)
        run(program, "train", folder, "--task", "preference", "--data", data, "--out", out,
            "--tokenizer", "byte", "--adapter", adapter, "--beta", beta, "--label-smoothing",
            smoothing, "--batch-size", len(PAIRS), "--max-steps", STEPS, "--lr", LR,
            "--lr-schedule", "constant", "--warmup-steps", 0, "--weight-decay", 0,
            "--max-grad-norm", 0, "--betas", "0.9,0.999", "--eps", "1e-8", "--val-fraction", 0, "--log-interval", 1)
        with open(os.path.join(out, "metrics.jsonl")) as file:
            got = [[row["loss"], *(row[m] for m in METRICS)] for row in map(json.loads, file)]
        want = train(model.double(), beta, smoothing)
        name = f"beta {beta} smoothing {smoothing}"
        for i, what in enumerate(("losses", *METRICS)):
            error = max(abs(g[i] - w[i]) for g, w in zip(got, want, strict=True))
            report.error(f"{name} {what}", (error, ""), 1e-5)
        report(f"{name} the loss moved", abs(want[0][0] - want[-1][0]) > 1e-3,
               f"{want[0][0]:.4f} to {want[-1][0]:.4f}")
        ours = load_file(os.path.join(out, "model", "adapter_model.safetensors"))
        theirs = {n.replace(".default", ""): p.detach() for n, p in model.named_parameters()
                  if p.requires_grad}
        error = max((ours[n].double() - theirs[n]).abs().max().item() for n in theirs)
        report.error(f"{name} adapter", (error, ""), 1e-4)
        assert set(ours) == set(theirs), (sorted(ours), sorted(theirs))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    args = parser.parse_args()
    torch.set_num_threads(2)
    report = Report()
    for seed, (beta, smoothing) in enumerate(((0.1, 0), (0.5, 0), (0.1, 0.2))):
        check(report, args.tessera, beta, smoothing, 10 * seed)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
