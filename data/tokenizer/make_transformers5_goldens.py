# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/transformers5: folders as transformers 5 saves them, and what it makes of texts.

    pip install transformers==5.23.0 sentencepiece protobuf
    python data/tokenizer/make_transformers5_goldens.py data/tokenizer/testdata

Every family's own class is read from a small vocabulary, gets added tokens and a chat template, and is saved.
"""
import json
import os
import shutil
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (AddedToken, AlbertTokenizer, AutoTokenizer, BertTokenizer, GPT2Tokenizer, LlamaTokenizer,
                          RobertaTokenizer, T5Tokenizer, XLMRobertaTokenizer)

from make_sentence_piece_goldens import SENTENCES, TEXTS

ADDED = ["<plain>", "<lr>", "<extra1>", "<image>", "[MASK]", "<mask>", "<|endoftext|>", "</s>", "<extra_id_3>"]
ALL_TEXTS = TEXTS + ["a %s b%sc  %s  d" % (t, t, t) for t in ADDED] + ["Unaffable Ünïcode, don't 3.5!", "word " * 40]


def byte_level(specials):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(SENTENCES[:-1], trainers.BpeTrainer(
        vocab_size=360, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(m) for m in model["merges"]]}


def word_pieces():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator((s.lower() for s in SENTENCES[:-1]), trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    return {"vocab": json.loads(t.to_str())["model"]["vocab"]}


def of_model(root, cls, name, file, **options):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(root, "sentence_piece", name, file), folder)
        return cls.from_pretrained(folder, **options)


def make(root):
    yield "gpt2", GPT2Tokenizer(**byte_level(["<|endoftext|>"]), pad_token="<pad>")
    yield "bert", BertTokenizer(**word_pieces())
    yield "bert_cased", BertTokenizer(**word_pieces(), do_lower_case=False, tokenize_chinese_chars=False)
    yield "roberta", RobertaTokenizer(**byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]))
    yield "t5", of_model(root, T5Tokenizer, "t5", "spiece.model")
    yield "albert", of_model(root, AlbertTokenizer, "albert", "spiece.model")
    yield "xlm_roberta", of_model(root, XLMRobertaTokenizer, "xlm_roberta", "sentencepiece.bpe.model")
    yield "llama", of_model(root, LlamaTokenizer, "llama", "tokenizer.model")
    yield "llama_bos", of_model(root, LlamaTokenizer, "llama", "tokenizer.model", add_bos_token=True)


def edit(folder, change):
    path = os.path.join(folder, "tokenizer_config.json")
    with open(path) as f:
        config = json.load(f)
    change(config)
    with open(path, "w") as f:
        json.dump(config, f, indent=1)


def main():
    root = sys.argv[1]
    for name, t in make(root):
        folder = os.path.join(root, "transformers5", name)
        shutil.rmtree(folder, ignore_errors=True)
        t.add_tokens(["<plain>", AddedToken("<lr>", lstrip=True, rstrip=True, normalized=False)])
        t.add_special_tokens({"extra_special_tokens": ["<extra1>"]}, replace_extra_special_tokens=False)
        t.chat_template = {"default": "{{ messages }}", "tools": "{{ tools }}"} if name == "gpt2" else "{{ messages }}"
        t.save_pretrained(folder)
        # The generic class takes tokenizer.json as it is; tokens that it lacks are added.
        if name in ("t5", "llama"):
            edit(folder, lambda c: c.update(tokenizer_class="TokenizersBackend"))
        if name == "llama":
            edit(folder, lambda c: c.update(extra_special_tokens={"image_token": "<image>"}))
        if name == "bert":
            edit(folder, lambda c: c["extra_special_tokens"].append("<image>"))
        t = AutoTokenizer.from_pretrained(folder)
        cases = []
        for text in ALL_TEXTS:
            cases.append({"text": text, "ids": t.encode(text, add_special_tokens=False), "row": t.encode(text)})
        with open(os.path.join(folder, "goldens.json"), "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
