#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning of small models from the command line, on Chinese instructions.

    bazel build //tools:tessera
    python3 bench/finetune.py --data ../shared/data/zh --out runs/finetune

Needs no package of Python's: it writes the files that the commands read, and shows each command
and what it ends with. The data are Alpaca's instructions in Chinese (open-chinese/alpaca-chinese-dataset, parts 0 to 2,
objects with instruction, input, output and en_output) and a file of Tang poems (chinese-poetry).

    base       a Llama on running text: poems, and both languages' answers of parts 0 and 1
    chat       conversations of part 2, LoRA and the whole model, from that base
    preference DPO on pairs made from part 2: the Chinese answer is chosen, the English one rejected
    prefix     a ChatGLM that learnt parts 0 and 1 whole, then a prefix on part 2 by the command
               line of ChatGLM's ptuning/main.py

The last tenth of part 2 is held out everywhere.
"""

import argparse
import glob
import json
import os
import shlex
import subprocess
import time

# Turns as Llama 2 has them, without its system block: its tokenizer's pieces are all that it needs.
TEMPLATE = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}[INST] \
{{ message['content'] }} [/INST]{% elif message['role'] == 'assistant' %}{% generation %} \
{{ message['content'] }}{{ eos_token }}{% endgeneration %}{% else %}\
{{ raise_exception('only user and assistant speak here') }}{% endif %}{% endfor %}"""
LLAMA = {"model_type": "llama", "vocab_size": 8000, "hidden_size": 256, "intermediate_size": 688,
         "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
         "bos_token_id": 1, "eos_token_id": 2}
QUESTIONS = ["给出保持健康的三个建议。", "写一首关于春天的短诗。", "解释什么是机器学习。"]


def tessera(options, *arguments, show=4, stdin=None):
    words = [str(word) for word in arguments]
    print("\n$ tessera " + " ".join(map(shlex.quote, words)), flush=True)
    begin = time.time()
    done = subprocess.run([options.tessera, *words], capture_output=True, text=True, input=stdin)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines() or [""]
    print("\n".join(lines[-show:]) + f"\n({time.time() - begin:.0f} s)", flush=True)
    return done.stdout


def write(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False))
            out.write("\n")


