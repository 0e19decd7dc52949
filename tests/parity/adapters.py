# SPDX-License-Identifier: Apache-2.0
"""Adapters against PEFT: its folders in the program, the program's in PEFT, and merging.

    pip install torch safetensors 'transformers==4.57.6' peft
    bazel build -c opt //tools:tessera //tests/parity:resave_adapter
    python tests/parity/adapters.py [--tessera BINARY] [--resave BINARY] [--train] [--only TEXT]

Random models of seven families carry random adapters that PEFT made and saved, of all kinds that it
makes of linear layers, embeddings, heads and whole modules. The program's logits with `--adapter`
are compared with those of PEFT in float64, so are those of the folder that `tessera merge` writes
(in transformers, too), of the adapter written again and loaded by PEFT, and what both write with a
prefix. Modules are called as in the transformers that is installed, 4 or 5. With `--train` ten
steps of each family's task, from an adapter that PEFT made, follow the losses of a loop in PyTorch,
in float64 there.
"""
import argparse
import json
import os
import struct
import sys
import tempfile
import zlib

import torch
import transformers
from peft import LoraConfig, PeftModel, PrefixTuningConfig, get_peft_model
from transformers import (AutoModelForCausalLM, AutoModelForImageClassification,
                          AutoModelForMaskedLM, AutoModelForSeq2SeqLM,
                          AutoModelForSequenceClassification, AutoModelForTokenClassification,
                          CONFIG_MAPPING)

from parity import (TOLERANCE, Report, compare, failure, forward, randomise, run,
                    run_glm_moe_in_float64)

run_glm_moe_in_float64()

NORMS = ("norm", "ln_", "LayerNorm")
LLAMA = dict(vocab_size=67, hidden_size=36, intermediate_size=53, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=48,
             bos_token_id=1, eos_token_id=2)
