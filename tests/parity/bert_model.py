# SPDX-License-Identifier: Apache-2.0
"""BERT and RoBERTa against transformers: goldens for the unit test, and a check of the program.

    pip install torch 'transformers<5' safetensors
    python tests/parity/bert_model.py write
        writes tests/parity/goldens/bert/, which bert_golden_test.cc reads
    python tests/parity/bert_model.py check [--tessera BINARY] [--resave BINARY]
        makes random models of unusual shapes for every architecture, runs them with the program and
        with transformers in float64, and prints for every case the worst relative error of outputs
        and of gradients; compares padded rows with plain ones; loads what either side saved with the
        other, old names included
"""
import os
import pathlib
import sys
import tempfile

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import parity

GOLDENS = pathlib.Path(__file__).parent / "goldens/bert"

SHAPES = {
    "plain": dict(vocab_size=101, hidden_size=60, num_hidden_layers=3, num_attention_heads=5,
                  intermediate_size=77, max_position_embeddings=41, type_vocab_size=3),
    "odd": dict(vocab_size=67, hidden_size=39, num_hidden_layers=2, num_attention_heads=3,
                intermediate_size=31, max_position_embeddings=37, type_vocab_size=1,
                hidden_act="gelu_new", layer_norm_eps=1e-3, pad_token_id=5,
                tie_word_embeddings=False),
}
# architecture, further fields
CASES = [
    ("BertModel", {}),
    ("BertForMaskedLM", {}),
    ("BertForPreTraining", {}),
    ("BertForSequenceClassification", dict(num_labels=4)),
    ("BertForSequenceClassification", dict(num_labels=1, classifier_dropout=0.3)),
    ("BertForSequenceClassification", dict(num_labels=3, problem_type="multi_label_classification")),
    ("BertForSequenceClassification", dict(num_labels=3, problem_type="regression")),
    ("BertForTokenClassification", dict(num_labels=5)),
    ("RobertaModel", {}),
    ("RobertaForMaskedLM", {}),
    ("RobertaForSequenceClassification", dict(num_labels=3)),
    ("RobertaForTokenClassification", dict(num_labels=2)),
]


def make_model(architecture, fields, seed):
    roberta = architecture.startswith("Roberta")
    fields = dict(fields)
    if roberta:
        fields.setdefault("pad_token_id", 1)
    config = (hf.RobertaConfig if roberta else hf.BertConfig)(**fields)
    config.architectures = [architecture]
    config._attn_implementation = "eager"
    return parity.randomise(getattr(hf, architecture)(config), seed)


def padding_mask(kind, rows, tokens, random):
    lengths = torch.randint(2, tokens + 1, (rows, 1), generator=random)
    lengths[0] = tokens
    column = torch.arange(tokens)[None, :]
    if kind == "right":
        return column < lengths
    if kind == "left":
        return column >= tokens - lengths
    holes = torch.rand((rows, tokens), generator=random) < 0.6
    holes[:, 0] = True
    return holes


def make_inputs(model, kind, seed, rows=3):
    config, name = model.config, type(model).__name__
    random = torch.Generator().manual_seed(seed)
    tokens = config.max_position_embeddings - 9
    ids = torch.randint(config.vocab_size, (rows, tokens), generator=random)
    inputs = {"input_ids": ids}
    mask = None
    if kind != "plain":
        mask = padding_mask(kind, rows, tokens, random)
        inputs["attention_mask"] = mask.long()
        if kind != "holes":
            ids.masked_fill_(~mask, config.pad_token_id)
    if kind != "right":
        inputs["token_type_ids"] = torch.randint(config.type_vocab_size, ids.shape, generator=random)
    if kind == "left":
        inputs["position_ids"] = torch.randint(config.max_position_embeddings, ids.shape,
                                               generator=random)
    if name.endswith("Model"):
        return inputs
    if name.endswith("SequenceClassification"):
        count = config.num_labels
        if config.problem_type == "multi_label_classification":
            inputs["labels"] = (torch.rand((rows, count), generator=random) < 0.5).float()
        elif config.problem_type == "regression":
            inputs["labels"] = torch.randn((rows, count), generator=random)
        elif count == 1:
            inputs["labels"] = torch.randn((rows,), generator=random)
        else:
            inputs["labels"] = torch.randint(count, (rows,), generator=random)
        return inputs
    limit = config.num_labels if name.endswith("TokenClassification") else config.vocab_size
    labels = torch.randint(limit, ids.shape, generator=random)
    ignored = torch.rand(ids.shape, generator=random) < 0.4
    if mask is not None:
        ignored |= ~mask
    inputs["labels"] = labels.masked_fill(ignored, -100)
    if name.endswith("PreTraining"):
        inputs["next_sentence_label"] = torch.randint(2, (rows,), generator=random)
    return inputs


def reference(model, inputs, hidden=False):
    """Outputs (with `hidden`, the hidden states of every layer too) and gradients in float64, by the
    names of the program's files."""
    model = model.double()
    given = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    out = model(**given, output_hidden_states=True)
    outputs = {n: t for n, t in out.items() if n not in ("hidden_states", "attentions")}
    outputs["last_hidden_state"] = out.hidden_states[-1]
    outputs.update(parity.numbered(out.hidden_states) if hidden else {})
    gradients = parity.gradients_of(model, out.loss) if "labels" in inputs else {}
    return {n: t.detach().clone() for n, t in outputs.items()}, gradients


