# SPDX-License-Identifier: Apache-2.0
"""Llama and its like against transformers, in outputs, gradients and generation.

    pip install torch safetensors transformers        (4.57.6 and a 5.x, in folders of their own)
    bazel build -c opt //tools:tessera //tests/parity:resave_model
    python tests/parity/llama_model.py [--tessera BINARY] [--resave BINARY]

Random models of unusual shapes are run by the program and by transformers in float64, from folders
that the installed transformers wrote: `rope_scaling` by version 4, `rope_parameters` by 5. Printed is
the worst relative error ||a-b||/||b|| of outputs and of gradients, and of logits in bfloat16 that of
transformers' own; generation is compared token by
token, greedy and with beams, and what the program saves is loaded again.
"""
import json
import os
import sys
import tempfile
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import AttentionInterface, AutoModelForCausalLM, CONFIG_MAPPING
from transformers.masking_utils import AttentionMaskInterface, eager_mask

import chatglm
import parity
from parity import (ALL_HIDDEN, Report, check_saving, compare, forward, gradients_of,
                    numbered, randomise, run)

COMMON = dict(vocab_size=67, hidden_size=36, intermediate_size=53, num_hidden_layers=3,
              num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=48,
              bos_token_id=1, eos_token_id=2)


def llama(kind="llama", **changes):
    return kind, {**COMMON, **changes}


def scaled(rope_type, positions=16, **keys):
    """Trained on fewer positions than the inputs have, so that every scaling shows."""
    return llama(head_dim=8, max_position_embeddings=positions,
                 rope_scaling=dict(rope_type=rope_type, **keys))


FACTORS = dict(short_factor=[1.0 + 0.1 * i for i in range(4)],
               long_factor=[2.0 + 0.5 * i for i in range(4)])
