# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_ranges.inc: the code points that GPT-2's splitting pattern calls letters, numbers
and white space.

    pip install tokenizers
    python base/make_unicode_ranges.py > base/unicode_ranges.inc

The classes are read off Hugging Face's own ByteLevel pre-tokenizer, one code point at a time, so
that the table has the Unicode version which that library splits with.
"""
import tokenizers

SPLIT = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str


def char_class(code_point):
    if 0xD800 <= code_point < 0xE000:
        return None
    c = chr(code_point)
    for name, neighbour in (("kLetter", "a"), ("kNumber", "1"), (None, "!")):
        if len(SPLIT(neighbour + c + neighbour)) == 1:
            return name
    return "kSpace"


def main():
    ranges = []
    for code_point in range(0x110000):
        name = char_class(code_point)
        if name is None:
            continue
        if ranges and ranges[-1][1] == code_point - 1 and ranges[-1][2] == name:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point, name])
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// {first, last, class}, made by make_unicode_ranges.py from tokenizers %s."
          % tokenizers.__version__)
    line = ""
    for first, last, name in ranges:
        item = "{0x%X, 0x%X, CharClass::%s}," % (first, last, name)
        if len(line) + 1 + len(item) > 100:
            print(line)
            line = item
        else:
            line = (line + " " + item).strip()
    print(line)


if __name__ == "__main__":
    main()
