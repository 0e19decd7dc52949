# SPDX-License-Identifier: Apache-2.0
"""GGUF files of random models beside llama.cpp: logits, and the way back.

    pip install torch safetensors transformers llama-cpp-python
    bazel build -c opt //tools:tessera
    python tests/parity/gguf_models.py [--tessera BINARY] [--only NAME]

Each model of transformers, with weights that float16 holds, becomes a GGUF file by `tessera convert`.
Printed is the relative error ||a-b||/||b|| of the program's logits and of llama.cpp's from those of
transformers in float64; llama.cpp rounds activations to float16 before products. The folder that
`tessera convert` makes of the file has the tensors of the first, bit by bit. What a file cannot say
is refused by the key of config.json.
"""
import os
import sys
import tempfile

import llama_cpp
import numpy
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, CONFIG_MAPPING

import llama_model
import parity

TOKENS = 40  # more than a window has
OURS, THEIRS = 2e-5, 3e-3  # of relative errors


def llama(kind="llama", **changes):
    return kind, {**dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
                         pad_token_id=None, bos_token_id=1, eos_token_id=2), **changes}


def long_rope(original):
    return dict(original_max_position_embeddings=original,
                rope_scaling=dict(type="longrope", short_factor=[1.0 + 0.1 * i for i in range(6)],
                                  long_factor=[2.0 + 0.5 * i for i in range(6)]))


GEMMA = dict(head_dim=24, query_pre_attn_scalar=24, sliding_window=8)
MODELS = {
    "llama": llama(attention_bias=True),
    "mistral": llama("mistral", sliding_window=None),
    "qwen2": llama("qwen2"),
    "qwen3": llama("qwen3", head_dim=24, tie_word_embeddings=True),
    "gemma2": llama("gemma2", **GEMMA),
    "gemma2_caps": llama("gemma2", attn_logit_softcapping=0.5, final_logit_softcapping=0.8, **GEMMA),
    "gemma3": llama("gemma3_text", num_hidden_layers=7, **GEMMA),
    "olmo2": llama("olmo2"),
    "smollm3": llama("smollm3"),
    "phi3": llama("phi3"),
    "phi3_short": llama("phi3", partial_rotary_factor=0.75, **long_rope(512)),
    "phi3_long": llama("phi3", partial_rotary_factor=0.75, tie_word_embeddings=True, **long_rope(16)),
    "glm": llama("glm", head_dim=16, attention_bias=True),
    "chatglm2": llama("glm", head_dim=16, attention_bias=True, rope_theta=30000.0),
    "glm4": llama("glm4", head_dim=24, attention_bias=True),
}
REFUSED = {
    "attn_logit_softcapping": llama("gemma2", attn_logit_softcapping=None, **GEMMA),
    "query_pre_attn_scalar": llama("gemma2", **{**GEMMA, "query_pre_attn_scalar": 16}),
    "tie_word_embeddings": llama("olmo2", tie_word_embeddings=True),
    "attention_bias": llama("olmo2", attention_bias=True),
    "no_rope_layers": llama("smollm3", no_rope_layer_interval=3),
    "mlp_bias": llama("smollm3", mlp_bias=True),
    "head_dim": llama("glm", head_dim=24),
    "rope_scaling": llama("glm4", head_dim=16, rope_scaling=dict(rope_type="dynamic", factor=2.0)),
}


def built(kind, keys, seed):
    config = CONFIG_MAPPING[kind](**keys)
    config._attn_implementation = "eager"
    norms = () if kind.startswith("gemma") else ("norm",)  # whose weights are near 0 there
    model = parity.randomise(AutoModelForCausalLM.from_config(config), seed, norm_names=norms)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.half())
    return model


def llama_cpp_logits(path, ids):
    model = llama_cpp.Llama(path, n_ctx=256, n_threads=1, verbose=False, logits_all=True, flash_attn=False,
                            type_k=0, type_v=0)
    model.eval(ids.tolist())
    return torch.tensor(numpy.array(model.scores[:len(ids)]))


def check(report, args, name, model, work):
    folder, path, back = (os.path.join(work, n) for n in ("folder", "model.gguf", "back"))
    ids = torch.randint(4, model.config.vocab_size, (TOKENS,), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        want = model.double()(ids[None], use_cache=False).logits[0]
    model.half().save_pretrained(folder)
    if name.startswith("chatglm2"):
        llama_model.write_chatglm(folder, model.config)
    parity.run(args.tessera, "convert", folder, path)
    parity.run(args.tessera, "convert", path, back)
    before, after = (load_file(os.path.join(f, "model.safetensors")) for f in (folder, back))
    same = before.keys() == after.keys() and all(torch.equal(t.float(), after[n].float())
                                                 for n, t in before.items())
    report(f"{name} back", same)
    got, _ = parity.forward(args.tessera, path, {"input_ids": ids[None]}, gradients=False)
    report.error(f"{name} logits", (parity.relative_error(got["logits"][0], want, 1), ""), OURS)
    other = llama_cpp_logits(path, ids)
    report.error(f"{name} llama.cpp", (parity.relative_error(other, want, 1), ""), THEIRS)


def main():
    args = parity.arguments(__doc__, extend=lambda parser: parser.add_argument("--only", default=""))
    report = parity.Report()
    for seed, (name, (kind, keys)) in enumerate(MODELS.items()):
        if args.only in name:
            with tempfile.TemporaryDirectory() as work:
                check(report, args, name, built(kind, keys, seed), work)
    for key, (kind, keys) in REFUSED.items():
        if args.only in key:
            with tempfile.TemporaryDirectory() as work:
                built(kind, keys, 0).save_pretrained(work)
                line = parity.failure(args.tessera, "convert", work, os.path.join(work, "x.gguf"))
                report(f"{key} refused", f"'{key}': " in line and "GGUF" in line, line)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