MODELS = {
    "llama": llama(),
    "llama_three_heads": llama(num_attention_heads=3, num_key_value_heads=1, head_dim=10),
    "llama_biases": llama(attention_bias=True, mlp_bias=True, num_key_value_heads=6),
    "llama_tied": llama(tie_word_embeddings=True, pad_token_id=3, rms_norm_eps=1e-3),
    "linear": scaled("linear", factor=3.0),
    "dynamic": scaled("dynamic", factor=3.0),
    "llama3": scaled("llama3", positions=96, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                     original_max_position_embeddings=12),
    "yarn": scaled("yarn", positions=48, factor=4.0, original_max_position_embeddings=12),
    "longrope": scaled("longrope", factor=2.0, **FACTORS),
    "mistral": llama("mistral", sliding_window=5, head_dim=6),
    "mistral_full": llama("mistral", sliding_window=None),
    "ministral": llama("ministral", sliding_window=5, head_dim=6,
                       layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "qwen2": llama("qwen2", tie_word_embeddings=True),
    "qwen2_windows": llama("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": llama("qwen3", head_dim=8),
    "qwen3_windows": llama("qwen3", head_dim=8, attention_bias=True, use_sliding_window=True,
                           sliding_window=3, max_window_layers=2),
    "gemma3": llama("gemma3_text", head_dim=10, sliding_window=4, query_pre_attn_scalar=7,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "gemma3_untied": llama("gemma3_text", head_dim=8, sliding_window=5, pad_token_id=3,
                           tie_word_embeddings=False, attention_bias=True, num_hidden_layers=7),
    "gemma3_capped": llama("gemma3_text", head_dim=8, sliding_window=5, final_logit_softcapping=1.5),
    "gemma2": llama("gemma2", head_dim=10, sliding_window=4, query_pre_attn_scalar=7,
                    attn_logit_softcapping=0.8, final_logit_softcapping=1.5),
    "gemma2_untied": llama("gemma2", head_dim=8, sliding_window=5, pad_token_id=3,
                           tie_word_embeddings=False, attention_bias=True,
                           attn_logit_softcapping=None, final_logit_softcapping=None),
    "olmo2": llama("olmo2", pad_token_id=3),
    "olmo2_one_group": llama("olmo2", num_key_value_heads=None, attention_bias=True, pad_token_id=3,
                             tie_word_embeddings=True,
                             rope_scaling=dict(type="linear", factor=3.0)),
    "smollm3": llama("smollm3", pad_token_id=3, no_rope_layer_interval=2),
    "smollm3_windows": llama("smollm3", pad_token_id=3, no_rope_layers=[1, 0, 1], mlp_bias=True,
                             use_sliding_window=True, sliding_window=4),
    # Keys' biases of layers that do not turn have no gradient but rounding.
    "smollm3_biases": llama("smollm3", pad_token_id=3, no_rope_layers=[1, 1, 1], mlp_bias=True,
                            attention_bias=True, tie_word_embeddings=False),
    "phi3": llama("phi3", pad_token_id=3, sliding_window=5),
    "phi3_longrope": llama("phi3", pad_token_id=3, num_key_value_heads=3, hidden_size=48,
                           max_position_embeddings=48, original_max_position_embeddings=16,
                           rope_scaling=dict(type="longrope", **FACTORS)),
    "phi3_partial": llama("phi3", pad_token_id=3, hidden_size=60, partial_rotary_factor=0.8,
                          max_position_embeddings=48, original_max_position_embeddings=16,
                          tie_word_embeddings=True, rope_scaling=dict(type="longrope", **FACTORS)),
    "glm": llama("glm", pad_token_id=3, head_dim=8, rms_norm_eps=1e-3),
    "glm_whole": llama("glm", pad_token_id=3, head_dim=10, partial_rotary_factor=1.0,
                       attention_bias=False, tie_word_embeddings=True),
    "glm4": llama("glm4", pad_token_id=3, head_dim=8, attention_bias=False),
    # Written as the model's own files have it. Its padding is trained.
    "chatglm2": llama("glm", pad_token_id=None, head_dim=8, attention_bias=True),
    "chatglm2_ratio": llama("glm", pad_token_id=None, head_dim=12, attention_bias=False,
                            rope_theta=30000.0, num_key_value_heads=1),
}
# With experts. Few tokens choose nearly alike, so that rounding does not decide.
MODELS.update({
    "mixtral": llama("mixtral", num_local_experts=4, router_aux_loss_coef=0.3,
                     output_router_logits=True),
    "mixtral_windows": llama("mixtral", num_local_experts=3, num_experts_per_tok=3, head_dim=8,
                             sliding_window=5, tie_word_embeddings=True),
    "qwen2_moe": llama("qwen2_moe", num_experts=5, num_experts_per_tok=3, moe_intermediate_size=11,
                       shared_expert_intermediate_size=13, router_aux_loss_coef=0.3,
                       output_router_logits=True),
    "qwen2_moe_some": llama("qwen2_moe", num_experts=4, num_experts_per_tok=2,
                            moe_intermediate_size=11, shared_expert_intermediate_size=13,
                            norm_topk_prob=True, mlp_only_layers=[1]),
    "qwen3_moe": llama("qwen3_moe", head_dim=8, num_experts=6, num_experts_per_tok=2,
                       moe_intermediate_size=11, norm_topk_prob=True, router_aux_loss_coef=0.3,
                       output_router_logits=True),
    "qwen3_moe_some": llama("qwen3_moe", num_experts=4, num_experts_per_tok=4, attention_bias=True,
                            moe_intermediate_size=11, decoder_sparse_step=2),
    "glm4_moe": llama("glm4_moe", head_dim=8, n_routed_experts=6, num_experts_per_tok=2,
                      moe_intermediate_size=11, routed_scaling_factor=1.5, pad_token_id=3),
    "glm4_moe_groups": llama("glm4_moe", head_dim=8, n_routed_experts=6, num_experts_per_tok=3,
                             n_group=3, topk_group=2, n_shared_experts=2, use_qk_norm=True,
                             moe_intermediate_size=11, attention_bias=True, pad_token_id=3,
                             first_k_dense_replace=2),
})
# Beside PyTorch alone, of the models' own names (chatglm.py).
CHATGLM = dict(model_type="chatglm", architectures=["ChatGLMModel"], num_layers=3, padded_vocab_size=67,
               hidden_size=36, ffn_hidden_size=53, kv_channels=8, num_attention_heads=6, seq_length=48,
               layernorm_epsilon=1e-5, multi_query_attention=True, multi_query_group_num=2, add_qkv_bias=True,
               add_bias_linear=False, rmsnorm=True, post_layer_norm=True, original_rope=True, eos_token_id=2)
CHATGLM_MODELS = {
    "chatglm2_own": CHATGLM,
    "chatglm2_own_biases": {**CHATGLM, "add_bias_linear": True, "add_qkv_bias": False, "kv_channels": 12},
    "chatglm3_own_ratio": {**CHATGLM, "rope_ratio": 50, "multi_query_group_num": 3, "add_qkv_bias": False},
}
CHATGLM_NAMES = [("model.embed_tokens", "transformer.embedding.word_embeddings"),
                 ("model.layers", "transformer.encoder.layers"),
                 ("model.norm", "transformer.encoder.final_layernorm"),
                 ("lm_head", "transformer.output_layer"),
                 ("self_attn.o_proj", "self_attention.dense"),
                 ("self_attn.q_proj", "self_attention.query_key_value"),
                 ("gate_up_proj", "dense_h_to_4h"), ("down_proj", "dense_4h_to_h")]


def capped(module, query, key, value, attention_mask, scaling, softcap=None, **_):
    """Attention with the cap that the default one leaves out: zeros for a query that sees no key."""
    key, value = (t.repeat_interleave(module.num_key_value_groups, dim=1) for t in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    seen = torch.ones_like(scores).tril().bool() if attention_mask is None else attention_mask == 0
    weights = torch.where(seen, scores, -1e4).softmax(-1) * seen.any(-1, keepdim=True)
    return (weights @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("capped", capped)
AttentionMaskInterface.register("capped", eager_mask)


def by_expert(kind):
    """Version 5 holds all experts of a layer in one tensor; the files have one for each."""
    mixtral = kind == "mixtral"
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")

    def renamed(tensors):
        named = {}
        for name, tensor in tensors.items():
            whole = name
            if mixtral:
                whole = name.replace(".mlp.", ".block_sparse_moe.")
            if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
                named[whole] = tensor
                continue
            base = whole.rsplit(".", 1)[0]
            for number, own in enumerate(tensor):
                parts = [(down, own)]
                if name.endswith("gate_up_proj"):
                    parts = list(zip((gate, up), own.chunk(2)))
                named.update({f"{base}.{number}.{part}.weight": t for part, t in parts})
        return named

    return renamed


parity.run_glm_moe_in_float64()


def by_chatglm_names(tensors):
    """Those of GlmForCausalLM as ChatGLM2's files have them, q, k and v in one."""
    renamed = {}
    for name, tensor in tensors.items():
        if "k_proj" in name or "v_proj" in name:
            continue
        if "q_proj" in name:
            tensor = torch.cat([tensors[name.replace("q_proj", p)]
                                for p in ("q_proj", "k_proj", "v_proj")])
        for glm, chatglm in CHATGLM_NAMES:
            name = name.replace(glm, chatglm)
        renamed[name] = tensor
    return renamed


def parameters_of(config):
    """Of the rotations; version 4 has them beside the other keys."""
    return getattr(config, "rope_parameters", None) or config.to_dict()


def write_chatglm(folder, c):
    path = os.path.join(folder, "model.safetensors")
    save_file(by_chatglm_names(load_file(path)), path, {"format": "pt"})
    config = dict(model_type="chatglm", architectures=["ChatGLMModel"], num_layers=c.num_hidden_layers,
                  padded_vocab_size=c.vocab_size, hidden_size=c.hidden_size,
                  ffn_hidden_size=c.intermediate_size, kv_channels=c.head_dim,
                  num_attention_heads=c.num_attention_heads, seq_length=c.max_position_embeddings,
                  layernorm_epsilon=c.rms_norm_eps, multi_query_attention=True,
                  multi_query_group_num=c.num_key_value_heads, add_qkv_bias=c.attention_bias,
                  add_bias_linear=False, rmsnorm=True, post_layer_norm=True, original_rope=True,
                  rope_ratio=parameters_of(c)["rope_theta"] / 1e4,
                  bos_token_id=c.bos_token_id, eos_token_id=c.eos_token_id)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)


def make_inputs(config, kind, seed, rows=3):
    """Inputs of one kind of padding. Labels of padding, and a few others, are -100. LongRoPE and
    the dynamic scaling change with the longest row."""
    random = torch.Generator().manual_seed(seed)
    tokens = 23
    ids = torch.randint(4, config.vocab_size, (rows, tokens), generator=random)
    labels = torch.where(torch.rand(ids.shape, generator=random) < 0.2, -100, ids)
    if kind == "plain":
        return {"input_ids": ids, "labels": labels}
    lengths = torch.randint(2, tokens + 1, (rows, 1), generator=random)
    lengths[0] = tokens
    column = torch.arange(tokens)[None, :]
    if kind == "right":
        mask = column < lengths
    elif kind == "holes":
        mask = torch.rand(ids.shape, generator=random) > 0.2
        mask[:, 0] = True
    else:
        mask = column >= tokens - lengths
    labels = labels.masked_fill(~mask, -100)
    for row in range(rows):  # a padding token that sees no key predicts the first one
        first = int(mask[row].nonzero()[0])
        labels[row, first] = -100
    inputs = {"input_ids": ids, "labels": labels, "attention_mask": mask.long()}
    if kind == "left":
        inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
    return inputs


def reference(model, inputs):
    """Outputs and gradients in float64; the loss as transformers has it, with that of routers where
    the configuration says so."""
    model = model.double()
    out = model(**{n: t for n, t in inputs.items() if n != "labels"}, use_cache=False,
                output_hidden_states=True)
    loss = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1),
                                             inputs["labels"][:, 1:].flatten())
    own = {}
    if getattr(model.config, "output_router_logits", False):
        own = {"auxiliary.router_aux_loss": out.aux_loss,
               "auxiliary_loss": model.config.router_aux_loss_coef * out.aux_loss}
        loss = loss + own["auxiliary_loss"]
    outputs = {"logits": out.logits, "loss": loss, "last_hidden_state": out.hidden_states[-1],
               **own, **numbered(out.hidden_states)}
    gradients = gradients_of(model, loss)
    return {n: t.detach().clone() for n, t in outputs.items()}, gradients


def check_forward(report, program, folder, name, model, renamed=lambda tensors: tensors, theirs=None):
    """A query that sees no key is NaN in transformers' plain attention, and zero in its default."""
    other = "capped" if model.config.model_type == "gemma2" else "sdpa"
    theirs = theirs or folder
    default = type(model).from_pretrained(theirs, attn_implementation=other).eval()
    default.config._experts_implementation = "eager"
    for kind in ("plain", "right", "left", "holes"):
        inputs = make_inputs(model.config, kind, seed=7)
        outputs, gradients = reference(model if kind == "plain" else default, inputs)
        rows = inputs["attention_mask"].bool() if "attention_mask" in inputs else None
        got, got_gradients = forward(program, folder, inputs, flags=ALL_HIDDEN)
        report.error(f"{name} {kind} outputs", compare(got, outputs, rows), parity.TOLERANCE)
        report.error(f"{name} {kind} gradients", compare(got_gradients, renamed(gradients)),
                     parity.TOLERANCE)
        if kind == "plain":
            check_half(report, program, folder, theirs, name, inputs, outputs["logits"])


def check_half(report, program, folder, theirs, name, inputs, want):
    """Logits in bfloat16 are as near to those in float64 as transformers' are."""
    model = AutoModelForCausalLM.from_pretrained(theirs, attn_implementation="eager",
                                                 dtype=torch.bfloat16).eval()
    model.config._experts_implementation = "eager"
    with torch.no_grad():
        other = model(input_ids=inputs["input_ids"], use_cache=False).logits
    got, _ = forward(program, folder, inputs, "bfloat16", gradients=False)
    error = parity.relative_error
    if hasattr(model.config, "num_experts_per_tok"):
        error = median_error  # rounding gives a few tokens another expert, by chance
    ours, theirs = (error(t, want, 1) for t in (got["logits"], other))
    report(f"{name} plain bfloat16 logits", ours <= 1.2 * theirs, f"{ours:.2e}, {theirs:.2e}")


def median_error(got, want, _):
    """Of the tokens' relative errors."""
    difference = (got.double() - want.double()).norm(dim=-1)
    return (difference / want.double().norm(dim=-1)).median().item()


def check_generation(report, program, folder, name, model):
    model = model.double()
    model.config.output_router_logits = False  # its mask does not fit a cache
    random = torch.Generator().manual_seed(11)
    room = 16
    prompts = [torch.randint(4, model.config.vocab_size, (n,), generator=random) for n in (1, 4, 7)]
    for flags, options in (([], {}), (["--num-beams", "3"], dict(num_beams=3)),
                           (["--repetition-penalty", "1.3"], dict(repetition_penalty=1.3))):
        same = 0
        for prompt in prompts:
            want = model.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None],
                                  max_new_tokens=room, do_sample=False, pad_token_id=0, **options)
            printed = run(program, "generate", "--model", folder, "--ids",
                          ",".join(map(str, prompt.tolist())), "--max-new-tokens", room, *flags)
            got = [int(i) for i in printed.split(",")]
            same += got == want[0].tolist()
            if got != want[0].tolist():
                print("  transformers", want[0].tolist(), "\n  program     ", got)
        report(f"{name} generate {' '.join(flags) or 'greedy'}", same == len(prompts),
               f"{same} of {len(prompts)} texts the same")


