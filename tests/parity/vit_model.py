# SPDX-License-Identifier: Apache-2.0
"""ViT against transformers: goldens for the unit test, and a check of the program.

    pip install torch 'transformers<5' safetensors
    python tests/parity/vit_model.py write
        writes tests/parity/goldens/vit/, which vit_golden_test.cc reads
    python tests/parity/vit_model.py check [--tessera BINARY] [--resave BINARY]
        as bert_model.py; images of the configured size and of others (interpolated positions). The
        mean over patches, which transformers' ViT does not have, is computed from its hidden states.
"""
import json
import os
import pathlib
import sys
import tempfile

import torch
import transformers as hf
from safetensors.torch import save_file

import parity

GOLDENS = pathlib.Path(__file__).parent / "goldens/vit"

SHAPES = {
    "plain": dict(hidden_size=60, num_hidden_layers=3, num_attention_heads=5, intermediate_size=77,
                  image_size=35, patch_size=7, num_channels=3),
    "odd": dict(hidden_size=39, num_hidden_layers=2, num_attention_heads=3, intermediate_size=31,
                image_size=18, patch_size=3, num_channels=1, qkv_bias=False, hidden_act="relu",
                layer_norm_eps=1e-3),
}
CASES = [
    ("ViTModel", {}),
    ("ViTModel", dict(pooler_output_size=17, pooler_act="sigmoid")),
    ("ViTForImageClassification", dict(num_labels=7)),
    ("ViTForImageClassification", dict(num_labels=1)),
    ("ViTForImageClassification", dict(num_labels=3, problem_type="multi_label_classification")),
    ("ViTForImageClassification", dict(num_labels=2, pooling="mean")),
]


def make_model(architecture, fields, seed):
    config = hf.ViTConfig(**fields)
    config.architectures = [architecture]
    config._attn_implementation = "sdpa"  # eager attention takes its softmax in float32
    return parity.randomise(getattr(hf, architecture)(config), seed)


def make_inputs(model, kind, seed, rows=3):
    """Images of the configured size, or of another one in both directions."""
    config = model.config
    random = torch.Generator().manual_seed(seed)
    size = config.image_size // config.patch_size
    grid = {"same": (size, size), "larger": (2 * size + 1, size + 2), "smaller": (size - 2, 3)}[kind]
    shape = (rows, config.num_channels, *(n * config.patch_size for n in grid))
    inputs = {"pixel_values": torch.randn(shape, generator=random)}
    if type(model).__name__ == "ViTModel":
        return inputs
    if config.problem_type == "multi_label_classification":
        inputs["labels"] = (torch.rand((rows, config.num_labels), generator=random) < 0.5).float()
    elif config.num_labels == 1:
        inputs["labels"] = torch.randn((rows, 1), generator=random)
    else:
        inputs["labels"] = torch.randint(config.num_labels, (rows,), generator=random)
    return inputs


def reference(model, inputs, hidden=False):
    """Outputs (with `hidden`, the hidden states of every layer too) and gradients in float64, by the
    names of the program's files."""
    model = model.double()
    given = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    if getattr(model.config, "pooling", "cls") == "mean":
        out = model.vit(given["pixel_values"], interpolate_pos_encoding=True, output_hidden_states=True)
        logits = model.classifier(out.last_hidden_state[:, 1:].mean(1))
        loss = torch.nn.functional.cross_entropy(logits, given["labels"])
        outputs = {"logits": logits, "loss": loss, "last_hidden_state": out.last_hidden_state}
    else:
        out = model(**given, interpolate_pos_encoding=True, output_hidden_states=True)
        outputs = {n: t for n, t in out.items() if n not in ("hidden_states", "attentions")}
        if "last_hidden_state" not in outputs:
            outputs["last_hidden_state"] = model.vit.layernorm(out.hidden_states[-1])
    outputs.update(parity.numbered(out.hidden_states) if hidden else {})
    gradients = parity.gradients_of(model, outputs["loss"]) if "labels" in inputs else {}
    return {n: t.detach().clone() for n, t in outputs.items()}, gradients


