# SPDX-License-Identifier: Apache-2.0
"""Writes bert_unicode.inc: what BERT's normalisation does with each code point.

    pip install tokenizers
    python data/tokenizer/make_bert_unicode.py > data/tokenizer/bert_unicode.inc

The tables are read off Hugging Face's own BertNormalizer and BertPreTokenizer, one code point at a
time, so that they have the Unicode version which that library uses. What is left of a character without its
accents follows from normal_forms.inc. The ideographs that get spaces around them are left out.
"""
import tokenizers
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer


def normalizer(**on):
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return BertNormalizer(**{**options, **on}).normalize_str


CLEAN = normalizer(clean_text=True)
STRIP = normalizer(strip_accents=True)
LOWER = normalizer(lowercase=True)
SPLIT = BertPreTokenizer().pre_tokenize_str


def code_points():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def is_punctuation(c):
    return [piece for piece, _ in SPLIT("a" + chr(c) + "a")] == ["a", chr(c), "a"]


def ranges_of(condition):
    ranges = []
    for c in code_points():
        if not condition(c):
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ["{0x%X, 0x%X}," % tuple(r) for r in ranges]


def lower_ranges():
    """{first, last, step, difference}."""
    runs = []
    for c in code_points():
        to = LOWER(chr(c))
        if to == chr(c):
            continue
        if len(to) != 1:
            assert c == 0x130 and to == "i\u0307"
            continue
        difference = ord(to) - c
        if runs and runs[-1][3] == difference and runs[-1][0] == runs[-1][1] and c - runs[-1][1] in (1, 2):
            runs[-1][2] = c - runs[-1][1]
            runs[-1][1] = c
        elif runs and runs[-1][3] == difference and c - runs[-1][1] == runs[-1][2]:
            runs[-1][1] = c
        else:
            runs.append([c, c, 1, difference])
    return ["{0x%X, 0x%X, %d, %d}," % tuple(r) for r in runs]


def write(declaration, comment, items):
    print("// %s" % comment)
    print("constexpr %s = {" % declaration)
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > 100:
            print(line)
            line = "   "
        line += " " + item
    print(line)
    print("};")


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by make_bert_unicode.py from tokenizers %s." % tokenizers.__version__)
    print("// clang-format off")
    write("CodeRange kRemoved[]", "Removed from text: control characters and the like.",
          ranges_of(lambda c: CLEAN(chr(c)) == ""))
    write("CodeRange kPunctuation[]", "Tokens of their own.", ranges_of(is_punctuation))
    write("CodeRange kAccents[]", "Removed with accents: marks without width.",
          ranges_of(lambda c: STRIP(chr(c)) == ""))
    write("LowerRange kLower[]", "{first, last, step, difference} of letters and their lower case.",
          lower_ranges())
    print("// clang-format on")


if __name__ == "__main__":
    main()
