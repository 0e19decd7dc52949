# SPDX-License-Identifier: Apache-2.0
"""The GPT-2 tokenizer against Hugging Face's: goldens for the unit test, and a check of the program.

    pip install 'transformers<5'
    python tests/parity/gpt2_tokenizer.py write --vocab FOLDER
        writes data/tokenizer/testdata/gpt2_goldens.json: the ids of some hundred tricky strings, and
        hashes of the ids of 1 MB of mixed text, which the test makes again from the same seed.
    python tests/parity/gpt2_tokenizer.py check --vocab FOLDER [--tessera BINARY] [FILE ...]
        tokenises the same 1 MB of text, and the files, with the program and with Hugging Face's
        tokenizers, compares all ids, and prints both speeds.

FOLDER has vocab.json + merges.txt or encoder.json + vocab.bpe of GPT-2.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

from transformers import GPT2Tokenizer, GPT2TokenizerFast

GOLDENS = pathlib.Path(__file__).parents[2] / "data/tokenizer/testdata/gpt2_goldens.json"
MASK = (1 << 64) - 1
SEED = 20240607
MIXED_BYTES = 1 << 20
BLOCK = 4096

FRAGMENTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "\n \n", "a", " a", "a ", "  a", "a  b",
    "Hello world", " Hello World!", "hello, how are you?", "It's", "it's they're we've I'm you'll he'd",
    "IT'S THEY'RE", "don't", " 's", "'s", "''s", "'", "' s", "'ll'll", "x'sy", "'re're", "'r", "'v",
    "'l", "'S", "can't've", "o'clock", "\u2019s don\u2019t", "1234567890", " 3.14159", "1,000,000",
    "x1y2z3", "1st 2nd 3rd", "0x7fffffff", "1e-5", "\u0660\u0661\u0662", "\u2167 \u00bd \u00b2",
    "\u3007\u4e00\u4e8c\u4e09", "\u0bf0", "\U0001d7d8\U0001d7d9", "!!!", " !!!", "?!...", "#include <vector>",
    "for (int i = 0; i < n; ++i) {\n    sum += a[i] * b[i];\n}\n",
    "def f(x):\n\treturn x ** 2  # square\n", "std::vector<std::pair<int, std::string>> v{};",
    "if (!ok) return -1;\n\n\n  // done\n", "<html><body class=\"x\">&nbsp;</body></html>",
    "{\"key\": [1, 2.5, null, true], \"k2\": \"v\\n\"}", "SELECT * FROM t WHERE a='b';",
    "https://example.com/a/b?c=d&e=f#g", "user@example.org", "C:\\Windows\\System32", "$HOME/.bashrc",
    "x = y == z != w <= v >= u", "a->b", "a::b", "/* comment */", "---", "===", "***", "~~~", "```py\n```",
    "    indented by four", "        eight", "\t\ttabs", " \t mixed \t ", "trailing   ", "   leading",
    "line\n", "line\n\n", "line \n", "line\n ", "a\n\nb", "a\n b", "a \n b", "a\t\tb", "a\r\nb\r\n",
    "a\u00a0b", "a \u00a0b", "\u00a0", "\u00a0\u00a0a", "\u2028", "a\u2028b", "a\u2029b", "\u0085",
    "a\u0085b", "\u3000", "\u3000\u3000a", "\u200b", "a\u200bb", "\ufeff", "\ufeffa", "\u180e", "a\u180eb",
    "\u1680x", "\u2000\u2001\u2002x", "\u202f1\u202f000", "\u205f", "\u2060", "\x00", "a\x00b", "\x1b[31m",
    "\x1c\x1d\x1e\x1f", "a\x1cb", "\x0b\x0c", "\x7f", "\x80", "\x9f", "\u00ad", "soft\u00adhyphen",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u4e2d\u6587\u548cEnglish\u6df7\u5408123",
    "\u6211\u7231\u5317\u4eac\u5929\u5b89\u95e8", "\u5929\u5730\u7384\u9ec3 \u5b87\u5b99\u6d2a\u8352",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u30ab\u30bf\u30ab\u30ca\u30fc", "\uc548\ub155\ud558\uc138\uc694",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u1019\u103c\u1014\u103a\u1019\u102c", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0", "\u0531\u0580\u0587",
    "\u12a0\u121b\u122d\u129b", "\u1f00\u03c1\u03c7\u03ae", "na\u00efve caf\u00e9 r\u00e9sum\u00e9", "nai\u0308ve cafe\u0301",
    "e\u0301\u0327\u0323", "\u0301", "a\u0301\u0301\u0301b", "Z\u0351\u036b\u0343\u036a\u0302A\u0334\u0335\u031eL",
    "\u00df \u1e9e \ufb01 \ufb03", "\u01c5 \u01c8", "\u00aa\u00ba", "\u02b0\u02b1\u02bc", "\u2071\u207f", "\u2090\u2091",
    "\u212b \u2126 \u2102", "\u24b6\u24d0", "\u2460\u2461", "\u2160\u2161", "\u3021\u3022", "\u3220", "\u32b1",
    "\U0001f600", "\U0001f600\U0001f601\U0001f602", " \U0001f44d", "\U0001f44d\U0001f3fd", "a\U0001f680b",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u263a \u2600\ufe0f", "\U0001d400\U0001d401 \U0001d49c", "\U00010330\U00010331", "\U00012000", "\U00013000",
    "\U00020000\U0002a6df", "\U00031350", "\U0001e900\U0001e922", "\U00010d40", "\U000105c0", "\uac00\u11a8",
    "\ue000\uf8ff", "\U000f0000", "\U0010ffff", "\ufffd", "\uffff", "\u0378", "\ufdd0", "\u2fff",
    "\u2013\u2014\u2018\u2019\u201c\u201d\u2026", "\u00ab guillemets \u00bb", "\u20ac100 \u00a35 \u00a550",
    "\u00b0C \u00b1 \u00d7 \u00f7", "\u2200x\u2208\u211d: x\u00b2 \u2265 0", "\u222b\u2080\u00b9 f(x)dx", "\u2192\u21d2\u2194",
    "\u2500\u2502\u250c\u2588\u2591", "\u266a\u266b", "\u2c7d", "\u06dd", "\u070f", "\u0903", "\u20dd", "\u0488",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|endoftext|",
    "<|endoftext", "<<|endoftext|>>", "<|ENDOFTEXT|>", "\n<|endoftext|>\n", "text <|endoftext|>\n\nnext",
    "SolidGoldMagikarp", " SolidGoldMagikarp", "antidisestablishmentarianism", "pneumonoultramicroscopicsilico",
    "ThisIsCamelCase", "snake_case_name", "kebab-case-name", "SCREAMING_SNAKE", "iPhone15Pro", "COVID-19",
    "w" * 40, "ab" * 40, "=" * 100, " " * 60, "\n" * 33, "-" * 64, "1" * 50, "!?" * 35, "\u4e2d" * 40,
    "\U0001f600" * 25, "aaaaaaaab" * 20, "\u0e01" * 50, "the " * 30, "A.B.C.D.E.", "U.S.A.'s", "e.g., i.e.",
    "Mr. O'Neil's 'quote' isn't \"over\".", "What?! No...", "(parenthesised [nested {deep}])",
    "The quick brown fox jumps over the lazy dog.", "Lorem ipsum dolor sit amet, consectetur adipiscing elit.",
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n",
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n\n",
    "import numpy as np\n\nx = np.zeros((3, 4), dtype=np.float32)\n",
    "\u8d77\u9edb\u4e0a\u6625\u8272\uff0c\u6d41\u5e74\u8eab\u4e0d\u77e5\u3002\n\u6e90\u5934\u6d3b\u6c34\u6765\uff01\n",
]


class SplitMix:
    """SplitMix64, as the test has it."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)


