# SPDX-License-Identifier: Apache-2.0
"""WordPiece and RoBERTa's byte-level BPE against transformers.

    pip install 'transformers<5'
    python tests/parity/bert_tokenizer.py write
        writes data/tokenizer/testdata/word_piece/: small vocabularies and, for each, texts with their
        ids, rows of one and two texts, and what ids decode to. word_piece_test.cc reads them.
    python tests/parity/bert_tokenizer.py check --vocab vocab.txt --bpe DIR TEXT... [--tessera BINARY]
        compares the ids of every line of the texts, and of lines of random Unicode characters, with
        BertTokenizerFast (and says how often BertTokenizer differs), for vocab.txt cased and
        uncased; and with RobertaTokenizerFast for DIR's vocab.json and merges.txt (any GPT-2's).
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import transformers as hf
from tokenizers.implementations import BertWordPieceTokenizer

GOLDENS = pathlib.Path(__file__).parents[2] / "data/tokenizer/testdata/word_piece"

TEXTS = [
    "", " ", "Hello, world!", "UNaffable naïve café — “quotes” … (x) #tag @me $5.00 a_b^c~d`e|f",
    "I don't think it's they've we're I'm  fine .", "tabs\tand\nlines\r\nand\x00nulls\u0007\u200b\ufeff",
    "Straße ΑΣ Σίσυφος İstanbul ǅ ﬁ ẞ Ⅷ ㎏ ½", "世界你好，我是ＡＢＣ。𠀀𪜀豈", "한국어 텍스트 각각", "नमस्ते दुनिया หวัดดี",
    "ｶﾞ が が e\u0301\u0323 a\u0308\u0304", "عَرَبِيّ עִבְרִית", "[CLS] a [MASK] b [SEP][PAD]x[UNK] [cls]",
    "a" * 100 + " " + "b" * 101 + " " + "é" * 100, "😀 e\U0001f44d\U0001f3fd x\u2028y\u3000z\u00a0w\u0085v",
    "http://x.y/z?q=1&r=%20 3.14-15", "#[unused1] ##ing ## # ##", "\ufffd\ue000\u0378\u00adsoft\u061c",
]
PAIRS = [("a b c d e f g", None, 0), ("a b c d e f g", None, 5), ("a b c", "d e f g h i j k", 0),
         ("a b c", "d e f g h i j k", 9), ("a b c d e f g h", "i j k", 9), ("a b c d e f", "g h i j k l", 9),
         ("a b c d e f", "g h i j k l", 10), ("a b c d e f g", "h i j k l m", 12), ("", None, 0), ("", "b", 0), ("a", "b", 3)]


def bert(vocab, **options):
    return hf.BertTokenizerFast(vocab_file=str(vocab), **options)


def write(_):
    GOLDENS.mkdir(parents=True, exist_ok=True)
    corpus = TEXTS * 3 + ["walking talked thing sing bring unable affable the of and in to a is it"] * 4
    for name, options in {"uncased": dict(do_lower_case=True), "cased": dict(do_lower_case=False),
                          "plain": dict(do_lower_case=True, strip_accents=False,
                                        tokenize_chinese_chars=False)}.items():
        folder = GOLDENS / name
        folder.mkdir(exist_ok=True)
        trainer = BertWordPieceTokenizer(lowercase=options["do_lower_case"], strip_accents=options.get("strip_accents"))
        trainer.train_from_iterator(corpus, vocab_size=420, min_frequency=2, show_progress=False)
        vocab = sorted(trainer.get_vocab(), key=trainer.get_vocab().get)
        (folder / "vocab.txt").write_text("".join(v + "\n" for v in vocab), newline="\n")
        added = {str(len(vocab)): dict(content="[New]", special=False, normalized=True),
                 str(len(vocab) + 1): dict(content="<Raw>", special=True, normalized=False)}
        config = dict(tokenizer_class="BertTokenizer", **options, added_tokens_decoder=added)
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
        reference = bert(folder / "vocab.txt", **options)
        reference.add_tokens([hf.AddedToken("[New]", normalized=True)])
        reference.add_special_tokens({"additional_special_tokens": [hf.AddedToken("<Raw>", normalized=False)]})
        texts = TEXTS + ["x[New]y [new] <Raw><raw> z"]
        cases = [dict(text=t, ids=reference.encode(t, add_special_tokens=False)) for t in texts]
        for case in cases:
            case["decoded"] = reference.decode(case["ids"], clean_up_tokenization_spaces=True)
            case["shown"] = reference.decode(case["ids"], skip_special_tokens=True,
                                             clean_up_tokenization_spaces=True)
        rows = []
        for first, second, limit in PAIRS:
            row = reference(first, second, truncation="longest_first" if limit else False,
                            max_length=limit or None)
            rows.append(dict(first=first, second=second, max_length=limit, ids=row["input_ids"],
                             types=row["token_type_ids"]))
        (folder / "goldens.json").write_text(json.dumps(dict(cases=cases, rows=rows)) + "\n")
    print(sum(f.stat().st_size for f in GOLDENS.rglob("*") if f.is_file()), "bytes")


def random_lines(count):
    generator = random.Random(5)
    planes = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x600), (0x900, 0xE80), (0x1100, 0x1200),
              (0x1E00, 0x2100), (0x2E80, 0x3200), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xF900, 0xFFF0),
              (0x1F300, 0x1F700), (0x20000, 0x2FA20)]
    for _ in range(count):
        characters = []
        for _ in range(generator.randrange(1, 30)):
            low, high = generator.choice(planes)
            characters.append(chr(generator.randrange(low, high)))
            if generator.random() < 0.3:
                characters.append(generator.choice(" aB"))
        yield "".join(characters)


def every_character():
    for c in range(0x20, 0x110000):
        if not 0xD800 <= c < 0xE000 and c not in (0x85, 0x2028, 0x2029):
            yield "a" + chr(c) + "B"


def program_ids(program, folder, lines):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt", newline="\n") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        result = subprocess.run([program, "tokenize", "--tokenizer", folder, "--input", file.name,
                                 "--print-ids"], capture_output=True, text=True, check=True)
    return [[int(i) for i in line.split()] for line in result.stdout.split("\n")[:-1]]


def compare(what, got, want, lines):
    wrong = [i for i in range(len(want)) if got[i] != want[i]]
    print(f"{'FAIL' if wrong or len(got) != len(want) else 'ok  '} {what}: {len(lines)} lines, "
          f"{sum(len(line.encode()) for line in lines)} bytes, {sum(map(len, want))} tokens, "
          f"{len(wrong)} differ")
    for i in wrong[:5]:
        print("  ", repr(lines[i])[:90], got[i][:12], want[i][:12])
    return bool(wrong)


def check(args):
    lines = [line for path in args.texts for line in
             open(path, encoding="utf-8", newline="\n").read().split("\n")]
    sets = {"text": lines, "random": list(random_lines(20000)), "every character": list(every_character())}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        (base / "vocab.txt").write_bytes(open(args.vocab, "rb").read())
        for options in (dict(do_lower_case=True), dict(do_lower_case=False),
                        dict(do_lower_case=False, strip_accents=True, tokenize_chinese_chars=False)):
            (base / "tokenizer_config.json").write_text(
                json.dumps(dict(tokenizer_class="BertTokenizer", **options)))
            fast = bert(base / "vocab.txt", **options)
            slow = hf.BertTokenizer(str(base / "vocab.txt"), **options)
            for kind, texts in sets.items():
                want = [e.ids for e in fast._tokenizer.encode_batch(texts, add_special_tokens=False)]
                failed += compare(f"{options} {kind}", program_ids(args.tessera, folder, texts), want, texts)
                if kind == "text":
                    some = texts[:20000]
                    differ = sum(slow.encode(t, add_special_tokens=False) != w
                                 for t, w in zip(some, want))
                    print(f"     BertTokenizer itself differs from the fast one in {differ} of {len(some)}")
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        vocab = json.load(open(pathlib.Path(args.bpe) / "vocab.json"))
        for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>"):
            vocab.setdefault(token, len(vocab))
        (base / "vocab.json").write_text(json.dumps(vocab))
        (base / "merges.txt").write_bytes((pathlib.Path(args.bpe) / "merges.txt").read_bytes())
        (base / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="RobertaTokenizer")))
        fast = hf.RobertaTokenizerFast(str(base / "vocab.json"), str(base / "merges.txt"))
        texts = lines + ["a <mask> b<mask>", "<s>x</s><pad> <unk>"]
        want = [e.ids for e in fast._tokenizer.encode_batch(texts, add_special_tokens=False)]
        failed += compare("RoBERTa text", program_ids(args.tessera, folder, texts), want, texts)
    return failed > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "check"))
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--vocab")
    parser.add_argument("--bpe")
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    args = parser.parse_args()
    return {"write": write, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
