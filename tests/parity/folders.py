# SPDX-License-Identifier: Apache-2.0
"""Model folders of transformers 4.57 and 5 in Tessera, and Tessera's in both.

    pip install --target T4 'transformers==4.57.*'; pip install --target T5 'transformers>=5'
    pip install --target TORCH torch safetensors
    python tests/parity/folders.py write --peers T4:TORCH T5:TORCH
        writes tests/parity/goldens/folders/, which folders_golden_test.cc reads
    python tests/parity/folders.py check --peers T4:TORCH T5:TORCH [--tessera BINARY]

Both versions save folders: every family and head, in float32 and in half precision, with weights that
are tied, not tied, there twice, or tied by config.json while they differ in the file, as safetensors
and as pytorch_model.bin. `tessera forward` computes each, and the outputs must be those of the model
that was saved, or the folder must be refused by name. Then `tessera convert` writes each again, and
both versions load the result, complain of nothing, and compute the same with the same dtype.

The commands `make` and `read` are run by the others in processes of their own, one for each version.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

import parity

GOLDENS = pathlib.Path(__file__).parent / "goldens/folders"
TOLERANCE = 1e-5  # of ||a-b||/||b|| in float32, of weights of any dtype
HALF = {"float16": 4e-3, "bfloat16": 3e-2}  # computed in half precision

GPT2 = dict(vocab_size=53, n_positions=19, n_embd=24, n_layer=2, n_head=3, bos_token_id=1, eos_token_id=2)
BERT = dict(vocab_size=51, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=37, max_position_embeddings=23, type_vocab_size=2)
MODERNBERT = dict(vocab_size=51, hidden_size=24, num_hidden_layers=3, num_attention_heads=3,
                  intermediate_size=37, max_position_embeddings=23, local_attention=4, pad_token_id=0,
                  bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2, norm_bias=True)
VIT = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=37,
           image_size=12, patch_size=4)
T5 = dict(vocab_size=47, d_model=24, d_kv=7, d_ff=33, num_layers=2, num_heads=3,
          relative_attention_num_buckets=8, relative_attention_max_distance=20, decoder_start_token_id=0)
GATED = dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)

# name: class, fields
HEADS = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "bert": ("BertModel", BERT),
    "bert-mlm": ("BertForMaskedLM", BERT),
    "bert-pretraining": ("BertForPreTraining", BERT),
    "bert-sequence": ("BertForSequenceClassification", dict(BERT, num_labels=3)),
    "bert-tokens": ("BertForTokenClassification", dict(BERT, num_labels=4)),
    "roberta": ("RobertaModel", dict(BERT, pad_token_id=1)),
    "roberta-mlm": ("RobertaForMaskedLM", dict(BERT, pad_token_id=1)),
    "roberta-sequence": ("RobertaForSequenceClassification", dict(BERT, pad_token_id=1, num_labels=3)),
    "roberta-tokens": ("RobertaForTokenClassification", dict(BERT, pad_token_id=1, num_labels=4)),
    "modernbert": ("ModernBertModel", MODERNBERT),
    "modernbert-mlm": ("ModernBertForMaskedLM", MODERNBERT),
    "modernbert-sequence": ("ModernBertForSequenceClassification", dict(MODERNBERT, num_labels=1)),
    "modernbert-tokens": ("ModernBertForTokenClassification", dict(MODERNBERT, num_labels=4)),
    "vit": ("ViTModel", VIT),
    "vit-labels": ("ViTForImageClassification", dict(VIT, num_labels=5)),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5-v1_1": ("T5ForConditionalGeneration", GATED),
    "mt5": ("MT5ForConditionalGeneration", GATED),
}
# What is tied: the head's weight and the embedding.
TIES = {
    "gpt2": ("lm_head.weight", "transformer.wte.weight"),
    "bert-mlm": ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    "bert-pretraining": ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    "roberta-mlm": ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    "modernbert-mlm": ("decoder.weight", "model.embeddings.tok_embeddings.weight"),
    "t5": ("lm_head.weight", "shared.weight"),
    "t5-v1_1": ("lm_head.weight", "shared.weight"),
    "mt5": ("lm_head.weight", "shared.weight"),
}


def cases():
    """name: head, kind. Kinds: what transformers makes of it (`plain`), its dtype, and what becomes of
    the tied pair: `untied` by the configuration; `twice`, both in the file; `differing`, both, and the
    configuration ties them."""
    for head in HEADS:
        yield head, "plain"
    for head in ("gpt2", "bert-mlm", "roberta-sequence", "modernbert-mlm", "vit-labels", "t5", "t5-v1_1"):
        yield head, "float16"
        yield head, "bfloat16"
    for head in TIES:
        yield head, "twice"
        yield head, "differing"
    for head in ("gpt2", "bert-mlm", "bert-pretraining", "roberta-mlm", "modernbert-mlm"):
        yield head, "untied"
    for head in ("gpt2", "bert-mlm", "roberta-mlm", "vit-labels", "t5", "t5-v1_1"):
        yield head, "bin"
    for head in ("gpt2", "t5-v1_1"):
        yield head, "legacy"
        yield head, "shards"
    yield "bert-mlm", "bias"
    yield "bert-sequence", "bfloat16"


# What is written as goldens: head, kind and version, in sizes of their own.
WRITTEN = (("t5-v1_1", "differing", "5"), ("t5-v1_1", "plain", "5"), ("t5-v1_1", "plain", "4"),
           ("mt5", "plain", "5"), ("gpt2", "differing", "5"), ("bert-mlm", "untied", "5"),
           ("bert-mlm", "bias", "5"), ("gpt2", "bin", "4"), ("gpt2", "legacy", "4"),
           ("gpt2", "shards", "4"), ("bert-sequence", "bfloat16", "5"))
SMALL = dict(vocab_size=19, n_positions=12, n_embd=8, n_layer=1, n_head=2, hidden_size=8,
             num_hidden_layers=1, num_attention_heads=2, intermediate_size=9, max_position_embeddings=14,
             d_model=8, d_kv=3, d_ff=9, num_layers=1, num_heads=2, relative_attention_num_buckets=4,
             relative_attention_max_distance=8)


def inputs_of(head, config):
    random = torch.Generator().manual_seed(5)
    if head.startswith("vit"):
        return {"pixel_values": torch.randn((2, 3, config.image_size, config.image_size), generator=random)}
    # Without RoBERTa's padding, which has a position of its own.
    inputs = {"input_ids": torch.randint(3, config.vocab_size, (2, 11), generator=random)}
    if "t5" in head:
        inputs["decoder_input_ids"] = torch.randint(3, config.vocab_size, (2, 7), generator=random)
    return inputs


def outputs_of(model, head, inputs):
    """What the program writes, by its names, in float64."""
    model = model.double().eval()
    with torch.no_grad():
        out = model(**{n: t.double() if t.is_floating_point() else t for n, t in inputs.items()})
    names = ("logits", "prediction_logits", "seq_relationship_logits", "pooler_output",
             "encoder_last_hidden_state")
    wanted = {n: out[n].contiguous() for n in names if out.get(n) is not None}
    if head in ("bert", "roberta", "modernbert", "vit"):
        wanted["last_hidden_state"] = out["last_hidden_state"].contiguous()
    return wanted


def all_double():
    """T5's norms and softmax are float32 in transformers whatever the dtype; here they are float64."""
    import transformers as hf

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    hf.models.t5.modeling_t5.T5LayerNorm.forward = norm
    hf.models.mt5.modeling_mt5.MT5LayerNorm.forward = norm
    to_float = torch.Tensor.float
    torch.Tensor.float = lambda x: x if x.dtype == torch.float64 else to_float(x)


