# SPDX-License-Identifier: Apache-2.0
"""Writes split_tables.inc: what splitting asks of characters beside base/unicode_ranges.inc.

    pip install tokenizers
    python data/tokenizer/make_split_tables.py > data/tokenizer/split_tables.inc

The tables are read off Hugging Face's tokenizers, so that they have the versions of Unicode that its
two engines of regular expressions use: Oniguruma's (a Split's patterns) and Rust's (the Whitespace
splitter and added tokens that are words of their own).
"""
import tokenizers
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split, Whitespace

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))


def matched(pattern):
    split = Split(Regex(pattern), "removed", invert=True)
    return {ord(piece) for piece, _ in split.pre_tokenize_str(TEXT)}


def word_characters():
    """What joins an "a"; other than letters and marks, which are tested before."""
    pieces = {piece for piece, _ in Whitespace().pre_tokenize_str("\n".join("a" + chr(c) for c in ALL))}
    return {c for c in ALL if "a" + chr(c) in pieces} - matched(r"[\p{L}\p{M}]")


def ranges(code_points):
    """[first, last, step], of step 1 or 2."""
    runs = []
    for c in sorted(code_points):
        step = c - runs[-1][1] if runs else 0
        if step == 1 and runs[-1][0] == runs[-1][1] or step in (1, 2) and runs and runs[-1][2] == step:
            runs[-1][1:] = [c, step]
        elif step == 2 and runs[-1][0] == runs[-1][1]:
            runs[-1][1:] = [c, 2]
        else:
            runs.append([c, c, 1])
    return ["{0x%X, 0x%X, %d}," % tuple(run) for run in runs]


def write(name, comment, code_points):
    print("// %s" % comment)
    print("constexpr CodeRun %s[] = {" % name)
    line = "   "
    for item in ranges(code_points):
        if len(line) + 1 + len(item) > 100:
            print(line)
            line = "   "
        line += " " + item
    print(line)
    print("};")


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// {first, last, step}, made by make_split_tables.py from tokenizers %s." % tokenizers.__version__)
    print("// clang-format off")
    write("kUpper", "Letters of upper and title case.", matched(r"[\p{Lu}\p{Lt}]"))
    write("kLower", "Letters of lower case.", matched(r"\p{Ll}"))
    write("kMarks", "Marks.", matched(r"\p{M}"))
    write("kSigns", "Punctuation and symbols.", matched(r"[\p{P}\p{S}]"))
    write("kWord", "Characters of words that are neither letters nor marks.", word_characters())
    print("// clang-format on")


if __name__ == "__main__":
    main()
