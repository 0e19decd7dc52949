# SPDX-License-Identifier: Apache-2.0
"""Texts by the tokenizers of GGUF files, in the program's ids and in llama.cpp's.

    pip install torch safetensors transformers tokenizers llama-cpp-python gguf
    bazel build -c opt //tools:tessera
    python tests/parity/gguf_tokens.py [--tessera BINARY] [--only NAME]

One byte-level BPE, whose merges cross words, digits and signs, stands in a file under each name of
`tokenizer.ggml.pre`. Ends with 1 where the ids of a text differ, but for names whose patterns
llama.cpp has in another form: there Hugging Face's tokenizers decides.
"""
import json
import os
import random
import sys
import tempfile

import gguf
import llama_cpp
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

import parity

NAMES = """gpt-2 phi-2 mellum jais granite-docling llama-bpe llama3 falcon3 pixtral jina-v5-nano glm4 glm5 minicpm5
dbrx smaug-bpe chatglm-bpe qwen2 megrez stablelm2 deepseek-r1-qwen solar-open grok-2 qwen35 smollm starcoder mellum2
gpt-4o llama4 kanana2 talkie minimax-m2 tekken seed-coder deepseek-v3 hunyuan-dense joyai-llm hy_v4 deepseek-llm
deepseek-coder viking default""".split()
# llama.cpp knows a capital from a small letter in ASCII alone and leaves marks out of words; in the last two it takes
# every blank beyond ASCII for the same one.
OTHER_FORM = "gpt-4o llama4 kanana2 talkie minimax-m2 tekken deepseek-llm deepseek-coder".split()
PARTS = ["the", " word", " Word", "HTTPServer", "iPhone", "aB", "ABc", "'s", "'S", "'ll", "'Re", "don't", "1", "12", "123",
         "1234567", " 3.14", "\u0663\u0664", "\u00bd", "\u00c9t\u00e9", "\u00c9COLE", "stra\u00dfe", "na\u00efve", "\u0418\u0432\u0430\u043d", " \u043c\u0438\u0440",
         "\u4f60\u597d", "\u6771\u4eac", "\u3072\u3089\u304c\u306a", "\u30ab\u30bf", "\ud55c\uad6d\uc5b4", "\u0e44\u0e17\u0e22", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0639\u0631\u0628\u064a", "\u05e9\u05dc\u05d5\u05dd",
         "\U0001f600", "\U0001f469\u200d\U0001f4bb", "\u2122", "\u20ac5", "$10", "+", "<=>", "^~|`", "!", "?!", "...", "!\n", "//\n", "/", "\\", "(", ")",
         "[]", "{};", "#define", " == ", "->", "x_1", "_", "-", "\u2014", "\u3000", "\u3002", "\uff01", " ", "  ", "    ", "\t", "\n", "\n\n",
         "\r\n", " \n", "\n ", "\u00a0", "\u2003"]


def texts():
    chosen = random.Random(3)
    fixed = ["Hello, World! It's 2024.", "def f(x):\n    return x**2 + 10\n", "a  b   c\t\td\r\n\r\ne ", "   ", "\n\n\n",
             "I'll say: \"don't\" 1234567890 times (3.14159)...", "trailing   \n  leading", "1+1=2; 10%3==1 // no"]
    return fixed + ["".join(chosen.choices(PARTS, k=chosen.randint(3, 25))) for _ in range(100 - len(fixed))]


def write_base(args, samples, work):
    """A file of a small model with the vocabulary; the tokenizer's chat template gives a text as it is."""
    folder, path = os.path.join(work, "folder"), os.path.join(work, "base.gguf")
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(samples, trainers.BpeTrainer(
        vocab_size=1200, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    config = LlamaConfig(vocab_size=made.get_vocab_size(), hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                         num_attention_heads=1, eos_token_id=0, bos_token_id=0)
    LlamaForCausalLM(config).half().save_pretrained(folder)
    made.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump(dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|end|>",
                       chat_template="{{ messages[0].content }}"), file)
    parity.run(args.tessera, "convert", folder, path)
    return path


def write_named(path, name, to):
    """The same file with another name of `tokenizer.ggml.pre`."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(to, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        value = name if key == "tokenizer.ggml.pre" else field.contents()
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, value, field.types[0], field.types[-1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check(report, args, name, base, samples, chats, work):
    path, folder = os.path.join(work, f"{name}.gguf"), os.path.join(work, name)
    write_named(base, name, path)
    printed = parity.run(args.tessera, "tokenize", "--tokenizer", path, "--chat", chats, "--print-ids")
    ours = [[int(i) for i in line.split()] for line in printed.splitlines()]
    other = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    theirs = [other.tokenize(text.encode(), add_bos=False, special=False) for text in samples]
    parity.run(args.tessera, "convert", path, folder)
    peer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    wanted = [peer.encode(text, add_special_tokens=False).ids for text in samples]
    same, as_peer = (sum(a == b for a, b in zip(ours, found)) for found in (theirs, wanted))
    for text, a, b in zip(samples, ours, theirs):
        if a != b and name not in OTHER_FORM:
            print(f"  {text!r}\n    program   {a}\n    llama.cpp {b}")
            break
    ok = len(ours) == len(samples) == as_peer and (same == len(samples) or name in OTHER_FORM)
    report(name, ok, f"{same} of {len(samples)} as llama.cpp, {as_peer} as tokenizers")


def main():
    args = parity.arguments(__doc__, extend=lambda parser: parser.add_argument("--only", default=""))
    report = parity.Report()
    torch.manual_seed(1)
    samples = texts()
    with tempfile.TemporaryDirectory() as work:
        chats = os.path.join(work, "chats.jsonl")
        with open(chats, "w") as file:
            for text in samples:
                file.write(json.dumps({"messages": [{"role": "user", "content": text}]}) + "\n")
        base = write_base(args, samples, work)
        for name in NAMES:
            if args.only in name:
                check(report, args, name, base, samples, chats, work)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
