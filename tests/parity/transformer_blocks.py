# SPDX-License-Identifier: Apache-2.0
"""nn::TransformerBlock by configuration against transformers' layers: outputs and gradients.

    pip install torch safetensors 'transformers==4.57.6'
    bazel build -c opt //tests/parity:transformer_blocks
    python tests/parity/transformer_blocks.py [--program bazel-bin/tests/parity/transformer_blocks]

Each case is a small random model of transformers, in float64, run on embeddings. The program builds
its blocks from the same config.json and computes in float64 and in float32. transformers computes
frequencies and angles in float32 in both: that, not the program, sets what float64 reaches.
"""
import argparse
import json
import os
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, CONFIG_MAPPING

from parity import TOLERANCE, Report, compare, randomise, run

BATCH, TOKENS = 2, 23
LLAMA = dict(hidden_size=24, intermediate_size=37, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, vocab_size=7, max_position_embeddings=64, rope_theta=500.0,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
FACTORS = dict(short_factor=[1.0 + 0.1 * i for i in range(4)],
               long_factor=[2.0 + 0.5 * i for i in range(4)])


def llama(kind="llama", **changes):
    return kind, {**LLAMA, **changes}


def scaled(rope_type, **keys):
    """Shorter than the sequence, so that every scaling shows."""
    return llama(head_dim=8, max_position_embeddings=16, rope_scaling=dict(rope_type=rope_type, **keys))


CASES = {
    "llama": llama(),
    "llama_biases": llama(attention_bias=True, mlp_bias=True, num_key_value_heads=1, head_dim=10),
    "llama_ungrouped": llama(num_key_value_heads=6),
    "llama_masked": llama(),
    "linear": scaled("linear", factor=4.0),
    "dynamic": scaled("dynamic", factor=3.0),
    "llama3": scaled("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                     original_max_position_embeddings=12),
    "yarn": scaled("yarn", factor=4.0, original_max_position_embeddings=12),
    "yarn_betas": scaled("yarn", factor=4.0, original_max_position_embeddings=12, beta_fast=4.0,
                         beta_slow=0.5),
    "longrope": scaled("longrope", factor=2.0, **FACTORS),
    "mistral": llama("mistral", sliding_window=5, head_dim=6),
    "mistral_masked": llama("mistral", sliding_window=5),
    "mistral_full": llama("mistral", sliding_window=None),
    "qwen2": llama("qwen2"),
    "qwen2_windows": llama("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": llama("qwen3", head_dim=8),
    "qwen3_windows": llama("qwen3", head_dim=8, attention_bias=True, use_sliding_window=True,
                           sliding_window=3, max_window_layers=1),
    "neox": ("gpt_neox", dict(hidden_size=24, intermediate_size=50, num_hidden_layers=2,
                              num_attention_heads=3, vocab_size=7, rotary_pct=0.5,
                              hidden_act="gelu")),
    "neox_serial": ("gpt_neox", dict(hidden_size=24, intermediate_size=50, num_hidden_layers=2,
                                     num_attention_heads=2, vocab_size=7, rotary_pct=1.0,
                                     use_parallel_residual=False, attention_bias=False)),
    "gptj": ("gptj", dict(n_embd=24, n_layer=2, n_head=3, rotary_dim=4, vocab_size=7,
                          n_positions=64)),
}
NORMS = ("norm", "ln_")


def mask_of(name):
    """Holes, and padding behind one row: for windows places count, seen or not. (A query that sees
    no key at all is NaN in transformers.)"""
    if not name.endswith("_masked"):
        return None
    mask = torch.ones(BATCH, TOKENS, dtype=torch.int64)
    mask[0, 1:4] = 0
    mask[0, -4:] = 0
    mask[1, 9:11] = 0
    return mask


def expected_of(config, state, x, dy, mask):
    """In float64: the output behind the last norm, and all gradients."""
    model = AutoModel.from_config(config, attn_implementation="eager").double()
    model.load_state_dict(state)
    model.eval()
    x = x.double().requires_grad_()
    y = model(inputs_embeds=x, attention_mask=mask, use_cache=False).last_hidden_state
    if mask is not None:
        dy = dy * mask.unsqueeze(-1)
    y.backward(dy.double())
    tensors = {"y": y.detach(), "dx": x.grad}
    tensors.update({f"g/{n}": p.grad for n, p in model.named_parameters() if p.grad is not None})
    return tensors, dy


def prepare(name, seed, configs, inputs, expected):
    kind, keys = CASES[name]
    config = CONFIG_MAPPING[kind](**keys)
    model = randomise(AutoModel.from_config(config), seed, norm_names=NORMS)
    random = torch.Generator().manual_seed(seed)
    width = getattr(config, "hidden_size", None)
    x = torch.randn(BATCH, TOKENS, width, generator=random)
    dy = torch.randn(BATCH, TOKENS, width, generator=random)
    mask = mask_of(name)
    expected[name], dy = expected_of(config, model.state_dict(), x, dy, mask)
    configs[name] = config.to_dict()
    inputs.update({f"{name}/x": x, f"{name}/dy": dy})
    if mask is not None:
        inputs[f"{name}/mask"] = mask
    inputs.update({f"{name}/p/{n}": p for n, p in model.state_dict().items()
                   if "embed" not in n and "wte" not in n})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="bazel-bin/tests/parity/transformer_blocks")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    configs, inputs, expected = {}, {}, {}
    for i, name in enumerate(CASES):
        prepare(name, arguments.seed + i, configs, inputs, expected)
    report = Report()
    for dtype in (torch.float64, torch.float32):
        with tempfile.TemporaryDirectory() as work:
            cases, into, out = (os.path.join(work, n) for n in ("cases.json", "in", "out"))
            with open(cases, "w") as file:
                json.dump(configs, file)
            save_file({n: t.to(dtype) if t.is_floating_point() else t
                       for n, t in inputs.items()}, into)
            run(arguments.program, cases, into, out)
            tensors = load_file(out)
        for name in CASES:
            got = {n[len(name) + 1:]: t for n, t in tensors.items() if n.startswith(name + "/")}
            rows = mask_of(name)
            report.error(f"{name} {str(dtype)[6:]}",
                         compare(got, expected[name], None if rows is None else rows.bool()),
                         TOLERANCE)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
