# SPDX-License-Identifier: Apache-2.0
"""What the parity scripts of the model families share: running the program, comparing, reporting.

A case is a model of transformers with random float32 parameters and a dictionary of inputs; the
reference is the same model in float64.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

TOLERANCE = 5e-6  # of ||a-b||/||b|| in float32
DEVICE = "cpu"  # where the program computes
COMPUTING = ("forward", "generate")  # commands of the program that are told
ALL_HIDDEN = ("--all-hidden-states",)  # a flag of `tessera forward`
# For gradients that are zero in theory (the keys' biases), in units of the norm of all gradients.
ABSOLUTE = 1e-7


def arguments(doc, commands=(), extend=None):
    """The command line of a script. --device sets what `run` and `failure` tell the program; sums on
    a GPU are in whatever order its library takes, and may be twice as far off."""
    global DEVICE, TOLERANCE
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    if commands:
        parser.add_argument("command", choices=commands)
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--resave", default="bazel-bin/tests/parity/resave_model")
    parser.add_argument("--device", default=DEVICE, help="where the program computes: cuda:0")
    if extend:
        extend(parser)
    args = parser.parse_args()
    DEVICE = args.device
    TOLERANCE *= 1 if DEVICE == "cpu" else 2
    torch.set_num_threads(2)
    return args


def run_glm_moe_in_float64():
    """Version 4 adds float64 to float32 there."""
    from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeMoE
    if not hasattr(Glm4MoeMoE, "moe"):
        return
    moe = Glm4MoeMoE.moe
    Glm4MoeMoE.moe = lambda self, hidden, chosen, weights: moe(self, hidden, chosen,
                                                               weights.to(hidden.dtype))


def randomise(model, seed, norm_names=("LayerNorm", "layer_norm", "layernorm")):
    """Random float32 numbers for every parameter, norms and biases too."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = any(n in name for n in norm_names) and name.endswith("weight")
            std = 0.2 if norm else 0.15
            p.copy_((1.0 if norm else 0.0) + std * torch.randn(p.shape, generator=random))
    return model.eval()


def relative_error(a, b, scale):
    """||a-b||/||b||; where b is zero in theory, ||a|| in units of the absolute bound."""
    a, b = a.double().flatten(), b.double().flatten()
    if b.norm() < 1e-12:
        return (a.norm() / (ABSOLUTE * max(1.0, scale)) * TOLERANCE).item()
    error = ((a - b).norm() / b.norm()).item()
    return float("inf") if error != error else error  # a NaN would be lost in a maximum


def compare(actual, expected, rows=None):
    """The worst relative error and the name of the tensor that has it. `rows` is a mask of the
    [batch, tokens] that count, for tensors that have both dimensions."""
    assert set(actual) == set(expected), (sorted(actual), sorted(expected))
    worst = (0.0, "")
    scale = sum(t.double().norm() ** 2 for t in expected.values()) ** 0.5
    for name, want in expected.items():
        got = actual[name]
        assert got.shape == want.shape, (name, got.shape, want.shape)
        if rows is not None and want.dim() == 3 and want.shape[:2] == rows.shape:
            got, want = got[rows], want[rows]
        worst = max(worst, (relative_error(got, want, scale), name))
    return worst


def start(program, *words):
    on_device = ["--device", DEVICE] if words[0] in COMPUTING and DEVICE != "cpu" else []
    return subprocess.run([program, *map(str, words), *on_device], capture_output=True, text=True)


def run(program, *words):
    result = start(program, *words)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nfailed: {result.stderr}")
    return result.stdout


def failure(program, *words):
    """The line that the program prints when it must fail."""
    result = start(program, *words)
    lines = result.stderr.splitlines()
    ok = result.returncode in (1, 2) and len(lines) == 1 and lines[0].startswith("error: ")
    return lines[0] if ok else f"rc {result.returncode}: {result.stderr}"


def forward(program, folder, inputs, dtype="float32", gradients=True, flags=()):
    """Outputs and gradients of `tessera forward`."""
    with tempfile.TemporaryDirectory() as work:
        files = [os.path.join(work, n) for n in ("in.safetensors", "out.safetensors", "g.safetensors")]
        save_file({n: t.contiguous() for n, t in inputs.items()}, files[0])
        arguments = ["--model", folder, "--inputs", files[0], "--outputs", files[1], "--dtype", dtype,
                     *flags]
        if gradients:
            arguments += ["--grads", files[2]]
        run(program, "forward", *arguments)
        return load_file(files[1]), load_file(files[2]) if gradients else {}


def numbered(states, prefix=""):
    """A model's `hidden_states` by the names of the program's files."""
    return {f"{prefix}hidden_states.{i}": t for i, t in enumerate(states)}


def gradients_of(model, loss):
    """By name; a parameter that the loss does not depend on has zeros."""
    model.zero_grad()
    loss.backward()
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for n, p in model.named_parameters()}


class Report:
    def __init__(self):
        self.failed = 0
        self.worst = {}

    def __call__(self, what, ok, detail=""):
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {what:58s} {detail}", flush=True)

    def error(self, what, result, tolerance):
        value, name = result
        kind = what.split()[-1]
        self.worst[kind] = max(self.worst.get(kind, 0.0), value)
        self(what, value <= tolerance, f"{value:.2e} {name}")

    def finish(self):
        print("worst:", {k: f"{v:.2e}" for k, v in self.worst.items()})
        print(f"{self.failed} failed")
        return self.failed > 0


def check_saving(report, resave, folder, name, cls, model):
    """What the program saves is what it loaded, name by name and bit by bit, in any sharding; and
    transformers loads it without complaint, where it has the class."""
    want = {n: t for n, t in load_file(os.path.join(folder, "model.safetensors")).items()}
    for shards, limit in (("one file", 10**9), ("shards", 20000)):
        with tempfile.TemporaryDirectory() as work:
            saved = os.path.join(work, "saved")
            run(resave, folder, saved, limit)
            got = {}
            for file in sorted(os.listdir(saved)):
                if file.endswith(".safetensors"):
                    got.update(load_file(os.path.join(saved, file)))
            for copy in [n for n in got if n.endswith(".decoder.bias")]:  # of models that are not tied
                want.setdefault(copy, want[copy.replace(".decoder.bias", ".bias")])
            same = set(got) == set(want) and all(torch.equal(got[n], want[n]) for n in want)
            messages = {}
            if cls is not None:
                _, messages = cls.from_pretrained(saved, output_loading_info=True)
            clean = not any(messages.get(k) for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
            report(f"{name} saved by the program, {shards}", same and clean,
                   f"{len(os.listdir(saved))} files {sorted(set(got) ^ set(want))[:3]}")