def mixed_text(seed):
    """Fragments, random code points and random ASCII, at least MIXED_BYTES bytes of UTF-8."""
    random = SplitMix(seed)
    out = bytearray()
    while len(out) < MIXED_BYTES:
        kind = random.next() % 8
        if kind == 0:
            for _ in range(1 + random.next() % 6):
                code_point = random.next() % 0x110000
                if 0xD800 <= code_point < 0xE000:
                    code_point = 0x2028
                out += chr(code_point).encode()
        elif kind == 1:
            for _ in range(1 + random.next() % 12):
                out.append(random.next() % 128)
        else:
            out += FRAGMENTS[random.next() % len(FRAGMENTS)].encode()
        out += ["", "", " ", "\n"][random.next() % 4].encode()
    return out.decode()


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def hugging_face(folder):
    folder = pathlib.Path(folder)
    for vocab, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
        if (folder / vocab).exists():
            files = str(folder / vocab), str(folder / merges)
            return GPT2TokenizerFast(*files), GPT2Tokenizer(*files)
    sys.exit(f"error: {folder}: no vocab.json or encoder.json")


def encode(tokenizer, text):
    return tokenizer(text, verbose=False)["input_ids"]


def write(args):
    fast, slow = hugging_face(args.vocab)
    fragments = []
    for text in FRAGMENTS:
        ids = encode(fast, text)
        if encode(slow, text) != ids:
            print("the two tokenizers of transformers differ on", ascii(text))
        fragments.append({"text": text, "ids": ids})
    text = mixed_text(SEED)
    ids = encode(fast, text)
    packed = struct.pack(f"<{len(ids)}i", *ids)
    goldens = {
        "seed": SEED,
        "text_bytes": len(text.encode()),
        "text_hash": f"{fnv(text.encode()):016x}",
        "num_ids": len(ids),
        "ids_per_block": BLOCK,
        "block_hashes": [f"{fnv(packed[i:i + 4 * BLOCK]):016x}" for i in range(0, len(packed), 4 * BLOCK)],
        "fragments": fragments,
    }
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in goldens.items() if k != "fragments"]
    lines.append('"fragments": [\n' + ",\n".join(json.dumps(f) for f in fragments) + "\n]")
    GOLDENS.parent.mkdir(exist_ok=True)
    GOLDENS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{GOLDENS}: {len(fragments)} strings, {len(ids)} ids of mixed text")


