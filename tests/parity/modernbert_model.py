# SPDX-License-Identifier: Apache-2.0
"""ModernBERT against transformers: goldens for the unit test, and a check of the program.

    pip install torch safetensors transformers        (4.57.6 and a 5.x, in folders of their own)
    bazel build -c opt //tools:tessera //tests/parity:resave_model
    python tests/parity/modernbert_model.py write
        writes tests/parity/goldens/modernbert/, which modernbert_golden_test.cc reads
    python tests/parity/modernbert_model.py check [--tessera BINARY] [--resave BINARY]
        makes random models of unusual shapes for every architecture, runs them with the program and
        with transformers in float64, and prints for every case the worst relative error of outputs
        and of gradients; loads what either side saved with the other (folders.py does across versions)
"""
import json
import os
import pathlib
import sys
import tempfile

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.models.modernbert import modeling_modernbert

import bert_model
import parity

GOLDENS = pathlib.Path(__file__).parent / "goldens/modernbert"
OUTPUTS, GRADIENTS = 2e-6, 1e-5  # of ||a-b||/||b|| in float32

IDS = dict(bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2)
SHAPES = {
    "plain": dict(vocab_size=101, hidden_size=60, num_hidden_layers=4, num_attention_heads=5,
                  intermediate_size=77, max_position_embeddings=41, local_attention=8, pad_token_id=0,
                  **IDS),
    "odd": dict(vocab_size=67, hidden_size=42, num_hidden_layers=5, num_attention_heads=3,
                intermediate_size=31, max_position_embeddings=37, local_attention=7, pad_token_id=5,
                global_attn_every_n_layers=2, global_rope_theta=500.0, local_rope_theta=70.0,
                norm_eps=1e-3, norm_bias=True, attention_bias=True, mlp_bias=True,
                classifier_bias=True, hidden_activation="silu", classifier_activation="relu",
                tie_word_embeddings=False, **IDS),
}
# architecture, further fields
CASES = [
    ("ModernBertModel", {}),
    ("ModernBertForMaskedLM", {}),
    ("ModernBertForMaskedLM", dict(decoder_bias=False, sparse_prediction=True)),
    ("ModernBertForSequenceClassification", dict(num_labels=4)),
    ("ModernBertForSequenceClassification", dict(num_labels=1, classifier_pooling="mean")),
    ("ModernBertForSequenceClassification",
     dict(num_labels=3, classifier_pooling="mean", problem_type="multi_label_classification")),
    ("ModernBertForSequenceClassification", dict(num_labels=3, problem_type="regression")),
    ("ModernBertForTokenClassification", dict(num_labels=5)),
]


def exact_rotations():
    """transformers rotates in float32 whatever the dtype; here it does in float64."""
    def forward(self, x, position_ids, layer_type=None):
        base = self.config.rope_parameters[layer_type]["rope_theta"] if layer_type else self.config.rope_theta
        width = self.config.hidden_size // self.config.num_attention_heads
        frequencies = base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = position_ids[..., None].double() * frequencies
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)

    def rotate(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        half = modeling_modernbert.rotate_half
        return q * cos + half(q) * sin, k * cos + half(k) * sin

    modeling_modernbert.ModernBertRotaryEmbedding.forward = forward
    modeling_modernbert.apply_rotary_pos_emb = rotate


def make_model(architecture, fields, seed):
    config = hf.ModernBertConfig(**fields)
    config.architectures = [architecture]
    # The eager one is float32, and NaN for padding that sees no key.
    config._attn_implementation = "sdpa"
    return parity.randomise(getattr(hf, architecture)(config), seed, norm_names=("norm",))


def make_inputs(model, kind, seed, rows=3):
    """BERT's, without what ModernBERT does not have. Padding on the left is so short that the first
    token, which a classifier may read, sees a token in every layer."""
    config = model.config
    if kind != "left":
        config.type_vocab_size = 1
        inputs = bert_model.make_inputs(model, kind, seed, rows)
        del config.type_vocab_size
        return {n: t for n, t in inputs.items() if n != "token_type_ids"}
    inputs = make_inputs(model, "plain", seed, rows)
    ids = inputs["input_ids"]
    begins = torch.arange(rows)[:, None] % (config.local_attention // 2 + 1)
    mask = torch.arange(ids.shape[1])[None, :] >= begins
    inputs["input_ids"] = ids.masked_fill(~mask, config.pad_token_id)
    inputs["attention_mask"] = mask.long()
    random = torch.Generator().manual_seed(seed)
    inputs["position_ids"] = torch.randint(config.max_position_embeddings, ids.shape, generator=random)
    if "labels" in inputs and inputs["labels"].shape == ids.shape:
        inputs["labels"] = inputs["labels"].masked_fill(~mask, -100)
    return inputs


def reference(model, inputs, hidden=False):
    """Outputs (with `hidden`, the hidden states of every layer too, the last one behind the last norm)
    and gradients in float64, by the names of the program's files."""
    model = model.double()
    base = model if type(model).__name__ == "ModernBertModel" else model.model
    normed = []
    hook = base.final_norm.register_forward_hook(lambda _, __, y: normed.append(y))
    given = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    sparse, model.sparse_prediction = getattr(model, "sparse_prediction", False), False
    out = model(**given, output_hidden_states=True)
    model.sparse_prediction = sparse
    hook.remove()
    outputs = {n: t for n, t in out.items() if n not in ("hidden_states", "attentions")}
    if type(model).__name__ == "ModernBertForMaskedLM" and "labels" in inputs:  # theirs is float32
        outputs["loss"] = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1),
                                                            inputs["labels"].flatten())
    outputs["last_hidden_state"] = normed[0]
    outputs.update(parity.numbered(out.hidden_states[:-1] + (normed[0],)) if hidden else {})
    gradients = parity.gradients_of(model, outputs["loss"]) if "labels" in inputs else {}
    return {n: t.detach().clone() for n, t in outputs.items()}, gradients


