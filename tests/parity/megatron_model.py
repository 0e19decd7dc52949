# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of Megatron-LM's GPT-2, in every order of projections, converted by the program.

    pip install torch 'transformers<5' safetensors
    python tests/parity/megatron_model.py write
        writes tests/parity/goldens/megatron/, which megatron_golden_test.cc reads: small checkpoints of
        versions 0, 1, 2 and 3, each with other names, and the GPT-2 that all of them are
    python tests/parity/megatron_model.py check [--tessera BINARY]
        converts such checkpoints with `tessera convert`, and compares the logits with those of a plain
        implementation of Megatron's own attention
"""
import argparse
import math
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import save_file

import parity

GOLDENS = pathlib.Path(__file__).parent / "goldens/megatron"
LAYERS, HEADS, WIDTH, VOCABULARY, PADDED, POSITIONS = 2, 2, 12, 21, 24, 9
FEATURES = WIDTH // HEADS

# version: the names of the stack and of attention, and whether the checkpoint says its arguments
KINDS = {
    0: ("transformer", "attention"),
    1: ("transformer", "attention"),
    2: ("transformer", "attention"),
    3: ("encoder", "self_attention"),
}


def weights(seed):
    """As Megatron computes: rows of query_key_value by projection, head and feature."""
    random = torch.Generator().manual_seed(seed)
    draw = lambda *shape: 0.3 * torch.randn(shape, generator=random)
    layers = [{
        "input_layernorm.weight": 1 + draw(WIDTH), "input_layernorm.bias": draw(WIDTH),
        "attention.query_key_value.weight": draw(3 * WIDTH, WIDTH),
        "attention.query_key_value.bias": draw(3 * WIDTH),
        "attention.dense.weight": draw(WIDTH, WIDTH), "attention.dense.bias": draw(WIDTH),
        "post_attention_layernorm.weight": 1 + draw(WIDTH), "post_attention_layernorm.bias": draw(WIDTH),
        "mlp.dense_h_to_4h.weight": draw(4 * WIDTH, WIDTH), "mlp.dense_h_to_4h.bias": draw(4 * WIDTH),
        "mlp.dense_4h_to_h.weight": draw(WIDTH, 4 * WIDTH), "mlp.dense_4h_to_h.bias": draw(WIDTH),
    } for _ in range(LAYERS)]
    return {"words": draw(PADDED, WIDTH), "positions": draw(POSITIONS, WIDTH), "layers": layers,
            "final": {"final_layernorm.weight": 1 + draw(WIDTH), "final_layernorm.bias": draw(WIDTH)}}


def logits(w, ids):
    """[B, T] to [B, T, VOCABULARY], in float64."""
    F = torch.nn.functional
    layer_norm = lambda x, p, name: F.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"], 1e-5)
    linear = lambda x, p, name: F.linear(x, p[name + ".weight"], p[name + ".bias"])
    tokens = ids.shape[1]
    x = w["words"][ids] + w["positions"][:tokens]
    for p in w["layers"]:
        mixed = linear(layer_norm(x, p, "input_layernorm"), p, "attention.query_key_value")
        q, k, v = (t.unflatten(-1, (HEADS, FEATURES)).transpose(1, 2) for t in mixed.chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(FEATURES)
        scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -math.inf)
        x = x + linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), p, "attention.dense")
        inner = F.gelu(linear(layer_norm(x, p, "post_attention_layernorm"), p, "mlp.dense_h_to_4h"),
                       approximate="tanh")
        x = x + linear(inner, p, "mlp.dense_4h_to_h")
    return layer_norm(x, w["final"], "final_layernorm") @ w["words"][:VOCABULARY].T


def ordered(t, version):
    """Rows by projection, head, feature in the order of the version."""
    rows = t.unflatten(0, (3, HEADS, FEATURES))
    if version == 1:
        rows = rows.permute(1, 2, 0, *range(3, rows.dim()))
    elif version >= 2:
        rows = rows.transpose(0, 1)
    return rows.flatten(0, 2).contiguous()


def checkpoint(w, version):
    stack, attention = KINDS[version]
    layers = dict(w["final"])
    for i, p in enumerate(w["layers"]):
        for name, t in p.items():
            if name.startswith("attention."):
                name = name.replace("attention", attention, 1)
            layers[f"layers.{i}.{name}"] = ordered(t, version) if "query_key_value" in name else t
    embedding = {"word_embeddings": {"weight": w["words"]}, "position_embeddings": {"weight": w["positions"]}}
    saved = {"iteration": 7, "model": {"language_model": {"embedding": embedding, stack: layers}}}
    if version > 0:
        saved["checkpoint_version"] = float(version)
    saved["args"] = argparse.Namespace(
        num_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=HEADS, ffn_hidden_size=4 * WIDTH,
        max_position_embeddings=POSITIONS, padded_vocab_size=PADDED, orig_vocab_size=VOCABULARY,
        bias_gelu_fusion=True, openai_gelu=False, layernorm_epsilon=1e-5, hidden_dropout=0.1,
        attention_dropout=0.1, init_method_std=0.02, tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1, params_dtype=torch.float32, tokenizer_type="GPT2BPETokenizer")
    return saved


def doubled(w):
    if isinstance(w, dict):
        return {n: doubled(v) for n, v in w.items()}
    return [doubled(v) for v in w] if isinstance(w, list) else w.double()


def inputs():
    return torch.randint(VOCABULARY, (2, POSITIONS), generator=torch.Generator().manual_seed(3))


def check(args):
    report = parity.Report()
    for version in KINDS:
        w = weights(40 + version)
        with tempfile.TemporaryDirectory() as work:
            torch.save(checkpoint(w, version), f"{work}/model_optim_rng.pt")
            parity.run(args.tessera, "convert", f"{work}/model_optim_rng.pt", f"{work}/out")
            got, _ = parity.forward(args.tessera, f"{work}/out", {"input_ids": inputs()}, gradients=False)
            want = {"logits": logits(doubled(w), inputs())}
            report.error(f"version {version} logits", parity.compare({"logits": got["logits"]}, want),
                         parity.TOLERANCE)
            from transformers import GPT2LMHeadModel
            model, messages = GPT2LMHeadModel.from_pretrained(f"{work}/out", output_loading_info=True)
            theirs = {"logits": model.double()(inputs()).logits.detach()}
            report.error(f"version {version} read by transformers", parity.compare(theirs, want),
                         parity.TOLERANCE)
    return report.finish()


def write(_):
    GOLDENS.mkdir(parents=True, exist_ok=True)
    w = weights(31)
    for version in KINDS:
        torch.save(checkpoint(w, version), GOLDENS / f"version{version}.pt")
    save_file({"in.input_ids": inputs(), "out.logits": logits(doubled(w), inputs())},
              GOLDENS / "plain.safetensors")
    print(sum(f.stat().st_size for f in GOLDENS.iterdir()), "bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "check"))
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    args = parser.parse_args()
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
