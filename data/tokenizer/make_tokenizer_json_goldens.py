# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/tokenizer_json: small tokenizer.json files and what their library makes of texts.

    pip install tokenizers==0.22.2 sentencepiece protobuf transformers
    python data/tokenizer/make_tokenizer_json_goldens.py data/tokenizer/testdata/tokenizer_json
"""
import io
import json
import os
import sys
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.utils import sentencepiece_model_pb2_new as proto

from make_sentence_piece_goldens import ODD, SENTENCES

SPECIAL = ["<unk>", "<pad>", "<s>", "</s>", "[MASK]", "[CLS]", "[SEP]"]
TEXTS = SENTENCES[:-1] + ODD + SPECIAL + [
    "hello [MASK] world", " [MASK]  x", "a [CLS]b</s>c", "The HELLO world123 45,6", "don't we'll I'm", "ÀÉÎ õ",
    "tab\tand\r\nline\n\n  end ", "1/2 ½ ② ⅷ", "a-b_c.d,e!f", "가각 ﬃ ǆ Å", "e\u0301\u0323 \u0344", "x\u0301"]


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(SENTENCES[:-1], trainer)
    return tokenizer


def character_map():
    """A small one: full-width letters, a ligature, an accent on two characters, something removed."""
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w") as f:
            f.write("FF21\t41\nFF22\t42\nFB01\t66 69\n65 301\tE9\n200B\t\n3000\t20\n2460\t31\nFF0C\t2C\n9\t20\nA\t20\n")
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(SENTENCES[:-1]), model_writer=model, vocab_size=200, num_threads=1,
            minloglevel=2, normalization_rule_tsv=rules, character_coverage=1.0, hard_vocab_limit=False)
    message = proto.ModelProto()
    message.ParseFromString(model.getvalue())
    return message


def make():
    model = character_map()
    pieces = [(p.piece, p.score) for p in model.pieces]
    charsmap = model.normalizer_spec.precompiled_charsmap

    t = Tokenizer(models.Unigram(pieces + [("<extra_id_%d>" % i, 0.0) for i in (1, 0)], unk_id=0, byte_fallback=False))
    t.normalizer = normalizers.Precompiled(charsmap)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    t.add_special_tokens([AddedToken(x, normalized=False) for x in ["<unk>", "<s>", "</s>"]] + [
        AddedToken("<extra_id_%d>" % i, normalized=False, lstrip=True, rstrip=True) for i in (0, 1)])
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    yield "t5", t

    t = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    t.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Precompiled(charsmap),
        normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    t.add_special_tokens(["[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True)])
    ids = [(x, t.token_to_id(x)) for x in ("[CLS]", "[SEP]")]
    t.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ids)
    yield "albert", t

    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    train(t, trainers.BpeTrainer(vocab_size=480, special_tokens=SPECIAL + ["<0x%02X>" % i for i in range(256)]))
    spec = json.loads(t.to_str())
    spec["added_tokens"] = [a for a in spec["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(spec))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", 2)])
    yield "llama", t

    for name, options in (("bert", dict(lowercase=True)), ("bert_cased", dict(lowercase=False, strip_accents=True,
                                                                              handle_chinese_chars=False))):
        t = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=20))
        t.normalizer = normalizers.BertNormalizer(**options)
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        train(t, trainers.WordPieceTrainer(vocab_size=200, special_tokens=SPECIAL))
        t.decoder = decoders.WordPiece()
        t.post_processor = processors.BertProcessing(("[SEP]", 6), ("[CLS]", 5))
        yield name, t

    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"(?i:'s|'t|'ll|'m)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                                   r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.Sequence([processors.ByteLevel(), processors.RobertaProcessing(
        ("</s>", 3), ("<s>", 2))])
    train(t, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL,
                                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    yield "gpt", t

    variants = [
        (normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase()]),
         pre_tokenizers.Whitespace(), dict(continuing_subword_prefix="##")),
        (normalizers.NFD(), pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation("merged_with_previous")]), dict(end_of_word_suffix="</w>")),
        (normalizers.Strip(left=True, right=False), pre_tokenizers.Sequence([
            pre_tokenizers.Split(" ", "merged_with_next"), pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.Digits()]), {}),
        (None, pre_tokenizers.Sequence([
            pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
            pre_tokenizers.Split(Regex("[a-z]+"), "removed", invert=True)]), {})]
    for i, (normalizer, splitter, affixes) in enumerate(variants):
        t = Tokenizer(models.BPE(unk_token="<unk>", **affixes))
        if normalizer is not None:
            t.normalizer = normalizer
        t.pre_tokenizer = splitter
        train(t, trainers.BpeTrainer(vocab_size=220, special_tokens=SPECIAL, **affixes))
        if "end_of_word_suffix" in affixes:
            t.decoder = decoders.BPEDecoder()
        t.add_tokens(["hello", "the world"])
        yield "variant_%d" % i, t


def main():
    for name, t in make():
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer.json"), "w") as f:
            json.dump(json.loads(t.to_str()), f)
        cases = []
        for text in TEXTS:
            ids = t.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids, "row": t.encode(text).ids, "pair": t.encode(text, "hello").ids,
                          "types": t.encode(text, "hello").type_ids,
                          "decoded": t.decode(ids, skip_special_tokens=False), "skipped": t.decode(ids)})
        with open(os.path.join(folder, "goldens.json"), "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
