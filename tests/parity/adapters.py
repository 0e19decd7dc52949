"""Adapters against PEFT: its folders in the program, the program's in PEFT, and merging.

    pip install torch safetensors 'transformers==4.57.6' peft
    bazel build -c opt //tools:tessera
    python tests/parity/adapters.py [--tessera BINARY]

Random models of five families carry random adapters that PEFT made and saved. The program's logits
with `--adapter` are compared with those of PEFT in float64, so are those of the folder that
`tessera merge` writes (in transformers, too).
"""
import argparse
import os
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (AutoModelForCausalLM, AutoModelForSeq2SeqLM,
                          AutoModelForSequenceClassification, CONFIG_MAPPING)

from parity import TOLERANCE, Report, compare, forward, randomise, run

NORMS = ("norm", "ln_", "LayerNorm")
LLAMA = dict(vocab_size=67, hidden_size=36, intermediate_size=53, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=48,
             bos_token_id=1, eos_token_id=2)
BASES = {
    "gpt2": (AutoModelForCausalLM, "gpt2",
             dict(vocab_size=53, n_positions=41, n_embd=36, n_layer=2, n_head=3), ["c_attn"]),
    "llama": (AutoModelForCausalLM, "llama", LLAMA, ["q_proj", "v_proj"]),
    "qwen3": (AutoModelForCausalLM, "qwen3", dict(LLAMA, head_dim=8), ["k_proj", "down_proj"]),
    "bert": (AutoModelForSequenceClassification, "bert",
             dict(vocab_size=53, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                  intermediate_size=47, max_position_embeddings=41, num_labels=3),
             ["query", "value"]),
    "t5": (AutoModelForSeq2SeqLM, "t5",
           dict(vocab_size=53, d_model=36, d_kv=7, d_ff=47, num_layers=2, num_heads=3,
                decoder_start_token_id=0), ["q", "v"]),
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


def inputs_of(name, config):
    random = torch.Generator().manual_seed(5)
    tensors = {"input_ids": torch.randint(4, config.vocab_size, (3, 11), generator=random)}
    if name == "t5":
        tensors["decoder_input_ids"] = torch.randint(4, config.vocab_size, (3, 7), generator=random)
    return tensors


def randomise_adapter(model, seed):
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.requires_grad:
                start = p if "magnitude" in name else torch.zeros_like(p)
                p.copy_(start + 0.1 * torch.randn(p.shape, generator=random))


def check(report, program, name, kind, seed):
    cls, model_type, fields, targets = BASES[name]
    config = CONFIG_MAPPING[model_type](**fields)
    config._attn_implementation = "eager"
    base = randomise(cls.from_config(config), seed, norm_names=NORMS)
    keys = dict(r=4, lora_alpha=6, target_modules=targets, fan_in_fan_out=name == "gpt2")
    keys.update(KINDS[kind])
    if name == "bert":
        keys["modules_to_save"] = ["classifier"]
    with tempfile.TemporaryDirectory() as work:
        folder, adapter, merged = (os.path.join(work, n) for n in ("base", "adapter", "merged"))
        base.save_pretrained(folder)
        model = get_peft_model(base, LoraConfig(**keys)).eval()
        randomise_adapter(model, seed + 1)
        model.save_pretrained(adapter)
        inputs = inputs_of(name, config)
        with torch.no_grad():
            want = {"logits": model.double()(**inputs).logits}
        # transformers computes rotary angles and T5's and Llama's norms in float32, whatever the dtype.
        exact = 1e-12 if name in ("gpt2", "bert") else 1e-6
        for dtype, tolerance in (("float32", 1e-6), ("float64", exact)):
            got, _ = forward(program, folder, inputs, dtype, gradients=False,
                             flags=("--adapter", adapter))
            report.error(f"{name} {kind} {dtype} adapter", compare({"logits": got["logits"]}, want),
                         tolerance)
        run(program, "merge", folder, adapter, merged)
        got, _ = forward(program, merged, inputs, gradients=False)
        report.error(f"{name} {kind} merged", compare({"logits": got["logits"]}, want), 1e-6)
        theirs = cls.from_pretrained(merged, attn_implementation="eager").eval().double()
        with torch.no_grad():
            report.error(f"{name} {kind} merged, in transformers",
                         compare({"logits": theirs(**inputs).logits}, want), 1e-6)


def check_trained(report, program, name, kind, flags):
    """What the program trains and writes, PEFT loads."""
    cls, model_type, fields, _ = BASES[name]
    config = CONFIG_MAPPING[model_type](**{**fields, "vocab_size": 259})
    config._attn_implementation = "eager"
    base = randomise(cls.from_config(config), 3, norm_names=NORMS)
    with tempfile.TemporaryDirectory() as work:
        folder, out, text = (os.path.join(work, n) for n in ("base", "out", "text.txt"))
        base.save_pretrained(folder)
        with open(text, "w") as file:
            file.writelines(f"line {i % 17} of many\n" for i in range(300))
        run(program, "train", folder, "--data", text, "--out", out, "--tokenizer", "byte",
            "--seq-len", 24, "--max-steps", 8, "--lr", "1e-2", *flags)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    args = parser.parse_args()
    torch.set_num_threads(2)
    report = Report()
    for i, name in enumerate(BASES):
        for j, kind in enumerate(KINDS):
            check(report, args.tessera, name, kind, 10 * i + j)
    for name in ("gpt2", "llama", "qwen3"):
        for kind, flags in (("lora", ()), ("rslora", ("--lora-r", 5)), ("dora", ()),
                            ("lora", ("--target-modules", "all-linear")),
                            ("lora", ("--adapter-bias", "all"))):
            check_trained(report, args.tessera, name, kind, ("--adapter", kind, *flags))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