def prepare(options, at):
    def part(n):
        with open(f"{options.data}/instruct/alpaca_chinese_part_{n}.json", encoding="utf-8") as file:
            return [row for row in json.load(file) if row["output"].strip()]

    known, new = part(0) + part(1), part(2)
    cut = len(new) - len(new) // 10
    texts = [text for row in known for text in (
        f"{row['instruction']}\n{row['output']}", f"{row['en_instruction']}\n{row['en_output']}")]
    for path in sorted(glob.glob(f"{options.data}/poems/*.json"))[:1]:
        with open(path, encoding="utf-8") as file:
            texts += ["\n".join([poem["title"], *poem["paragraphs"]]) for poem in json.load(file)]
    write(at("text.jsonl"), [{"text": text} for text in texts])

    def asked(row):
        return "\n".join(filter(None, [row["instruction"], row["input"]]))

    def instruction(row):
        return {"prompt": asked(row), "response": row["output"]}

    def chat(row):
        return {"messages": [{"role": "user", "content": asked(row)},
                             {"role": "assistant", "content": row["output"]}]}

    def pair(row):
        prompt = [{"role": "user", "content": asked(row)}]
        return {"prompt": prompt,
                "chosen": [{"role": "assistant", "content": row["output"]}],
                "rejected": [{"role": "assistant", "content": row["en_output"]}]}

    write(at("known.jsonl"), map(instruction, known))
    # Short enough for a row in either language.
    both = [row for row in new if row["en_output"].strip() and len(row["en_output"]) < 300 and
            len(asked(row) + row["output"]) < 120]
    for name, rows, make in (("instructions", new, instruction), ("chat", new, chat)):
        write(at(name + ".jsonl"), map(make, rows[:cut]))
        write(at(name + "_held_out.jsonl"), map(make, rows[cut:]))
    write(at("pairs.jsonl"), map(pair, both[:-len(both) // 10]))
    write(at("pairs_held_out.jsonl"), map(pair, both[-len(both) // 10:]))


def curve(run, keys):
    """The rows of metrics.jsonl that have all of `keys`, as a table."""
    rows = [json.loads(line) for line in open(run + "/metrics.jsonl", encoding="utf-8")]
    rows = [row for row in rows if all(key in row for key in keys)]
    print("\n| step | " + " | ".join(keys) + " |\n|" + "---|" * (len(keys) + 1))
    step = max(1, len(rows) // 12)
    for row in rows[::-1][::step][::-1]:
        print(f"| {row['step']} | " + " | ".join(f"{row[key]:.3f}" for key in keys) + " |")


def answers(options, *model):
    for question in QUESTIONS:
        tessera(options, "generate", *model, "--chat", "--messages", "-", "--max-new-tokens", 60,
                "--temperature", 0.7, "--top-k", 40, "--seed", 1, show=12,
                stdin=json.dumps([{"role": "user", "content": question}], ensure_ascii=False))


def base(options, at):
    tessera(options, "train-tokenizer", "--input", at("text.jsonl"), "--output", at("base"),
            "--family", "llama", "--type", "bpe", "--vocab-size", LLAMA["vocab_size"],
            "--character-coverage", 0.99)
    with open(at("base/config.json"), "w", encoding="utf-8") as file:
        json.dump(LLAMA, file)
    with open(at("base/chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(TEMPLATE)
    tessera(options, "train", at("base"), "--data", at("text.jsonl"), "--out", at("text"),
            "--seq-len", 256, "--batch-size", 4, "--epochs", options.epochs, "--lr", 2e-3,
            "--warmup-steps", 50, "--eval-interval", 200, "--eval-batches", 8, *options.more)
    curve(at("text"), ["val_loss"])


def chat(options, at):
    shared = ["--task", "chat", "--data", at("chat.jsonl"), "--val-data", at("chat_held_out.jsonl"),
              "--packing", "true", "--seq-len", 256, "--batch-size", 8, "--epochs", 4,
              "--long-samples", "cut", "--eval-interval", 20, "--warmup-steps", 10, *options.more]
    model = at("text/model")
    tessera(options, "train", model, "--out", at("chat_full"), "--lr", 3e-4, *shared)
    curve(at("chat_full"), ["val_loss"])
    tessera(options, "train", model, "--out", at("chat_lora"), "--adapter", "lora", "--lora-r", 16,
            "--lora-alpha", 32, "--target-modules", "all-linear", "--lr", 2e-3, *shared)
    curve(at("chat_lora"), ["val_loss"])
    answers(options, "--model", at("chat_full/model"))
    answers(options, "--model", model, "--adapter", at("chat_lora/model"))


def preference(options, at):
    tessera(options, "train", at("chat_full/model"), "--task", "preference", "--data", at("pairs.jsonl"),
            "--val-data", at("pairs_held_out.jsonl"), "--out", at("dpo"), "--adapter", "lora",
            "--lora-r", 16, "--lora-alpha", 32, "--target-modules", "all-linear", "--beta", 0.1,
            "--batch-size", 4, "--max-steps", 120, "--lr", 2e-4, "--eval-interval", 20,
            "--log-interval", 10, *options.more)
    curve(at("dpo"), ["rewards/margins", "rewards/accuracies"])
    curve(at("dpo"), ["val_rewards/margins", "val_rewards/accuracies"])


def prefix(options, at):
    tessera(options, "train-tokenizer", "--input", at("known.jsonl"), "--json-key", "prompt",
            "--json-key", "response", "--output", at("chatglm"), "--family", "chatglm",
            "--vocab-size", 6000)
    tessera(options, "train", "chatglm-tiny", "--tokenizer", at("chatglm"), "--data",
            at("known.jsonl"), "--val-data", at("instructions_held_out.jsonl"), "--out",
            at("chatglm_base"), "--max-source-length", 64, "--max-target-length", 64,
            "--batch-size", 16, "--epochs", 8, "--lr", 1e-3, "--eval-interval", 200, *options.more)
    curve(at("chatglm_base"), ["val_loss"])
    tessera(options, "train", "--do_train", "--train_file", at("instructions.jsonl"),
            "--validation_file", at("instructions_held_out.jsonl"), "--prompt_column", "prompt",
            "--response_column", "response", "--overwrite_cache", "--model_name_or_path",
            at("chatglm_base/model"), "--output_dir", at("chatglm_pt"), "--overwrite_output_dir",
            "--max_source_length", 64, "--max_target_length", 64, "--per_device_train_batch_size",
            1, "--per_device_eval_batch_size", 1, "--gradient_accumulation_steps", 16,
            "--predict_with_generate", "--max_steps", 200, "--logging_steps", 10, "--save_steps",
            100, "--eval_steps", 50, "--learning_rate", 2e-2, "--pre_seq_len", 128, show=12)
    curve(at("chatglm_pt"), ["val_loss"])


STEPS = {"base": base, "chat": chat, "preference": preference, "prefix": prefix}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--data", required=True, help="folder with instruct/ and poems/")
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", default=6, help="passes of the base over its text")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("more", nargs="*", help="flags for every training, behind --")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)

    def at(name):
        return os.path.join(options.out, name)

    prepare(options, at)
    for step in options.steps:
        print(f"\n## {step}")
        STEPS[step](options, at)


if __name__ == "__main__":
    main()