def read_dataset(prefix):
    """The ids without the end-of-text token behind the one document."""
    code = open(prefix + ".idx", "rb").read()[17]
    data = open(prefix + ".bin", "rb").read()
    width, letter = {8: (2, "H"), 4: (4, "i")}[code]
    return list(struct.unpack(f"<{len(data) // width}{letter}", data))[:-1]


def check(args):
    fast, _ = hugging_face(args.vocab)
    texts = {f"mixed text, seed {seed}": mixed_text(seed) for seed in (SEED, time.time_ns() & MASK)}
    for path in args.files:
        texts[path] = pathlib.Path(path).read_text(newline="")
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = os.path.join(folder, "input.txt")
            prefix = os.path.join(folder, "tokens")
            pathlib.Path(path).write_bytes(text.encode())
            start = time.perf_counter()
            expected = fast.backend_tokenizer.encode(text, add_special_tokens=False).ids
            seconds = time.perf_counter() - start
            command = [args.tessera, "tokenize", "--tokenizer", args.vocab, "--input", path, "--output", prefix]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            ids = read_dataset(prefix)
            first = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), None)
            same = ids == expected
            bad |= not same
            size = len(text.encode()) / 1e6
            print(f"{name}: {size:.2f} MB, {len(expected)} ids, {'equal' if same else f'DIFFERENT from id {first} on'}"
                  f" (tokenizers: {size / seconds:.1f} MB/s)")
    sys.exit(1 if bad else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    {"write": write, "check": check}[args.action](args)


if __name__ == "__main__":
    main()