def tolerance(of_cpu):
    return of_cpu if parity.DEVICE == "cpu" else 2 * of_cpu


def check_forward(report, program, folder, name, model):
    for kind in ("plain", "right", "left", "holes"):
        inputs = make_inputs(model, kind, seed=7)
        outputs, gradients = reference(model, inputs, hidden=True)
        rows = inputs["attention_mask"].bool() if "attention_mask" in inputs else None
        for dtype, wide in (("float32", 1), ("float64", 1e-6)):
            got, got_gradients = parity.forward(program, folder, inputs, dtype, "labels" in inputs,
                                                parity.ALL_HIDDEN)
            report.error(f"{name} {kind} {dtype} outputs", parity.compare(got, outputs, rows),
                         tolerance(OUTPUTS) * wide)
            if gradients:
                report.error(f"{name} {kind} {dtype} gradients",
                             parity.compare(got_gradients, gradients), tolerance(GRADIENTS) * wide)


def check_prefix(report, program, folder, name, model):
    """An encoder's weights with the prefix and without, under either configuration."""
    inputs = make_inputs(model, "plain", seed=13)
    inputs.pop("labels", None)
    want = reference(model, inputs)[0]["last_hidden_state"]
    weights = load_file(os.path.join(folder, "model.safetensors"))
    for architecture in ("ModernBertModel", type(model).__name__):
        for prefixed in (False, True):
            with tempfile.TemporaryDirectory() as other:
                config = json.loads(pathlib.Path(folder, "config.json").read_text())
                config["architectures"] = [architecture]
                pathlib.Path(other, "config.json").write_text(json.dumps(config))
                tensors = {n if n.split(".")[0] in ("head", "decoder", "classifier")
                           else ("model." if prefixed else "") + n.removeprefix("model."): t
                           for n, t in weights.items()}
                save_file(tensors, os.path.join(other, "model.safetensors"))
                got = parity.forward(program, other, inputs, gradients=False)[0]["last_hidden_state"]
            report.error(f"{name} as {architecture}, {'' if prefixed else 'no '}prefix outputs",
                         parity.compare({"h": got}, {"h": want}), tolerance(OUTPUTS))


def check(args):
    report = parity.Report()
    exact_rotations()
    for seed, (architecture, fields) in enumerate(CASES):
        for shape, sizes in SHAPES.items():
            with tempfile.TemporaryDirectory() as folder:
                model = make_model(architecture, {**sizes, **fields}, seed)
                model.save_pretrained(folder)
                kind = f"{fields['num_labels']} labels " if "num_labels" in fields else ""
                name = f"{architecture} {kind}{shape}"
                check_forward(report, args.tessera, folder, name, model)
                parity.check_saving(report, args.resave, folder, name, type(model), model)
                check_prefix(report, args.tessera, folder, name, model)
    return report.finish()


def write(_):
    exact_rotations()
    small = dict(vocab_size=37, hidden_size=18, num_hidden_layers=3, num_attention_heads=3,
                 intermediate_size=11, max_position_embeddings=24, local_attention=4, pad_token_id=0,
                 **IDS)
    for seed, (name, architecture, fields) in enumerate([
            ("masked_lm", "ModernBertForMaskedLM", {}),
            ("sequence", "ModernBertForSequenceClassification",
             dict(num_labels=3, classifier_pooling="mean", norm_bias=True, attention_bias=True,
                  mlp_bias=True, classifier_bias=True, global_attn_every_n_layers=2)),
            ("tokens", "ModernBertForTokenClassification",
             dict(num_labels=2, local_attention=5, hidden_activation="silu"))]):
        folder = GOLDENS / name
        folder.mkdir(parents=True, exist_ok=True)
        model = make_model(architecture, {**small, **fields}, 100 + seed)
        model.save_pretrained(folder)
        for kind in ("plain", "right", "holes", "hidden"):
            hidden = kind == "hidden"
            inputs = make_inputs(model, "holes" if hidden else kind, seed=20 + seed)
            outputs, gradients = reference(model, inputs, hidden)
            tensors = {f"in.{n}": t for n, t in inputs.items()}
            tensors.update({f"out.{n}": t for n, t in outputs.items()})
            if kind == "right":
                tensors.update({f"grad.{n}": t for n, t in gradients.items()})
            save_file({n: t.contiguous() for n, t in tensors.items()}, folder / f"{kind}.safetensors")
    total = sum(f.stat().st_size for f in GOLDENS.rglob("*") if f.is_file())
    print(f"{GOLDENS}: {total} bytes")


def main():
    args = parity.arguments(__doc__, commands=("write", "check"))
    print("transformers", hf.__version__)
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
