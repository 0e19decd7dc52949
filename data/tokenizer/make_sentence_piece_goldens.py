# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/sentence_piece: small tokenizers and what their originals make of texts.

    pip install sentencepiece transformers==4.57.6 protobuf
    python data/tokenizer/make_sentence_piece_goldens.py data/tokenizer/testdata/sentence_piece

T5, ALBERT, LLaMA and XLM-RoBERTa are transformers' own classes. GLM's and ChatGLM's, which live outside
that library, are written here on its base class from the description of what they do.
"""
import io
import json
import os
import sys

import sentencepiece
from transformers import (AlbertTokenizer, LlamaTokenizer, PreTrainedTokenizer, T5Tokenizer,
                          XLMRobertaTokenizer)

SENTENCES = """the quick brown fox jumps over the lazy dog
a tokenizer cuts text into pieces, and pieces into numbers
hello world, hello again; the world is wide and words are many
in 1998 there were 12,345 of them, 9,9 and 1.5 percent
der schnelle braune fuchs springt über den faulen hund
le renard brun saute par-dessus le chien paresseux, déjà vu
什么是深度学习？深度学习是机器学习的一个分支。
今天天气很好，我们去公园散步吧。
これは小さなテストです。日本語の文章。
def f(x): return x + 1
it's a dog's life, don't you think?
training a model takes time, and testing it takes more time
""".split("\n")
SPECIAL = ["<extra_id_0>", "<extra_id_99>", "</s>", "<s>", "<pad>", "<unk>", "[MASK]", "[gMASK]", "<mask>",
           "<sop>", "<eop>", "[CLS]", "<|endoftext|>", "<|startofpiece|>"]
ODD = ["", " ", "  a  b ", "\t", "\n", "a\tb\n\nc", "\u3000x", "a\u200bb", "\x00", "a\x01\x1cb", "Déjà VU ÀÉ",
       "ﬁne ①", "🙂👍🏽", "▁x▁", "``quoted'' text", "9,9", "12,", "İstanbul", "x" + " " * 2 + "y",
       "x" + " " * 81 + "y", "def f(x):\n    return x", "the fox，你好", "\ufffd", "深度 学习 机器",
       "한국어", "<n>", "<|blank_3|>", "<extra_id_100>", "[mask]"]
TEXTS = SENTENCES[:-1] + ODD + SPECIAL + [
    "hello %s world %s.%s" % (a, b, a) for a, b in zip(SPECIAL, SPECIAL[3:] + SPECIAL[:3])] + [
    " %s  the  %s" % (a, a) for a in SPECIAL]


def train(path, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(SENTENCES[:-1]), model_writer=model, num_threads=1, minloglevel=2,
        normalization_rule_name="identity", character_coverage=1.0, hard_vocab_limit=False, **options)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(model.getvalue())


class GlmChinese(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "cog-pretrain.model"}

    def __init__(self, vocab_file, **kwargs):
        self.library = sentencepiece.SentencePieceProcessor(model_file=vocab_file)
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return len(self.library)

    def get_vocab(self):
        return {**{self.library.IdToPiece(i): i for i in range(len(self.library))}, **self.added_tokens_encoder}

    def _tokenize(self, text, **kwargs):
        return self.library.encode(text, out_type=str)

    def _convert_token_to_id(self, token):
        return self.library.PieceToId(token)

    def _convert_id_to_token(self, index):
        return self.library.IdToPiece(index)

    def convert_tokens_to_string(self, tokens):
        return self.library.decode(tokens)

    def build_inputs_with_special_tokens(self, ids, other=None):
        return [self.cls_token_id] + ids + [self.eos_token_id]


class ChatGlm(GlmChinese):
    vocab_files_names = {"vocab_file": "ice_text.model"}

    def __init__(self, vocab_file, num_image_tokens, **kwargs):
        self.images = num_image_tokens
        super().__init__(vocab_file, bos_token="<sop>", eos_token="<eop>", mask_token="[MASK]", pad_token="<pad>",
                         unk_token="<unk>", **kwargs)

    @property
    def vocab_size(self):
        return self.images + len(self.library)

    def get_vocab(self):
        return {self._convert_id_to_token(i): i for i in range(self.vocab_size)}

    def _tokenize(self, text, **kwargs):
        text = text.replace("\n", "<n>").replace("\t", "<|tab|>")
        for n in range(80, 1, -1):
            text = text.replace(" " * n, "<|blank_%d|>" % n)
        return self.library.encode(text, out_type=str)

    def _convert_token_to_id(self, token):
        return self.library.PieceToId(token) + self.images

    def _convert_id_to_token(self, index):
        return "<image_%d>" % index if index < self.images else self.library.IdToPiece(index - self.images)

    def decode(self, ids, skip_special_tokens=False):
        tokens = [self._convert_id_to_token(i) for i in ids if i != self.pad_token_id]
        if skip_special_tokens:
            tokens = [t for t in tokens if t not in self.all_special_tokens + ["[gMASK]", "[sMASK]"]]
        text = self.library.decode(tokens).replace("<n>", "\n").replace("<|tab|>", "\t")
        for n in range(2, 81):
            text = text.replace("<|blank_%d|>" % n, " " * n)
        return text

    def build_inputs_with_special_tokens(self, ids, other=None):
        return ids + [self._convert_token_to_id("[gMASK]"), self._convert_token_to_id("<sop>")]


def write(folder, tokenizer, files):
    for name, content in files.items():
        with open(os.path.join(folder, name), "w") as f:
            json.dump(content, f, indent=1)
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        cases.append({"text": text, "ids": ids, "row": tokenizer.encode(text), "decoded": tokenizer.decode(ids),
                      "skipped": tokenizer.decode(ids, skip_special_tokens=True) if ids else ""})
    with open(os.path.join(folder, "goldens.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


def main():
    root = sys.argv[1]
    t5 = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    for name, legacy in (("t5", False), ("t5_legacy", True)):
        model = os.path.join(root, name, "spiece.model")
        train(model, vocab_size=200, model_type="unigram", **t5)
        write(os.path.join(root, name), T5Tokenizer(model, legacy=legacy),
              {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "extra_ids": 100, "legacy": legacy}})
    model = os.path.join(root, "albert", "spiece.model")
    train(model, vocab_size=200, model_type="unigram", user_defined_symbols="[CLS],[SEP],[MASK]", pad_id=3)
    write(os.path.join(root, "albert"), AlbertTokenizer(model),
          {"tokenizer_config.json": {"tokenizer_class": "AlbertTokenizer"}})
    for name, legacy in (("llama", False), ("llama_legacy", True)):
        model = os.path.join(root, name, "tokenizer.model")
        train(model, vocab_size=420, model_type="bpe", byte_fallback=True)
        write(os.path.join(root, name), LlamaTokenizer(model, legacy=legacy),
              {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "legacy": legacy}})
    model = os.path.join(root, "xlm_roberta", "sentencepiece.bpe.model")
    train(model, vocab_size=200, model_type="unigram")
    write(os.path.join(root, "xlm_roberta"), XLMRobertaTokenizer(model), {})
    model = os.path.join(root, "glm", "cog-pretrain.model")
    train(model, vocab_size=200, model_type="unigram", bos_id=-1, eos_id=-1)
    size = len(sentencepiece.SentencePieceProcessor(model_file=model))
    behind = ["<|endoftext|>", "[SEP]", "[CLS]", "[MASK]", "[UNK]", "<|startofpiece|>", "<|endofpiece|>",
              "[sMASK]", "[gMASK]"]
    names = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "cls_token": "[CLS]",
             "sep_token": "[SEP]", "mask_token": "[MASK]", "unk_token": "[UNK]",
             "additional_special_tokens": ["<|startofpiece|>", "<|endofpiece|>", "[gMASK]", "[sMASK]"]}
    folder = os.path.join(root, "glm")
    files = {"tokenizer_config.json": {"tokenizer_class": "GLMChineseTokenizer", **names},
             "added_tokens.json": {t: size + i for i, t in enumerate(behind)}}
    for name, content in files.items():
        with open(os.path.join(folder, name), "w") as f:
            json.dump(content, f, indent=1)
    write(folder, GlmChinese.from_pretrained(folder), files)
    control = "[MASK],[gMASK],[sMASK],<unused_0>,<sop>,<eop>,<ENC>,<dBLOCK>"
    blanks = ",".join(["<n>", "<|tab|>"] + ["<|blank_%d|>" % n for n in range(2, 81)])
    for name, images in (("chatglm", 20000), ("chatglm_later", 0)):
        model = os.path.join(root, name, "ice_text.model")
        train(model, vocab_size=520, model_type="unigram", byte_fallback=True, pad_id=3, control_symbols=control,
              user_defined_symbols=blanks)
        files = {} if images else {"tokenizer_config.json": {"tokenizer_class": "ChatGLMTokenizer",
                                                             "num_image_tokens": 0}}
        write(os.path.join(root, name), ChatGlm(model, images), files)


if __name__ == "__main__":
    main()