BERT = dict(vocab_size=53, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=47, max_position_embeddings=41)
NEW_NAMES = transformers.__version__.startswith("5")
BASES = {
    "gpt2": (AutoModelForCausalLM, "gpt2",
             dict(vocab_size=53, n_positions=41, n_embd=36, n_layer=2, n_head=3), ["c_attn"]),
    "llama": (AutoModelForCausalLM, "llama", LLAMA, ["q_proj", "v_proj"]),
    "qwen3": (AutoModelForCausalLM, "qwen3", dict(LLAMA, head_dim=8), ["k_proj", "down_proj"]),
    "gemma3": (AutoModelForCausalLM, "gemma3_text",
               dict(LLAMA, head_dim=8, sliding_window=5), ["q_proj", "o_proj"]),
    "bert": (AutoModelForSequenceClassification, "bert",
             dict(BERT, num_labels=3), ["query", "value"]),
    "t5": (AutoModelForSeq2SeqLM, "t5",
           dict(vocab_size=53, d_model=36, d_kv=7, d_ff=47, num_layers=2, num_heads=3,
                decoder_start_token_id=0), ["q", "v"]),
}
# Beside those of all kinds below.
MORE_BASES = {
    "llama_tied": (AutoModelForCausalLM, "llama", dict(LLAMA, tie_word_embeddings=True),
                   ["q_proj", "v_proj"]),
    "gemma2": (AutoModelForCausalLM, "gemma2", dict(LLAMA, head_dim=8, sliding_window=5),
               ["q_proj", "o_proj"]),
    "olmo2": (AutoModelForCausalLM, "olmo2", dict(LLAMA, pad_token_id=3), ["q_proj", "down_proj"]),
    "phi3": (AutoModelForCausalLM, "phi3", dict(LLAMA, pad_token_id=3),
             ["qkv_proj", "gate_up_proj"]),
    "glm": (AutoModelForCausalLM, "glm", dict(LLAMA, head_dim=8, pad_token_id=3),
            ["k_proj", "gate_up_proj"]),
    # Experts, and of transformers 4 the router, are layers like others there.
    "mixtral": (AutoModelForCausalLM, "mixtral",
                dict(LLAMA, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
                ["q_proj", "w1", "w2"]),
    "qwen2_moe": (AutoModelForCausalLM, "qwen2_moe",
                  dict(LLAMA, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=19,
                       shared_expert_intermediate_size=23, mlp_only_layers=[1]),
                  ["v_proj", "down_proj"]),
    "qwen3_moe": (AutoModelForCausalLM, "qwen3_moe",
                  dict(LLAMA, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=19,
                       head_dim=8), ["up_proj", "gate"]),
    "glm4_moe": (AutoModelForCausalLM, "glm4_moe",
                 dict(LLAMA, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=19,
                      n_shared_experts=2, head_dim=8, n_group=1, topk_group=1, pad_token_id=3),
                 ["gate_proj", "o_proj"]),
    "bert_mlm": (AutoModelForMaskedLM, "bert", BERT, ["query", "value"]),
    "bert_tok": (AutoModelForTokenClassification, "bert", dict(BERT, num_labels=5),
                 ["query", "value"]),
    "vit": (AutoModelForImageClassification, "vit",
            dict(image_size=16, patch_size=4, hidden_size=24, num_hidden_layers=2,
                 num_attention_heads=2, intermediate_size=31, num_labels=4),
            ["q_proj", "v_proj"] if NEW_NAMES else ["query", "value"]),
}
TASKS = {"bert": "SEQ_CLS", "bert_tok": "TOKEN_CLS"}  # for which PEFT saves the head, by two names
PREFIX_BASES = {
    **{name: BASES[name] for name in ("gpt2", "llama", "qwen3", "gemma3", "t5")},
    "qwen2": (AutoModelForCausalLM, "qwen2", LLAMA, None),
    "mistral": (AutoModelForCausalLM, "mistral", dict(LLAMA, sliding_window=9), None),
    # Layers of which some share their prefix.
    "t5_deep": (BASES["t5"][0], "t5", dict(BASES["t5"][2], num_layers=4), None),
}
KINDS = {
    "lora": {},
    "rslora": dict(use_rslora=True, r=5),
    "dora": dict(use_dora=True),
    "all_linear": dict(target_modules="all-linear"),
    "bias": dict(bias="lora_only"),
    "bias_all": dict(bias="all"),
    "patterns": dict(rank_pattern={".*1.*": 3}, alpha_pattern={".*0.*": 2}),
    "one_layer": dict(layers_to_transform=[1]),
}
# What else there is: the base, keys of the configuration, and beside them: save_embedding_layers;
# `changed`, the base's tables are not those of its folder; `whole`, it cannot be merged.
VARIANTS = [
    ("llama", dict(target_modules=["q_proj", "lm_head"])),
    ("llama", dict(target_modules=["lm_head"], use_dora=True, rank_pattern={"lm_head": 3})),
    ("llama", dict(target_modules=["q_proj", "embed_tokens"])),
    ("llama", dict(target_modules=["q_proj", "embed_tokens"], use_rslora=True)),
    ("llama", dict(target_modules=["q_proj", "embed_tokens", "lm_head"], use_dora=True)),
    ("llama", dict(target_modules=["embed_tokens"], alpha_pattern={"embed_tokens": 2})),
    ("llama", dict(target_modules=r".*(embed_tokens|layers\.1\..*(up|down)_proj)")),
    ("llama", dict(modules_to_save=["norm"])),
    ("llama", dict(modules_to_save=["lm_head"])),
    ("llama", dict(modules_to_save=["embed_tokens", "lm_head"])),
    ("llama", dict(modules_to_save=["mlp", "score", "nowhere"])),
    ("llama", dict(modules_to_save=["model.layers.1.mlp.down_proj"])),
    ("llama", dict(exclude_modules=["layers.0.self_attn.q_proj"])),
    ("llama", dict(exclude_modules=r".*\.2\..*", target_modules="all-linear")),
    ("llama", dict(layers_to_transform=[0, 2], layers_pattern="layers")),
    ("llama", dict(fan_in_fan_out=True)),
    ("llama", {}, dict(save_embedding_layers=True)),
    ("llama", {}, dict(save_embedding_layers=True, changed=True)),
    ("llama", dict(target_modules=["lm_head", "embed_tokens"]), dict(changed=True)),
    ("llama", dict(modules_to_save=["lm_head"]), dict(save_embedding_layers=True, changed=True)),
    ("llama_tied", {}),
    ("llama_tied", dict(target_modules=["q_proj", "lm_head"])),
    ("llama_tied", dict(target_modules=["q_proj", "lm_head"], use_dora=True)),
    ("llama_tied", dict(target_modules=["q_proj", "embed_tokens"])),
    ("llama_tied", dict(target_modules=["embed_tokens", "lm_head"])),
    ("llama_tied", dict(target_modules=["lm_head"]), dict(changed=True)),
    ("llama_tied", {}, dict(save_embedding_layers=True, changed=True)),
    ("llama_tied", dict(modules_to_save=["embed_tokens"])),
    ("llama_tied", dict(modules_to_save=["lm_head"])),
    ("llama_tied", dict(modules_to_save=["lm_head", "embed_tokens"])),
    ("llama_tied", dict(modules_to_save=["lm_head"], target_modules=["embed_tokens"])),
    ("llama_tied", dict(modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    ("llama_tied", dict(modules_to_save=["lm_head"], ensure_weight_tying=True)),
    ("llama_tied", dict(target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True)),
    ("llama_tied", dict(target_modules=["q_proj", "lm_head"], ensure_weight_tying=True)),
    ("qwen3", dict(target_modules=["lm_head", "q_proj"])),
    ("gemma3", dict(target_modules=["embed_tokens", "q_proj"])),
    *[(name, kind) for name in ("gemma2", "olmo2", "phi3", "glm",
                                *(() if NEW_NAMES else ("mixtral", "qwen2_moe", "qwen3_moe",
                                                        "glm4_moe")))
      for kind in ({}, dict(use_dora=True), dict(target_modules="all-linear"))],
    ("gpt2", dict(target_modules=["lm_head", "c_attn"])),
    ("gpt2", dict(target_modules=["wte", "c_proj"])),
    ("gpt2", dict(target_modules=["wte", "wpe", "c_attn"], use_dora=True)),
    ("gpt2", dict(target_modules=["wpe"])),
    ("gpt2", dict(fan_in_fan_out=False)),
    ("gpt2", dict(modules_to_save=["wte"])),
    ("gpt2", dict(modules_to_save=["ln_f", "wpe"])),
    ("gpt2", dict(modules_to_save=["lm_head"], bias="all")),
    ("bert", dict(modules_to_save=["pooler"])),
    ("bert", dict(target_modules=["query", "dense"])),
    ("bert", dict(target_modules=["word_embeddings", "position_embeddings",
                                  "token_type_embeddings"])),
    ("bert", dict(task_type=None, target_modules=["query", "classifier"], bias="lora_only")),
    ("bert", dict(modules_to_save=["LayerNorm"], bias="all")),
    ("bert_tok", {}),
    ("bert_tok", dict(bias="lora_only", use_dora=True)),
    ("bert_tok", dict(target_modules="all-linear", task_type=None)),
    ("bert_mlm", {}),
    ("bert_mlm", dict(target_modules="all-linear")),
    ("bert_mlm", dict(target_modules=["query", "word_embeddings"])),
    ("bert_mlm", dict(target_modules=["query", "decoder"])),
    ("bert_mlm", dict(target_modules=["query", "decoder"], bias="lora_only")),
    ("bert_mlm", dict(target_modules=["query", "decoder"], bias="all")),
    ("bert_mlm", dict(modules_to_save=["decoder"])),
    ("bert_mlm", dict(modules_to_save=["cls"])),
    ("bert_mlm", dict(modules_to_save=["transform"], bias="all")),
    ("bert_mlm", {}, dict(save_embedding_layers=True)),
    ("t5", dict(target_modules=["q", "lm_head"])),
    ("t5", dict(target_modules=["wi", "wo", "k"], use_dora=True)),
    ("t5", dict(modules_to_save=["final_layer_norm"])),
    ("t5", dict(modules_to_save=["lm_head"])),
    ("t5", dict(modules_to_save=["embed_tokens"]), dict(whole=True)),
    ("vit", dict(modules_to_save=["classifier"])),
    ("vit", dict(modules_to_save=["classifier"], use_dora=True, bias="all")),
    ("vit", dict(target_modules="all-linear")),
    ("vit", dict(modules_to_save=["layernorm"], bias="lora_only")),
    ("vit", dict(target_modules=r".*\.1\..*(dense|fc[12])", use_rslora=True)),
]
if NEW_NAMES:  # version 4 has one module for the two
    VARIANTS.append(("t5", dict(target_modules=["q", "embed_tokens"]), dict(whole=True)))
# What is refused, and the word that says so.
REFUSED = [
    ("llama", dict(lora_bias=True), "'lora_bias'"),
    ("llama", dict(target_parameters=["k_proj.weight"]), "'target_parameters'"),
    ("llama", dict(trainable_token_indices=[3, 5]), "'trainable_token_indices'"),
    ("t5", dict(target_modules=["q", "shared"]), "shared.lora_embedding_A"),
    ("t5", dict(modules_to_save=["shared"]), "shared.weight"),
    ("t5", dict(target_modules=["q", "relative_attention_bias"]), "relative_attention_bias"),
    ("vit", dict(target_modules=["projection"]), "projection"),
]


def inputs_of(name, config):
    random = torch.Generator().manual_seed(5)
    if name == "vit":
        return {"pixel_values": torch.randn(3, 3, 16, 16, generator=random)}
    tensors = {"input_ids": torch.randint(4, config.vocab_size, (3, 11), generator=random)}
    if name.startswith("t5"):
        tensors["decoder_input_ids"] = torch.randint(4, config.vocab_size, (3, 7), generator=random)
    return tensors


def greedy(model, prompt, count, encodes):
    """Greedy tokens from whole rows, `prompt` (or T5's start) in front; ends behind the end of text.

    Without a cache: with one, generate() of PEFT continues T5's prefix otherwise than its own
    forward() does (the tokens' distances begin anew).
    """
    ids = [model.config.decoder_start_token_id] if encodes else list(prompt)
    for _ in range(count):
        rows = {"decoder_input_ids" if encodes else "input_ids": torch.tensor([ids])}
        if encodes:
            rows["input_ids"] = torch.tensor([prompt])
        with torch.no_grad():
            ids.append(model(**rows).logits[0, -1].argmax().item())
        if ids[-1] == model.config.eos_token_id:
            break
    return ids


def randomise_adapter(model, seed):
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.requires_grad:
                start = p if "magnitude" in name else torch.zeros_like(p)
                p.copy_(start + 0.1 * torch.randn(p.shape, generator=random))


def base_of(name, seed):
    cls, model_type, fields, targets = {**BASES, **MORE_BASES}[name]
    config = CONFIG_MAPPING[model_type](**fields)
    config._attn_implementation = "eager"
    return cls, randomise(cls.from_config(config), seed, norm_names=NORMS), targets


def made_by_peft(base, name, targets, keys, seed, adapter, changed=False, **saving):
    """The model with an adapter, which is saved; `changed` stands in for a base that was trained."""
    keys = dict(r=4, lora_alpha=6, target_modules=targets, fan_in_fan_out=name == "gpt2",
                task_type=TASKS.get(name)) | keys
    model = get_peft_model(base, LoraConfig(**keys)).eval()
    randomise_adapter(model, seed + 1)
    if changed:
        random = torch.Generator().manual_seed(seed + 2)
        with torch.no_grad():
            for n, p in model.named_parameters():
                if p.dim() == 2 and len(p) == base.config.vocab_size and not p.requires_grad:
                    p.add_(0.1 * torch.randn(p.shape, generator=random))
    model.save_pretrained(adapter, **saving)
    return model


def check(report, program, resave, name, what, keys, seed, whole=False, **making):
    cls, base, targets = base_of(name, seed)
    config, what = base.config, f"{name} {what}"
    with tempfile.TemporaryDirectory() as work:
        folder, adapter, merged, again = (os.path.join(work, n)
                                          for n in ("base", "adapter", "merged", "again"))
        base.save_pretrained(folder)
        model = made_by_peft(base, name, targets, keys, seed, adapter, **making).double()
        inputs = inputs_of(name, config)
        wide = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
        with torch.no_grad():
            want = {"logits": model(**wide).logits}
            plain = cls.from_pretrained(folder, attn_implementation="eager").eval().double()
            moved = (plain(**wide).logits - want["logits"]).abs().max().item()
        report(f"{what} moves the logits", moved > 1e-3, f"{moved:.1e}")
        # transformers computes rotary angles and T5's and Llama's norms in float32, whatever the dtype.
        exact = 1e-12 if name.startswith(("gpt2", "bert")) else 1e-6
        for dtype, tolerance in (("float32", 2e-6), ("float64", exact)):
            got, _ = forward(program, folder, inputs, dtype, gradients=False,
                             flags=("--adapter", adapter))
            report.error(f"{what} {dtype} adapter", compare({"logits": got["logits"]}, want),
                         tolerance)
        run(resave, folder, adapter, again)
        theirs = PeftModel.from_pretrained(cls.from_pretrained(folder, attn_implementation="eager"),
                                           again).eval().double()
        with torch.no_grad():
            report.error(f"{what} written again, in PEFT",
                         compare({"logits": theirs(**wide).logits}, want), 2e-6)
        if whole:
            line = failure(program, "merge", folder, adapter, merged)
            report(f"{what} is not merged", "has one weight for with another module" in line, line)
            return
        run(program, "merge", folder, adapter, merged)
        got, _ = forward(program, merged, inputs, gradients=False)
        report.error(f"{what} merged", compare({"logits": got["logits"]}, want), 2e-6)
        theirs = cls.from_pretrained(merged, attn_implementation="eager").eval().double()
        with torch.no_grad():
            report.error(f"{what} merged, in transformers",
                         compare({"logits": theirs(**wide).logits}, want), 2e-6)


def check_refused(report, program, name, keys, word, seed):
    _, base, targets = base_of(name, seed)
    with tempfile.TemporaryDirectory() as work:
        folder, adapter = (os.path.join(work, n) for n in ("base", "adapter"))
        base.save_pretrained(folder)
        made_by_peft(base, name, targets, keys, seed, adapter)
        line = failure(program, "merge", folder, adapter, os.path.join(work, "merged"))
        report(f"{name} {keys} is refused", adapter in line and word in line,
               line.replace(work, ""))


def check_prefix(report, program, name, projected, seed):
    """What PEFT makes and writes, in the program."""
    cls, model_type, fields, _ = PREFIX_BASES[name]
    config = CONFIG_MAPPING[model_type](**fields)
    config._attn_implementation = "eager"
    base = randomise(cls.from_config(config), seed, norm_names=NORMS)
    encodes = name.startswith("t5")
    keys = dict(task_type="SEQ_2_SEQ_LM" if encodes else "CAUSAL_LM", num_virtual_tokens=5,
                prefix_projection=projected, encoder_hidden_size=13)
    if encodes:  # PEFT takes heads to divide the width
        keys["token_dim"] = config.num_heads * config.d_kv
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as work:
        folder, adapter = (os.path.join(work, n) for n in ("base", "adapter"))
        base.save_pretrained(folder)
        model = get_peft_model(base, PrefixTuningConfig(**keys)).eval()
        model.save_pretrained(adapter)
        inputs = inputs_of(name, config)
        what = f"{name} prefix{', projected' if projected else ''}"
        model = model.double()
        with torch.no_grad():
            want = {"logits": model(**inputs).logits}
            with model.disable_adapter():
                moved = (model(**inputs).logits - want["logits"]).abs().max().item()
        report(f"{what} moves the logits", moved > 1e-3, f"{moved:.1e}")
        for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-6)):
            got, _ = forward(program, folder, inputs, dtype, gradients=False,
                             flags=("--adapter", adapter))
            report.error(f"{what} {dtype}", compare({"logits": got["logits"]}, want), tolerance)
        prompt = [5, 9, 17]
        theirs = greedy(model, prompt, 8, encodes)
        theirs = theirs[1:] if encodes else theirs  # without the start
        mine = run(program, "generate", "--model", folder, "--adapter", adapter, "--ids",
                   ",".join(map(str, prompt)), "--max-new-tokens", 8)
        mine = [int(token) for token in mine.replace(",", " ").split()]
        both = min(len(mine), len(theirs))  # without an end-of-text token
        report(f"{what} generates", both > len(prompt) and mine[:both] == theirs[:both], f"{mine} {theirs}")


def check_trained(report, program, name, kind, flags):
    """What the program trains and writes, PEFT loads."""
    cls, model_type, fields, _ = {**BASES, **PREFIX_BASES}[name]
    config = CONFIG_MAPPING[model_type](**{**fields, "vocab_size": 259})
    config._attn_implementation = "eager"
    base = randomise(cls.from_config(config), 3, norm_names=NORMS)
    with tempfile.TemporaryDirectory() as work:
        folder, out, text = (os.path.join(work, n) for n in ("base", "out", "text.txt"))
        base.save_pretrained(folder)
        with open(text, "w") as file:
            file.writelines(f"line {i % 17} of many\n" for i in range(300))
        lengths = ("--seq-len", 24)
        if name.startswith("t5"):
            lengths = ("--task", "seq2seq", "--target-data", text, "--max-source-length", 24,
                       "--max-target-length", 24)
        run(program, "train", folder, "--data", text, "--out", out, "--tokenizer", "byte",
            *lengths, "--max-steps", 8, "--lr", "1e-2", *flags)
        adapter = os.path.join(out, "model")
        inputs = inputs_of(name, config)
        got, _ = forward(program, folder, inputs, gradients=False, flags=("--adapter", adapter))
        model = PeftModel.from_pretrained(base, adapter).eval().double()
        with torch.no_grad():
            want = {"logits": model(**inputs).logits}
            with model.disable_adapter():
                moved = (model(**inputs).logits - want["logits"]).abs().max().item()
        report.error(f"{name} {kind} trained here, in PEFT", compare({"logits": got["logits"]}, want),
                     1e-6)
        report(f"{name} {kind} training moved the logits", moved > 1e-3, f"{moved:.1e}")


# --- Training ------------------------------------------------------------------------------------

STEPS, LR, ROWS, EOS = 10, 3e-3, 6, 256


def put(work, name, content):
    path = os.path.join(work, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def padded(rows, value):
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def mask_of(rows):
    return padded([[1] * len(row) for row in rows], 0)


def language_batch(work):
    """Documents as bytes, each with its end."""
    texts = [f"line {i} of {'many ' * (i % 3)}lines" for i in range(ROWS)]
    data = put(work, "text.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in texts))
    rows = [list(t.encode()) + [EOS] for t in texts]
    flags = ("--tokenizer", "byte", "--seq-len", 40, "--packing", "false")
    return data, flags, dict(input_ids=padded(rows, 0), attention_mask=mask_of(rows),
                             labels=padded(rows, -100))


def review_batch(work):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "was"]
    tokenizer = os.path.dirname(put(work, "words/vocab.txt", "\n".join(words) + "\n"))
    put(work, "words/tokenizer_config.json", json.dumps({"tokenizer_class": "BertTokenizer"}))
    texts = ["the film was good", "bad film", "the the film was bad", "good", "film was good",
             "was the film bad"]
    labels = ["good" if "good" in t else "bad" for t in texts]
    lines = "".join(f"{t}\t{l}\n" for t, l in zip(texts, labels))
    data = put(work, "reviews.tsv", "sentence\tlabel\n" + lines)
    rows = [[2, *(words.index(w) for w in t.split()), 3] for t in texts]
    return data, ("--tokenizer", tokenizer), dict(
        input_ids=padded(rows, 0), attention_mask=mask_of(rows),
        labels=torch.tensor([int(l == "good") for l in labels]))


def translation_batch(work):
    sources = [f"say {i}{'!' * (i % 3)}" for i in range(ROWS)]
    targets = [f"{'one ' * (i % 4)}two" for i in range(ROWS)]
    lines = "".join(f"{s}\t{t}\n" for s, t in zip(sources, targets))
    data = put(work, "pairs.tsv", "source\ttarget\n" + lines)
    rows = [list(s.encode()) + [EOS] for s in sources]
    labels = [list(t.encode()) + [EOS] for t in targets]
    flags = ("--tokenizer", "byte", "--task", "seq2seq", "--source-column", "source",
             "--target-column", "target")
    return data, flags, dict(input_ids=padded(rows, 0), attention_mask=mask_of(rows),
                             decoder_input_ids=padded([[0] + row[:-1] for row in labels], 0),
                             labels=padded(labels, -100))


def png(pixels):
    """Of [H, W, 3] uint8."""
    height, width, _ = pixels.shape
    raw = b"".join(b"\0" + pixels[y].numpy().tobytes() for y in range(height))

    def chunk(kind, body):
        return (struct.pack(">I", len(body)) + kind + body
                + struct.pack(">I", zlib.crc32(kind + body)))

    header = chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0))
    return (b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def picture_batch(work):
    random = torch.Generator().manual_seed(9)
    pictures = torch.randint(0, 256, (ROWS, 16, 16, 3), generator=random, dtype=torch.uint8)
    names = ["bad", "good"]
    for i, picture in enumerate(pictures):
        put(work, f"pictures/{names[i % 2]}/{i}.png", png(picture))
    values = (pictures.permute(0, 3, 1, 2).double() / 255 - 0.5) / 0.5
    return os.path.join(work, "pictures"), (), dict(
        pixel_values=values, labels=torch.tensor([i % 2 for i in range(ROWS)]))


LABELS = dict(id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})
BYTES = dict(vocab_size=259)
TRAINED = {
    "gpt2": ({**BASES["gpt2"][2], **BYTES}, language_batch),
    "llama": ({**LLAMA, **BYTES}, language_batch),
    "bert": ({**BASES["bert"][2], **LABELS, "vocab_size": 10, "num_labels": 2}, review_batch),
    "t5": ({**BASES["t5"][2], **BYTES}, translation_batch),
    "vit": (dict(image_size=16, patch_size=4, hidden_size=24, num_hidden_layers=2,
                 num_attention_heads=2, intermediate_size=31, **LABELS), picture_batch),
}
BASES_OF_TRAINING = {**BASES, "vit": (AutoModelForImageClassification, "vit", {},
                                      ["query", "value"])}