def check_forward(report, program, folder, name, model):
    for kind in ("plain", "right", "left", "holes"):
        inputs = make_inputs(model, kind, seed=7)
        outputs, gradients = reference(model, inputs, hidden=True)
        rows = inputs["attention_mask"].bool() if "attention_mask" in inputs else None
        for dtype, tolerance in (("float32", parity.TOLERANCE), ("float64", 1e-12)):
            got, got_gradients = parity.forward(program, folder, inputs, dtype, "labels" in inputs,
                                                parity.ALL_HIDDEN)
            report.error(f"{name} {kind} {dtype} outputs", parity.compare(got, outputs, rows), tolerance)
            if gradients:
                report.error(f"{name} {kind} {dtype} gradients",
                             parity.compare(got_gradients, gradients), tolerance)


def check_padding(report, program, folder, name, model):
    """A row padded on the right gives what it gives alone."""
    inputs = make_inputs(model, "plain", seed=8, rows=1)
    ids = inputs["input_ids"].masked_fill(inputs["input_ids"] == model.config.pad_token_id, 9)
    length = ids.shape[1] - 6
    alone = parity.forward(program, folder, {"input_ids": ids[:, :length]}, gradients=False)[0]
    mask = torch.zeros_like(ids)
    mask[:, :length] = 1
    padded = parity.forward(
        program, folder, {"input_ids": ids.masked_fill(mask == 0, model.config.pad_token_id),
                          "attention_mask": mask}, gradients=False)[0]
    same = all(torch.allclose(padded[n][:, :length] if t.dim() == 3 else padded[n], t,
                              rtol=1e-6, atol=1e-6)
               for n, t in alone.items())
    report(f"{name} padded row as alone", same)


def check_old_names(report, program, folder, name, model):
    """What older files look like: gamma and beta, buffers, no prefix, the decoder's own bias."""
    prefix = model.base_model_prefix + "."
    inputs = make_inputs(model, "plain", seed=13)
    want, _ = reference(model, inputs)
    for strip in (False, True):
        with tempfile.TemporaryDirectory() as old:
            model.float().config.save_pretrained(old)
            tensors = {}
            for n, t in load_file(os.path.join(folder, "model.safetensors")).items():
                n = n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                    "LayerNorm.bias", "LayerNorm.beta")
                n = n.removeprefix(prefix) if strip else n
                if n == "cls.predictions.bias" and strip:
                    n = "cls.predictions.decoder.bias"
                tensors[n] = t
            at = "" if strip else prefix
            tensors[at + "embeddings.position_ids"] = torch.arange(9)[None]
            save_file(tensors, os.path.join(old, "model.safetensors"))
            got = parity.forward(program, old, inputs, gradients=False)[0]
            report.error(f"{name} old names {'without prefix ' if strip else ''}outputs",
                         parity.compare(got, want), parity.TOLERANCE)


def check_refusals(report, program, folder, model):
    """One line that names what is wrong."""
    inputs = make_inputs(model, "plain", seed=3)
    with tempfile.TemporaryDirectory() as work:
        def line(changed):
            path = os.path.join(work, "in.safetensors")
            save_file({n: t.contiguous() for n, t in changed.items()}, path)
            return parity.failure(program, "forward", "--model", folder, "--inputs", path,
                                  "--outputs", os.path.join(work, "out"))
        cases = {
            "a token type too large": (dict(inputs, token_type_ids=inputs["input_ids"] * 0 + 9),
                                       "token types of 3"),
            "too many tokens": ({"input_ids": torch.zeros(1, 300, dtype=torch.long)}, "positions"),
            "an id too large": (dict(inputs, input_ids=inputs["input_ids"] + 5000), "vocabulary"),
            "a mask of another shape": (dict(inputs, attention_mask=torch.ones(1, 2)), "attention_mask"),
        }
        for what, (changed, part) in cases.items():
            message = line(changed)
            report(f"refused: {what}", part in message, message.replace(work, ""))


def check(args):
    report = parity.Report()
    for seed, (architecture, fields) in enumerate(CASES):
        for shape, sizes in SHAPES.items():
            with tempfile.TemporaryDirectory() as folder:
                model = make_model(architecture, {**sizes, **fields}, seed)
                model.save_pretrained(folder)
                kind = f"{fields['num_labels']} labels " if "num_labels" in fields else ""
                name = f"{architecture} {kind}{shape}"
                check_forward(report, args.tessera, folder, name, model)
                check_padding(report, args.tessera, folder, name, model)
                parity.check_saving(report, args.resave, folder, name, type(model), model)
                if architecture in ("BertForMaskedLM", "BertForPreTraining", "RobertaForMaskedLM",
                                    "BertModel"):
                    check_old_names(report, args.tessera, folder, name, model)
                if architecture == "BertForMaskedLM" and shape == "plain":
                    check_refusals(report, args.tessera, folder, model)
    return report.finish()


def write(_):
    small = dict(vocab_size=37, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
                 intermediate_size=19, max_position_embeddings=20, type_vocab_size=2)
    for seed, (name, architecture, fields) in enumerate([
            ("pretraining", "BertForPreTraining", {}),
            ("sequence", "BertForSequenceClassification", dict(num_labels=3)),
            ("roberta", "RobertaForMaskedLM", dict(type_vocab_size=1, hidden_act="relu"))]):
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
        for extra in folder.glob("generation_config.json"):
            extra.unlink()
    total = sum(f.stat().st_size for f in GOLDENS.rglob("*") if f.is_file())
    print(f"{GOLDENS}: {total} bytes")


def main():
    args = parity.arguments(__doc__, commands=("write", "check"))
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