def class_of(head):
    import transformers as hf
    return getattr(hf, HEADS[head][0])


def make_model(head, kind, seed, small=False):
    cls, fields = class_of(head), dict(HEADS[head][1])
    if small:
        fields.update({n: v for n, v in SMALL.items() if n in fields})
    if kind == "untied":
        fields["tie_word_embeddings"] = False
    config = cls.config_class(**fields)
    config._attn_implementation = "eager"
    model = parity.randomise(cls(config), seed, norm_names=("LayerNorm", "layer_norm", "layernorm", "ln_"))
    with torch.no_grad():
        for name, p in model.named_parameters():  # T5 does not scale scores; its queries are small
            if name.endswith("Attention.q.weight"):
                p.mul_(config.d_kv ** -0.5)
    return model.to(getattr(torch, kind)) if kind in HALF else model


def rewrite(folder, change):
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    change(tensors)
    save_file({n: t.contiguous() for n, t in tensors.items()}, path, {"format": "pt"})


def pickled(folder, kind):
    """Replaces model.safetensors by what older versions of transformers saved."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    os.remove(path)
    if kind != "shards":
        torch.save(tensors, os.path.join(folder, "pytorch_model.bin"),
                   _use_new_zipfile_serialization=kind == "bin")
        return
    names = sorted(tensors)
    parts = {f"pytorch_model-{i + 1:05d}-of-00003.bin": names[i::3] for i in range(3)}
    for file, part in parts.items():
        torch.save({n: tensors[n] for n in part}, os.path.join(folder, file))
    index = {"metadata": {}, "weight_map": {n: file for file, part in parts.items() for n in part}}
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w") as file:
        json.dump(index, file)


def save(model, folder, head, kind):
    """Saves the model, changed as the kind says, and returns the model that the folder is of."""
    model.save_pretrained(folder)
    if kind == "twice":
        name, of = TIES[head]
        rewrite(folder, lambda t: t.setdefault(name, t[of].clone()))
    elif kind == "differing":
        name, of = TIES[head]
        random = torch.Generator().manual_seed(9)
        own = 0.15 * torch.randn(model.get_parameter(of).shape, generator=random)
        rewrite(folder, lambda t: t.update({name: own}))
        parent, leaf = name.rsplit(".", 1)
        setattr(model.get_submodule(parent), leaf, torch.nn.Parameter(own))
    elif kind == "bias":
        own = torch.randn(model.config.vocab_size, generator=torch.Generator().manual_seed(9))
        rewrite(folder, lambda t: t.update({"cls.predictions.decoder.bias": own}))
        model.cls.predictions.decoder.bias = torch.nn.Parameter(own)
    elif kind in ("bin", "legacy", "shards"):
        pickled(folder, kind)
    return model


def make(root, small):
    """Every folder, with inputs and what its model computes of them."""
    all_double()
    for seed, (head, kind) in enumerate(cases()):
        folder = os.path.join(root, f"{head} {kind}")
        model = save(make_model(head, kind, seed, small), folder, head, kind)
        inputs = inputs_of(head, model.config)
        save_file(inputs, os.path.join(folder, "in.safetensors.test"))
        save_file(outputs_of(model, head, inputs), os.path.join(folder, "out.safetensors.test"))


def read(root, results):
    """What the version at hand computes with each folder of `root`."""
    all_double()
    for name in sorted(os.listdir(root)):
        head, kind = name.split(" ")
        folder = os.path.join(root, name)
        model, messages = class_of(head).from_pretrained(
            folder, dtype="auto", output_loading_info=True, attn_implementation="eager")
        complaints = [f"{k} {list(v)[:3]}" for k, v in messages.items() if v and k.endswith("_keys")]
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        out = outputs_of(model, head, load_file(os.path.join(folder, "in.safetensors.test")))
        save_file(out, os.path.join(results, f"{name}.out"),
                  {"dtype": dtype, "complaints": "; ".join(complaints)})


def in_peer(peer, *arguments):
    """Runs this script with the packages of one version."""
    result = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True,
                            env=dict(os.environ, PYTHONPATH=peer))
    if result.returncode != 0:
        sys.exit(f"{peer}: {arguments}\n{result.stdout}{result.stderr}")


def metadata_of(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size))["__metadata__"]


def compare(got, want):
    """Of the outputs that both have: heads give hidden states besides, in the program."""
    missing = sorted(set(want) - set(got))
    if missing:
        return float("inf"), f"missing {missing}"
    return parity.compare({n: got[n] for n in want}, want)


def check_forward(report, program, root, label):
    for name in sorted(os.listdir(root)):
        folder = os.path.join(root, name)
        inputs = load_file(os.path.join(folder, "in.safetensors.test"))
        want = load_file(os.path.join(folder, "out.safetensors.test"))
        kind = name.split(" ")[1]
        for dtype in ("float32", *((kind,) if kind in HALF else ())):
            what = f"{label}: {name} {dtype}"
            try:
                got, _ = parity.forward(program, folder, inputs, dtype, gradients=False)
                report.error(what, compare(got, want), HALF.get(dtype, TOLERANCE))
            except SystemExit as failure:
                report(what, False, str(failure))


def check_converted(report, program, peers, root, label):
    """Converts every folder and reads the result with both versions."""
    with tempfile.TemporaryDirectory() as work:
        ours = os.path.join(work, "ours")
        os.mkdir(ours)
        for name in sorted(os.listdir(root)):
            folder = os.path.join(ours, name)
            parity.run(program, "convert", os.path.join(root, name), folder)
            for file in ("in.safetensors.test", "out.safetensors.test"):
                shutil.copy(os.path.join(root, name, file), folder)
        check_forward(report, program, ours, f"{label}, converted")
        for version, peer in peers.items():
            results = os.path.join(work, version)
            os.mkdir(results)
            in_peer(peer, "read", ours, results)
            for name in sorted(os.listdir(ours)):
                what = f"{label}, converted, read by {version}: {name}"
                path = os.path.join(results, f"{name}.out")
                if name == "t5 differing" and version == "4":
                    continue  # scaled and not tied: transformers 4 has no such model
                said = metadata_of(path)
                kind = name.split(" ")[1]
                dtype = kind if kind in HALF else "float32"
                report(what + " quietly", said["dtype"] == dtype and not said["complaints"],
                       f"{said['dtype']} {said['complaints']}")
                want = load_file(os.path.join(ours, name, "out.safetensors.test"))
                report.error(what, compare(load_file(path), want), TOLERANCE)


def change_config(folder, changes):
    path = os.path.join(folder, "config.json")
    config = json.loads(pathlib.Path(path).read_text())
    pathlib.Path(path).write_text(json.dumps({**config, **changes}))


def check_refusals(report, program, root):
    """Folders whose meaning would change silently."""
    def tensors(name, of, plus):
        return lambda folder: rewrite(folder, lambda t: t.update({name: t[of] + plus}))

    def config(**changes):
        return lambda folder: change_config(folder, changes)

    for what, source, change, part in (
            ("a decoder of BERT", "bert-mlm plain", config(is_decoder=True), "'is_decoder'"),
            ("cross attention in BERT", "bert-mlm plain", config(add_cross_attention=True),
             "'add_cross_attention'"),
            ("cross attention in GPT-2", "gpt2 plain", config(add_cross_attention=True),
             "'add_cross_attention'"),
            ("layers that differ", "gpt2 plain", config(per_layer_config={"0": {"n_inner": 3}}),
             "'per_layer_config'"),
            ("another position embedding", "bert-mlm plain",
             config(position_embedding_type="relative_key"), "'position_embedding_type'"),
            ("an encoder with an embedding of its own", "t5 plain",
             tensors("encoder.embed_tokens.weight", "shared.weight", 1), "'encoder.embed_tokens.weight'"),
            ("two embeddings of GPT-2", "gpt2 plain", tensors("wte.weight", "transformer.wte.weight", 1),
             "'wte.weight'")):
        with tempfile.TemporaryDirectory() as work:
            folder = os.path.join(work, "model")
            shutil.copytree(os.path.join(root, source), folder)
            change(folder)
            message = parity.failure(program, "forward", "--model", folder, "--inputs",
                                     os.path.join(folder, "in.safetensors.test"), "--outputs",
                                     os.path.join(work, "out"))
            report(f"refused: {what}", part in message, message.replace(work, ""))


def write(args):
    shutil.rmtree(GOLDENS, ignore_errors=True)
    for version, peer in zip(("4", "5"), args.peers):
        with tempfile.TemporaryDirectory() as root:
            in_peer(peer, "make", root, "--small")
            for head, kind, of in WRITTEN:
                if of != version:
                    continue
                folder = GOLDENS / f"{head}_{kind}_of_{version}"
                shutil.copytree(os.path.join(root, f"{head} {kind}"), folder)
                tensors = {}
                for prefix in ("in", "out"):
                    path = folder / f"{prefix}.safetensors.test"
                    tensors.update({f"{prefix}.{n}": t for n, t in load_file(path).items()})
                    path.unlink()
                save_file(tensors, folder / "plain.safetensors")
                (folder / "generation_config.json").unlink(missing_ok=True)
    for path in GOLDENS.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    print(sum(f.stat().st_size for f in GOLDENS.rglob("*") if f.is_file()), "bytes")
    return 0


def check(args):
    report = parity.Report()
    peers = dict(zip(("4", "5"), args.peers))
    with tempfile.TemporaryDirectory() as work:
        for version, peer in peers.items():
            root = os.path.join(work, version)
            os.mkdir(root)
            in_peer(peer, "make", root)
            check_forward(report, args.tessera, root, f"saved by {version}")
            check_converted(report, args.tessera, peers, root, f"saved by {version}")
            check_refusals(report, args.tessera, root)
    return report.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("write", "check"):
        command = commands.add_parser(name)
        command.add_argument("--peers", nargs=2, required=True, help="PYTHONPATH of each version")
        command.add_argument("--tessera", default="bazel-bin/tools/tessera")
    making = commands.add_parser("make")
    making.add_argument("root")
    making.add_argument("--small", action="store_true")
    reading = commands.add_parser("read")
    reading.add_argument("root")
    reading.add_argument("results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.command in ("write", "check"):
        return write(args) if args.command == "write" else check(args)
    return make(args.root, args.small) if args.command == "make" else read(args.root, args.results)


if __name__ == "__main__":
    sys.exit(main())
