# SPDX-License-Identifier: Apache-2.0
"""GGUF files of random models beside llama.cpp: logits, and the way back.

    pip install torch safetensors transformers llama-cpp-python gguf
    bazel build -c opt //tools:tessera
    python tests/parity/gguf_models.py [--tessera BINARY] [--only NAME]

Each model of transformers, with weights that float16 holds, becomes a GGUF file by `tessera convert`.
Printed is the relative error ||a-b||/||b|| of the program's logits and of llama.cpp's from those of
transformers in float64; llama.cpp rounds activations to float16 before products. The folder that
`tessera convert` makes of the file has the tensors of the first, bit by bit. What a file cannot say
is refused by the key of config.json.

Wider models become quantised files by `tessera quantize`. Printed are the errors of the program's
logits and of llama.cpp's from those of the weights that the package gguf dequantises, which llama.cpp
computes in float32.
"""
import os
import sys
import tempfile

import gguf
import llama_cpp
import numpy
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, CONFIG_MAPPING

import llama_model
import parity

TOKENS = 40  # more than a window has
OURS, THEIRS = 2e-5, 3e-3  # of relative errors
# llama.cpp rounds activations to 8 bits, and has up to 7e-2; with experts, which are chosen by them, 3e-1.
OURS_QUANTISED = 1e-3


def llama(kind="llama", **changes):
    return kind, {**dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
                         pad_token_id=None, bos_token_id=1, eos_token_id=2), **changes}


def long_rope(original):
    return dict(original_max_position_embeddings=original,
                rope_scaling=dict(type="longrope", short_factor=[1.0 + 0.1 * i for i in range(6)],
                                  long_factor=[2.0 + 0.5 * i for i in range(6)]))


GEMMA = dict(head_dim=24, query_pre_attn_scalar=24, sliding_window=8)
GLM_MOE = dict(head_dim=24, partial_rotary_factor=0.5, n_routed_experts=6, num_experts_per_tok=2,
               n_group=1, topk_group=1, n_shared_experts=2, first_k_dense_replace=2,
               routed_scaling_factor=1.75, moe_intermediate_size=32)
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
    "mixtral": llama("mixtral", sliding_window=None, num_local_experts=5),
    "qwen2_moe": llama("qwen2_moe", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32,
                       shared_expert_intermediate_size=64),
    "qwen3_moe": llama("qwen3_moe", head_dim=24, num_experts=6, num_experts_per_tok=3,
                       moe_intermediate_size=32, norm_topk_prob=True, tie_word_embeddings=True),
    "glm4_moe": llama("glm4_moe", **GLM_MOE),
    "glm4_moe_norms": llama("glm4_moe", **{**GLM_MOE, "n_group": 3, "topk_group": 2}, use_qk_norm=True,
                            attention_bias=True, norm_topk_prob=False),
}
# Rows of 256, as *_k have them.
WIDE = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, head_dim=64)
WIDE_MODELS = {
    "gemma2_wide": llama("gemma2", query_pre_attn_scalar=64, sliding_window=8, **WIDE),
    "olmo2_wide": llama("olmo2", **WIDE),
    "smollm3_wide": llama("smollm3", **WIDE),
    "phi3_wide": llama("phi3", **WIDE),
    "glm_wide": llama("glm", attention_bias=True, **WIDE),
    "chatglm2_wide": llama("glm", attention_bias=True, **WIDE),
    "glm4_wide": llama("glm4", **WIDE),
    "mixtral_wide": llama("mixtral", sliding_window=None, num_local_experts=4, **WIDE),
    "qwen2_moe_wide": llama("qwen2_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256,
                            shared_expert_intermediate_size=256, **WIDE),
    "qwen3_moe_wide": llama("qwen3_moe", num_experts=4, num_experts_per_tok=2, norm_topk_prob=True,
                            moe_intermediate_size=256, **WIDE),
    "glm4_moe_wide": llama("glm4_moe", **{**GLM_MOE, **WIDE, "first_k_dense_replace": 1,
                                          "moe_intermediate_size": 256}),
}
QUANTISED = ("q8_0", "q4_k", "q6_k")
REFUSED = {
    "attn_logit_softcapping": llama("gemma2", attn_logit_softcapping=None, **GEMMA),
    "query_pre_attn_scalar": llama("gemma2", **{**GEMMA, "query_pre_attn_scalar": 16}),
    "tie_word_embeddings": llama("olmo2", tie_word_embeddings=True),
    "attention_bias": llama("olmo2", attention_bias=True),
    "no_rope_layers": llama("smollm3", no_rope_layer_interval=3),
    "mlp_bias": llama("smollm3", mlp_bias=True),
    "head_dim": llama("glm", head_dim=24),
    "norm_topk_prob": llama("qwen3_moe", norm_topk_prob=False, num_experts=8, moe_intermediate_size=32),
    "mlp_only_layers": llama("qwen2_moe", mlp_only_layers=[1], num_experts=6, moe_intermediate_size=32,
                             shared_expert_intermediate_size=64),
    "decoder_sparse_step": llama("qwen2_moe", decoder_sparse_step=2, num_experts=6,
                                 moe_intermediate_size=32, shared_expert_intermediate_size=64),
    "rope_scaling": llama("glm4", head_dim=16, rope_scaling=dict(rope_type="dynamic", factor=2.0)),
}