def check_chatglm(report, args, folder, name, model):
    """transformers runs it as GLM."""
    with tempfile.TemporaryDirectory() as own:
        model.save_pretrained(own)
        write_chatglm(own, model.config)
        check_forward(report, args.tessera, own, name, model, by_chatglm_names, folder)
        check_generation(report, args.tessera, own, name, model)
        check_saving(report, args.resave, own, name, None, model)


def check_own_chatglm(report, args, name, keys):
    """The files that the published code writes: they have its table of frequencies, too."""
    model = randomise(chatglm.ChatGlm(keys), seed=5)
    tensors = {**model.state_dict(), "transformer.rotary_pos_emb.inv_freq": model.inverse_frequencies().float()}
    model = model.double()
    with tempfile.TemporaryDirectory() as folder:
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(keys, file)
        for kind in ("plain", "left"):
            inputs = make_inputs(SimpleNamespace(vocab_size=keys["padded_vocab_size"]), kind, seed=7)
            logits, loss, states = model(**inputs)
            outputs = {"logits": logits, "loss": loss, "last_hidden_state": states}
            rows = inputs["attention_mask"].bool() if "attention_mask" in inputs else None
            got, gradients = forward(args.tessera, folder, inputs)
            report.error(f"{name} {kind} outputs", compare(got, outputs, rows), parity.TOLERANCE)
            report.error(f"{name} {kind} gradients", compare(gradients, gradients_of(model, loss)),
                         parity.TOLERANCE)


