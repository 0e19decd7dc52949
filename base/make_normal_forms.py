# SPDX-License-Identifier: Apache-2.0
"""Writes normal_forms.inc: what Unicode's normal forms need to know of each code point.

    pip install tokenizers
    python base/make_normal_forms.py > base/normal_forms.inc

Decompositions and marks are read off Hugging Face's normalizers, one code point at a time, so that they
have the Unicode version which that library uses; combining classes are Python's, of characters that the
library knows. Hangul syllables, which decompose by arithmetic, are left out.
"""
import unicodedata

import tokenizers
from tokenizers.normalizers import NFC, NFD, NFKD, StripAccents

NFC, NFD, NFKD, STRIP = (n().normalize_str for n in (NFC, NFD, NFKD, StripAccents))


def code_points():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and not 0xAC00 <= c <= 0xD7A3)


def small(numbers):
    """As bytes: seven bits of a number each, the lowest first, the eighth where more follow."""
    items = []
    for number in numbers:
        while number >= 0x80:
            items.append("%d" % (number & 0x7F | 0x80))
            number >>= 7
        items.append("%d" % number)
    return items


def flat(form, plain):
    """from (what it is more than the one before), count, to...; for every character that `form` changes
    and `plain` does not the same way."""
    numbers = []
    before = 0
    for c in code_points():
        to = form(chr(c))
        if to in (chr(c), plain(chr(c))):
            continue
        numbers += [c - before, len(to)] + [ord(x) for x in to]
        before = c
    return small(numbers)


def pairs():
    """first, second, composed."""
    items = []
    for c in code_points():
        parts = NFD(chr(c))
        if len(parts) < 2 or NFC(chr(c)) != chr(c):
            continue
        first = NFC(parts[:-1])
        assert len(first) == 1, hex(c)
        items.append((ord(first), ord(parts[-1]), c))
    return small(x for item in sorted(items) for x in item)


def classes():
    """first, last, combining class."""
    runs = []
    for c in code_points():
        combining = unicodedata.combining(chr(c))
        if combining == 0:
            continue
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == combining:
            runs[-1][1] = c
        else:
            runs.append([c, c, combining])
    return [x for first, last, combining in runs for x in ("0x%X" % first, "0x%X" % last, "%d" % combining)]


def marks():
    runs = []
    for c in code_points():
        if STRIP(chr(c)) != "":
            continue
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return ["0x%X" % x for run in runs for x in run]


def write(name, comment, items, element="uint32_t"):
    print("// %s" % comment)
    print("constexpr %s %s[] = {" % (element, name))
    line = ""
    for item in items:
        if len(line) + 1 + len(item) > 99:
            print(line)
            line = ""
        line += item + ","
    print(line)
    print("};")


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by make_normal_forms.py from tokenizers %s and Unicode %s."
          % (tokenizers.__version__, unicodedata.unidata_version))
    print("// clang-format off")
    print("// Numbers as bytes (see ReadSmall): seven bits each, the lowest first.")
    write("kCanonical", "from (more than the one before), count, to...: canonical decompositions, whole.",
          flat(NFD, lambda c: c), "uint8_t")
    write("kCompatible", "The same of compatibility decompositions, where they differ.", flat(NFKD, NFD), "uint8_t")
    write("kPairs", "first, second, what they compose to.", pairs(), "uint8_t")
    write("kClasses", "first, last, combining class.", classes())
    write("kMarks", "first, last: combining marks of every kind.", marks())
    print("// clang-format on")


if __name__ == "__main__":
    main()