def mend_routers(model, seed):
    """Biases that choose, and weights of the model's type, which transformers' GLM-4.5 has in float32
    alone."""
    random = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if not hasattr(module, "e_score_correction_bias"):
            continue
        bias = module.e_score_correction_bias
        bias.copy_((torch.rand(bias.shape, generator=random) * 0.2).half())
        module.register_forward_hook(lambda m, args, out: (out[0], out[1].to(args[0].dtype)))


def built(kind, keys, seed):
    config = CONFIG_MAPPING[kind](**keys)
    config._attn_implementation = "eager"
    norms = () if kind.startswith("gemma") else ("norm",)  # whose weights are near 0 there
    model = parity.randomise(AutoModelForCausalLM.from_config(config), seed, norm_names=norms)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.half())
        mend_routers(model, seed)
    return model


def llama_cpp_logits(path, ids):
    model = llama_cpp.Llama(path, n_ctx=256, n_threads=1, verbose=False, logits_all=True, flash_attn=False,
                            type_k=0, type_v=0)
    model.eval(ids.tolist())
    return torch.tensor(numpy.array(model.scores[:len(ids)]))


def save(model, name, folder):
    model.half().save_pretrained(folder)
    if name.startswith("chatglm2"):
        llama_model.write_chatglm(folder, model.config)


def random_ids(vocab_size):
    return torch.randint(4, vocab_size, (TOKENS,), generator=torch.Generator().manual_seed(3))


def write_dequantised(path, to):
    """The same file with matrices in float32, by the package gguf; says how many were quantised."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(to, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sum(t.tensor_type not in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)
               for t in reader.tensors)


def check_quantised(report, args, name, model, work):
    folder, dense = os.path.join(work, "folder"), os.path.join(work, "dense.gguf")
    ids = random_ids(model.config.vocab_size)
    save(model, name, folder)
    for kind in QUANTISED:
        path = os.path.join(work, f"{kind}.gguf")
        parity.run(args.tessera, "quantize", folder, path, "--type", kind)
        count = write_dequantised(path, dense)
        want = llama_cpp_logits(dense, ids)
        got, _ = parity.forward(args.tessera, path, {"input_ids": ids[None]}, gradients=False)
        ours, theirs = (parity.relative_error(t, want, 1)
                        for t in (got["logits"][0], llama_cpp_logits(path, ids)))
        report(f"{name} {kind}", count > 2 * model.config.num_hidden_layers and ours <= OURS_QUANTISED,
               f"{ours:.2e}, llama.cpp {theirs:.2e}, {count} quantised tensors")


def check(report, args, name, model, work):
    folder, path, back = (os.path.join(work, n) for n in ("folder", "model.gguf", "back"))
    ids = random_ids(model.config.vocab_size)
    with torch.no_grad():
        want = model.double()(ids[None], use_cache=False).logits[0]
    save(model, name, folder)
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
    for seed, (name, (kind, keys)) in enumerate(WIDE_MODELS.items()):
        if args.only in name:
            with tempfile.TemporaryDirectory() as work:
                check_quantised(report, args, name, built(kind, keys, seed), work)
    for key, (kind, keys) in REFUSED.items():
        if args.only in key:
            with tempfile.TemporaryDirectory() as work:
                built(kind, keys, 0).save_pretrained(work)
                line = parity.failure(args.tessera, "convert", work, os.path.join(work, "x.gguf"))
                report(f"{key} refused", f"'{key}': " in line and "GGUF" in line, line)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