def main():
    args = parity.arguments(__doc__,
                            extend=lambda parser: parser.add_argument("--only", default=""))
    print("transformers", transformers.__version__)
    report = Report()
    for seed, (name, (kind, keys)) in enumerate(MODELS.items()):
        if args.only not in name:
            continue
        if kind not in CONFIG_MAPPING:
            print(f"{name}: this transformers has no {kind}")
            continue
        config = CONFIG_MAPPING[kind](**keys)
        config._attn_implementation = "eager"
        config._experts_implementation = "eager"  # version 5 has others, not of float64
        norms = () if kind.startswith("gemma") else ("norm",)  # whose weights are near 0 there
        model = randomise(AutoModelForCausalLM.from_config(config), seed, norm_names=norms)
        for buffer_name, buffer in model.named_buffers():
            if "correction_bias" in buffer_name:
                buffer.copy_(torch.rand(buffer.shape, generator=torch.Generator().manual_seed(seed)))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            if name.startswith("chatglm2"):
                check_chatglm(report, args, folder, name, model)
                continue
            check_forward(report, args.tessera, folder, name, model, by_expert(kind))
            check_generation(report, args.tessera, folder, name, model)
            check_saving(report, args.resave, folder, name, type(model), model)
    for name, keys in CHATGLM_MODELS.items():
        if args.only in name:
            check_own_chatglm(report, args, name, keys)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