def check_forward(report, program, folder, name, model):
    for kind in ("same", "larger", "smaller"):
        inputs = make_inputs(model, kind, seed=7)
        outputs, gradients = reference(model, inputs, hidden=True)
        for dtype, tolerance in (("float32", parity.TOLERANCE), ("float64", 1e-12)):
            got, got_gradients = parity.forward(program, folder, inputs, dtype, "labels" in inputs,
                                                parity.ALL_HIDDEN)
            report.error(f"{name} {kind} {dtype} outputs", parity.compare(got, outputs), tolerance)
            if gradients:
                report.error(f"{name} {kind} {dtype} gradients",
                             parity.compare(got_gradients, gradients), tolerance)


def check_refusals(report, program, folder, model):
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "in.safetensors")
        for what, shape in (("size", (1, 3, 34, 35)), ("channels", (1, 1, 35, 35)), ("none", (35, 35))):
            save_file({"pixel_values": torch.zeros(shape)}, path)
            message = parity.failure(program, "forward", "--model", folder, "--inputs", path,
                                     "--outputs", os.path.join(work, "out"))
            report(f"refused: {what}", "'pixel_values' has shape" in message, message.replace(work, ""))
        config = os.path.join(folder, "config.json")
        fields = json.load(open(config))
        json.dump({**fields, "pooling": "max"}, open(config, "w"))
        message = parity.failure(program, "inspect", folder)
        report("refused: pooling", "'pooling' 'max' is not known" in message, message.replace(folder, ""))
        json.dump(fields, open(config, "w"))


def check(args):
    report = parity.Report()
    for seed, (architecture, fields) in enumerate(CASES):
        for shape, sizes in SHAPES.items():
            with tempfile.TemporaryDirectory() as folder:
                model = make_model(architecture, {**sizes, **fields}, seed)
                model.save_pretrained(folder)
                name = f"{architecture} {' '.join(f'{k}={v}' for k, v in fields.items())} {shape}"
                check_forward(report, args.tessera, folder, name, model)
                parity.check_saving(report, args.resave, folder, name, type(model), model)
                if seed == 2 and shape == "plain":
                    check_refusals(report, args.tessera, folder, model)
    return report.finish()


def write(_):
    small = dict(hidden_size=15, num_hidden_layers=2, num_attention_heads=3, intermediate_size=19,
                 image_size=12, patch_size=3, num_channels=2)
    for seed, (name, architecture, fields) in enumerate([
            ("classifier", "ViTForImageClassification", dict(num_labels=4)),
            ("mean", "ViTForImageClassification", dict(num_labels=3, pooling="mean", qkv_bias=False)),
            ("model", "ViTModel", dict(pooler_output_size=7))]):
        folder = GOLDENS / name
        folder.mkdir(parents=True, exist_ok=True)
        model = make_model(architecture, {**small, **fields}, 100 + seed)
        model.save_pretrained(folder)
        for kind in ("same", "larger", "hidden"):
            hidden = kind == "hidden"
            inputs = make_inputs(model, "same" if hidden else kind, seed=20 + seed, rows=2)
            outputs, gradients = reference(model, inputs, hidden)
            tensors = {f"in.{n}": t for n, t in inputs.items()}
            tensors.update({f"out.{n}": t for n, t in outputs.items()})
            if kind == "larger":
                tensors.update({f"grad.{n}": t for n, t in gradients.items()})
            save_file({n: t.contiguous() for n, t in tensors.items()}, folder / f"{kind}.safetensors")
    total = sum(f.stat().st_size for f in GOLDENS.rglob("*") if f.is_file())
    print(f"{GOLDENS}: {total} bytes")


def main():
    args = parity.arguments(__doc__, commands=("write", "check"))
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
