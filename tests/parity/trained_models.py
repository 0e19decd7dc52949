# SPDX-License-Identifier: Apache-2.0
"""Models of Llama's like, trained by the program, in transformers, and back.

    pip install torch safetensors transformers        (4.57.6 and a 5.x, in folders of their own)
    bazel build -c opt //tools:tessera
    python tests/parity/trained_models.py TEXT [--tessera BINARY] [--only NAME] [--steps 200]

Each preset is trained in a small configuration on the bytes of TEXT. transformers loads what the
program saved, and saves it again, for the program to load. Printed are the first and the last loss
of the training, and the relative differences of transformers' loss and of the program's on
transformers' folder from the program's own, on one batch of the text.
"""
import json
import os
import sys
import tempfile

import torch
from safetensors.torch import load_file
import transformers
from transformers import AutoModelForCausalLM, GlmConfig

import llama_model
import parity

SIZES = dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=96, head_dim=16)
CHATGLM_SIZES = dict(hidden_size=64, num_layers=4, num_attention_heads=4, multi_query_group_num=2,
                     ffn_hidden_size=96, kv_channels=16)
FAMILIES = {  # a preset and what is changed
    "gemma2": ("gemma-2-2b", dict(SIZES, sliding_window=16, query_pre_attn_scalar=16)),
    "olmo2": ("olmo-2-1b", SIZES),
    "smollm3": ("smollm3-3b", SIZES),
    "phi3": ("phi-3-mini", SIZES),
    "glm": ("glm-4-9b", SIZES),
    "glm4": ("glm-4-9b", dict(SIZES, model_type="glm4")),
    "chatglm2": ("chatglm2-6b", CHATGLM_SIZES),
}
ROWS, TOKENS = 4, 64


def losses(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    said = [row["loss"] for row in rows if "loss" in row]
    return said[0], said[-1]


def program_loss(args, folder, ids):
    got, _ = parity.forward(args.tessera, folder, {"input_ids": ids, "labels": ids.clone()}, gradients=False)
    return got["loss"].item()


def of_chatglm(folder):
    """As GLM, which transformers has."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        c = json.load(file)
    model = AutoModelForCausalLM.from_config(GlmConfig(
        vocab_size=c["padded_vocab_size"], hidden_size=c["hidden_size"], head_dim=c["kv_channels"],
        intermediate_size=c["ffn_hidden_size"], num_hidden_layers=c["num_layers"],
        num_attention_heads=c["num_attention_heads"], num_key_value_heads=c["multi_query_group_num"],
        rms_norm_eps=c["layernorm_epsilon"], attention_bias=c["add_qkv_bias"], pad_token_id=None,
        max_position_embeddings=c["seq_length"], bos_token_id=None, eos_token_id=None))
    held = load_file(os.path.join(folder, "model.safetensors"))
    sizes = [c["hidden_size"], *[c["multi_query_group_num"] * c["kv_channels"]] * 2]
    tensors = {}
    for name, tensor in held.items():
        for glm, chatglm in llama_model.CHATGLM_NAMES:
            name = name.replace(chatglm, glm)
        parts = tensor.split(sizes) if "q_proj" in name else [tensor]
        for part, piece in zip(("q_proj", "k_proj", "v_proj"), parts):
            tensors[name.replace("q_proj", part)] = piece
    model.load_state_dict(tensors)
    return model


def check(report, args, name, work):
    preset, changes = FAMILIES[name]
    run, folder, theirs = (os.path.join(work, n) for n in ("run", "run/model", "theirs"))
    parity.run(args.tessera, "train", preset, "--data", args.text, "--tokenizer", "byte", "--seq-len", TOKENS,
               "--batch-size", 8, "--max-steps", args.steps, "--lr", "3e-3", "--log-interval", 1, "--out", run,
               "--config-overrides", ",".join(f"{k}={v}" for k, v in changes.items()))
    first, last = losses(run)
    report(f"{name} trained", last < first - 1, f"{first:.3f} to {last:.3f}")
    with open(args.text, "rb") as file:
        ids = torch.tensor(list(file.read(ROWS * TOKENS))).view(ROWS, TOKENS)
    ours = program_loss(args, folder, ids)
    if name == "chatglm2":
        model = of_chatglm(folder).eval()
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                     dtype=torch.float32).eval()
    with torch.no_grad():
        other = model(input_ids=ids, labels=ids).loss.item()
    report.error(f"{name} transformers", (abs(other / ours - 1), f"{ours:.6f}, {other:.6f}"), parity.TOLERANCE)
    model.save_pretrained(theirs)
    if name == "chatglm2":
        llama_model.write_chatglm(theirs, model.config)
    back = program_loss(args, theirs, ids)
    report.error(f"{name} back", (abs(back / ours - 1), f"{back:.6f}"), 1e-9)


def extend(parser):
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", default="")


def main():
    args = parity.arguments(__doc__, extend=extend)
    print("transformers", transformers.__version__)
    report = parity.Report()
    for name in FAMILIES:
        if args.only in name:
            with tempfile.TemporaryDirectory() as work:
                check(report, args, name, work)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
