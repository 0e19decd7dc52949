# SPDX-License-Identifier: Apache-2.0
"""Conversations as tokens against transformers: a small tokenizer, and goldens for the unit test.

    pip install 'transformers<5' jinja2
    python tests/parity/chat_tokens.py

Writes data/chat/testdata/tokenizer (a byte-level BPE of few merges with ChatML's tokens and template) and
data/chat/testdata/chat_tokens.json: of templates with `{% generation %}` blocks, what apply_chat_template makes of
conversations with that tokenizer, with one that composes characters first, and with a Llama one that puts a blank
before every text. The mask is that of all tokens whose characters are enclosed; transformers' own, which is checked
beside it, lacks the other tokens of a last character that is several.
"""
import json
import os
import tempfile

from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

HERE = os.path.join(os.path.dirname(__file__), "../../data/chat/testdata")
LLAMA = os.path.join(os.path.dirname(__file__), "../../data/tokenizer/testdata/tokenizer_json/llama/tokenizer.json")

CHATML = """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
TEMPLATES = {
    "chatml": """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}""",
    # What is learnt begins with the blank behind [/INST], which belongs to the first word's token.
    "inst": """{%- for m in messages %}{% if m.role == 'assistant' -%}
{% generation %}{{ ' ' + m.content + eos_token }}{% endgeneration %}
{%- else %}{{- '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}""",
    # Borders in the midst of tokens.
    "words": """{% for m in messages %}{{ m.content }} in{% generation %}he {{ m.content }}{% endgeneration %}the{% endfor %}""",
}
CHATS = [
    [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello, you."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " What is 2+2? "},
     {"role": "assistant", "content": "It's \"4\".\n"}, {"role": "user", "content": "Grüße aus 東京 👋"},
     {"role": "assistant", "content": "  the cafe\u0301 is there: e\u0301e\u0301 東京"}, {"role": "user", "content": "in"}],
    [{"role": "user", "content": "e\u0301\u0301"}, {"role": "assistant", "content": "\u0301e"}],
]


def byte_characters():
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in kept]
    return {**{b: chr(b) for b in kept}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def tokenizer_json(normalizer):
    merges = [("Ġ", "t"), ("h", "e"), ("i", "n"), ("Ġt", "he"), ("r", "e"), ("l", "l"), ("Ġ", "in"), ("he", "re"),
              ("Ġthe", "re"), ("in", "he"), ("u", "s"), ("us", "e"), ("use", "r"), ("Ã", "©"), ("Ì", "ģ")]
    vocab = {c: i for i, c in enumerate(byte_characters().values())}
    for a, b in merges:
        vocab[a + b] = len(vocab)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": len(vocab) + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, t in enumerate(special)],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]},
    }


def write_tokenizer():
    folder = os.path.join(HERE, "tokenizer")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump(tokenizer_json(None), file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>",
                   "pad_token": "<|endoftext|>", "chat_template": CHATML}, file, indent=1)
        file.write("\n")


def load(name):
    if name == "llama":
        return PreTrainedTokenizerFast(tokenizer_file=LLAMA, eos_token="</s>", bos_token="<s>")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        with open(path, "w") as file:
            json.dump(tokenizer_json({"type": "NFC"} if name == "composing" else None), file)
        return PreTrainedTokenizerFast(tokenizer_file=path, eos_token="<|endoftext|>")


def mask_of(tokenizer, chat, template, made):
    texts, spans = render_jinja_template(conversations=[chat], chat_template=template, return_assistant_tokens_mask=True,
                                         **tokenizer.special_tokens_map)
    encoded = tokenizer(texts[0], add_special_tokens=False, return_offsets_mapping=True)
    assert encoded["input_ids"] == made["input_ids"]
    mask = [int(any(begin < end_ and begin_ < end for begin_, end_ in spans[0]))
            for begin, end in encoded["offset_mapping"]]
    ends = {end - 1 for _, end in spans[0]}
    for whole, theirs, (begin, _) in zip(mask, made["assistant_masks"], encoded["offset_mapping"]):
        assert whole == theirs or (whole > theirs and begin in ends)
    return mask


def main():
    write_tokenizer()
    cases = []
    for name in ["plain", "composing", "llama"]:
        tokenizer = load(name)
        for template_name, template in TEMPLATES.items():
            for chat in CHATS:
                made = tokenizer.apply_chat_template(chat, chat_template=template, tokenize=True, return_dict=True,
                                                     return_assistant_tokens_mask=True)
                cases.append({"tokenizer": name, "name": template_name, "template": template, "messages": chat,
                              "ids": made["input_ids"], "mask": mask_of(tokenizer, chat, template, made)})
    with open(os.path.join(HERE, "chat_tokens.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
