# SPDX-License-Identifier: Apache-2.0
"""Writes profiles.inc: how often languages of Latin letters have which three characters in a row.

    python corpus/language/make_profiles.py SHARED > corpus/language/profiles.inc

SHARED/data is a folder with text/, multi30k/, sst2/, zh/instruct/ and web/ (their README says where
they come from). What identify_test.cc and docs/benchmarks hold out is not read: multi30k's val and
test, sst2's dev and test, and every line of the rest whose CRC-32 is a multiple of 10.

A text is its lower-cased letters, with one blank for anything else in between and at both ends. A
trigram's place is (c1 * 961 + c2 * 31 + c3) % 4096, c being code points. The figure there is
-16 * log2 of its share, 255 at most; of trigrams that never came, one was counted.
"""
import glob
import gzip
import json
import math
import sys
import zlib

SIZE = 4096


def lines(language, root):
    if language == "de":
        yield from gzip.open(root + "/multi30k/train.de.gz", "rt")
        return
    yield from gzip.open(root + "/multi30k/train.en.gz", "rt")
    for name in ("text/botchan.txt", "text/tinyshakespeare.txt"):
        yield from open(root + "/" + name)
    for line in open(root + "/sst2/train.tsv"):
        yield line.split("\t")[0]
    for name in glob.glob(root + "/web/cc_en_head*.jsonl"):
        for line in open(name):
            yield from json.loads(line)["text"].split("\n")


def letters(text):
    out = [" "]
    for c in text.lower():
        if c.isalpha():
            out.append(c)
        elif out[-1] != " ":
            out.append(" ")
    if out[-1] != " ":
        out.append(" ")
    return out


def profile(language, root):
    counts = [1] * SIZE
    for line in lines(language, root):
        line = line.strip()
        if zlib.crc32(line.encode()) % 10 == 0:
            continue
        text = [ord(c) for c in letters(line)]
        for a, b, c in zip(text, text[1:], text[2:]):
            counts[(a * 961 + b * 31 + c) % SIZE] += 1
    total = sum(counts)
    return [min(255, round(-16 * math.log2(n / total))) for n in counts]


print("// SPDX-License-Identifier: Apache-2.0")
print("// {language, figures}, made by make_profiles.py.")
for language in ("de", "en"):
    print('{"%s",\n {' % language)
    line = ""
    for n in profile(language, sys.argv[1] + "/data"):
        item = "%d," % n
        if len(line) + len(item) > 98:
            print(line)
            line = item
        else:
            line += item
    print(line + "}},")