def check_training(report, program, name, kind, seed):
    """Ten steps on all rows at once, so that their order does not matter."""
    cls, model_type, _, targets = BASES_OF_TRAINING[name]
    fields, batch_of = TRAINED[name]
    config = CONFIG_MAPPING[model_type](**fields)
    config._attn_implementation = "eager"
    base = randomise(cls.from_config(config), seed, norm_names=NORMS)
    keys = dict(r=4, lora_alpha=6, target_modules=targets, fan_in_fan_out=name == "gpt2",
                use_rslora=kind == "rslora", use_dora=kind == "dora")
    if name in ("bert", "vit"):
        keys["modules_to_save"] = ["classifier"]
    with tempfile.TemporaryDirectory() as work:
        folder, adapter, out = (os.path.join(work, n) for n in ("base", "adapter", "out"))
        base.save_pretrained(folder)
        if name == "vit":
            put(folder, "preprocessor_config.json", json.dumps(dict(
                do_resize=True, do_rescale=True, do_normalize=True, image_mean=[0.5] * 3,
                image_std=[0.5] * 3, size=dict(height=16, width=16))))
        model = get_peft_model(base, LoraConfig(**keys)).eval()
        randomise_adapter(model, seed + 1)
        model.save_pretrained(adapter)
        data, flags, batch = batch_of(work)
        run(program, "train", folder, "--data", data, "--out", out, "--adapter", adapter,
            "--batch-size", ROWS, "--max-steps", STEPS, "--lr", LR, "--lr-schedule", "constant",
            "--warmup-steps", 0, "--weight-decay", 0, "--max-grad-norm", 0, "--betas", "0.9,0.999",
            "--eps", "1e-8", "--val-fraction", 0, "--log-interval", 1, "--dropout", 0, *flags)
        with open(os.path.join(out, "metrics.jsonl")) as file:
            got = [json.loads(line)["loss"] for line in file]
        model = model.double()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
        want = []
        for _ in range(STEPS):
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            want.append(loss.item())
        error = max(abs(g - w) / abs(w) for g, w in zip(got, want, strict=True))
        report.error(f"{name} {kind} losses of {STEPS} steps", (error, ""), 1e-5)
        report(f"{name} {kind} the loss moved", abs(want[-1] - want[0]) > 1e-3,
               f"{want[0]:.4f} to {want[-1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--resave", default="bazel-bin/tests/parity/resave_adapter")
    parser.add_argument("--train", action="store_true", help="follow losses of training instead")
    parser.add_argument("--only", default="", help="variants whose names have this, and no prefixes")
    args = parser.parse_args()
    torch.set_num_threads(2)
    report = Report()
    if args.train:
        for i, name in enumerate(TRAINED):
            for j, kind in enumerate(("lora", "rslora", "dora")):
                check_training(report, args.tessera, name, kind, 10 * i + j)
        return report.finish()
    variants = [(name, kind, keys, {}) for name in BASES for kind, keys in KINDS.items()]
    for name, keys, *more in VARIANTS:
        making = more[0] if more else {}
        words = ", ".join(f"{k} {v}" for k, v in {**keys, **making}.items())
        variants.append((name, words or "lora", keys, making))
    variants = [v for v in variants if args.only in f"{v[0]} {v[1]}"]
    for i, (name, what, keys, making) in enumerate(variants):
        check(report, args.tessera, args.resave, name, what, keys, i, **making)
    print(len(variants), "variants")
    for name, keys, word in REFUSED:
        check_refused(report, args.tessera, name, keys, word, 3)
    if args.only:
        return report.finish()
    for i, name in enumerate(PREFIX_BASES):
        for projected in (False, True):
            check_prefix(report, args.tessera, name, projected, 1000 + i)
            flags = ("--prefix-projection",) if projected else ()
            check_trained(report, args.tessera, name, "prefix",
                          ("--adapter", "prefix", "--pre-seq-len", 5, *flags))
    for name in ("gpt2", "llama", "qwen3", "gemma3"):
        for kind, flags in (("lora", ()), ("rslora", ("--lora-r", 5)), ("dora", ()),
                            ("lora", ("--target-modules", "all-linear")),
                            ("lora", ("--adapter-bias", "all"))):
            check_trained(report, args.tessera, name, kind, ("--adapter", kind, *flags))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
