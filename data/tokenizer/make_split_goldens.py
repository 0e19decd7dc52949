# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/split_goldens.json: what Hugging Face's tokenizers finds of patterns in texts.

    pip install tokenizers
    python data/tokenizer/make_split_goldens.py > data/tokenizer/testdata/split_goldens.json

"patterns" gives for each pattern a hash (FNV-1a) of the pieces of all texts, each with U+001F behind
it, and U+001E behind each text; null where tokenizers refuses the pattern. "behaviors" gives the pieces
themselves for each behaviour of a Split.
"""
import json
import random
import unicodedata

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

PATTERNS = r"""
\w+
\W+
\b
\B
\b\w
\d+
\D
\s+
\S+
\h+
\H+
\R
\R+
\p{Word}
\p{XID_Continue}
\X
\N+
\O
\K
a\Kb
\G.
\G\w
\Aa
\z
\Z
\A.
a$
^.
.$
^\w+$
$
^
.+
(?m).+
(?s).+
(?m:.)
(?-m:.+)
(?i)ß
(?i)ss
(?i)SS
(?i)k
(?i)ſ
(?i)'s
(?i:'s|'t|'re|'ve|'m|'ll|'d)
(?i)ǆ
(?i)ﬀ
(?i)ff
(?i)[à-ö]+
(?i)straße
(?i:st)
(?i)σ
(?i)İ
(?i)i
a{,2}
a{2,}
a{2}
a{2,3}+
a{2,3}?
a++
a*+b
a?+a
\u0061
\x61
\x{61}
\x{4e2d}
\141
\o{141}
\cA
\C-a
\M-a
\e
\t
\n
\v
\f
[\v]
[[:alnum:]]+
[[:alpha:]]+
[[:punct:]]+
[[:word:]]+
[[:space:]]+
[[:digit:]]+
[[:upper:]]+
[[:lower:]]+
[[:cntrl:]]+
[[:graph:]]+
[[:print:]]+
[[:xdigit:]]+
[[:blank:]]+
[[:ascii:]]+
[[:^alnum:]]+
[[:foo:]]
[[a-f][x-z]]+
[a-z&&[^aeiou]]+
[\p{L}&&[^\p{Han}]]+
[^a-z&&b-y]+
[a-w&&[^c-g]z]
[^[:alpha:]&&\S]
[\w&&\S]+
[\d\-x]+
[]a]
[a\]]
[a-]
[-a]
[a-\d]
[b-a]
\p{Han}+
\p{Hiragana}+
\p{Katakana}
\p{Latin}+
\p{Greek}+
\p{Cyrillic}+
\p{Arabic}+
\p{Common}+
\p{Devanagari}+
\p{Thai}+
\p{Hangul}+
\p{Hani}
\p{hira}
\p{Script=Han}
\p{sc=Han}
\p{gc=Lu}
\pL+
\p{^L}+
\P{L}+
\P{^L}+
\p{L}+
\p{Lu}
\p{Ll}+
\p{Lt}
\p{Lm}
\p{Lo}+
\p{M}
\p{Mn}+
\p{Mc}
\p{Me}
\p{N}+
\p{Nd}+
\p{Nl}
\p{No}
\p{P}+
\p{Pc}
\p{Pd}
\p{Ps}
\p{Pe}
\p{Pi}
\p{Pf}
\p{Po}
\p{S}+
\p{Sm}
\p{Sc}
\p{Sk}
\p{So}
\p{Z}+
\p{Zs}
\p{Zl}
\p{C}+
\p{Cc}
\p{Cf}
\p{Cn}
\p{Co}
\p{Letter}+
\p{letter}+
\p{Uppercase_Letter}
\p{uppercase letter}
\p{Alphabetic}+
\p{White_Space}+
\p{Emoji}
\p{Emoji_Presentation}
\p{Extended_Pictographic}
\p{Ideographic}
\p{ID_Start}
\p{Alnum}+
\p{Punct}+
\p{Graph}
\p{Print}
\p{Any}
\p{ASCII}
\p{Assigned}
\p{In_Greek_and_Coptic}
\p{InGreek_and_Coptic}
\p{InBasicLatin}
\p{In_Basic_Latin}
\p{In_CJK_Unified_Ideographs}
\p{Bidi_Control}
\p{XPosixPunct}+
\p{Sentence_Terminal}
\p{Quotation_Mark}
\p{Dash}
\p{Math}
\p{Hex_Digit}+
\p{Default_Ignorable_Code_Point}
\p{Variation_Selector}
\p{Regional_Indicator}+
\p{Case_Ignorable}
\p{Cased}+
\p{Lowercase}+
\p{Uppercase}+
\p{Diacritic}
\p{Extender}
\p{Grapheme_Cluster_Break_Control}
\p{Foo}
(?<n>a)\k<n>
(?<n>a)\g<n>
(a)\1
(.)\1
(a)(b)?\k<-1>
(?:(a)|b)(?(1)c|d)
(?(a)b|c)
(?~ab)
(?~)
a(?~b)c
(?~|ab|\O*)
(?~|ab)\O+
(?<=a)b
(?<!a)b
(?<=a+)b
(?<!\w{1,3})b
(?<=a|bc)d
(?<=\s)\S
(?=b)
(?!b)a
(?=[A-Z])
(?<=[a-z])(?=[A-Z])
(?>a+)a
(?>a+)b
(?#comment)a
(?x) a b
(?i)a(?-i)b
a(?i)b|c
(?W)\w+
(?D)\d
(?S)\s
(?P)\w+
(?W:\b)
(?I)ß
(?L)a+
(?C)(a)b
(?y{g})\X
(?y{w})\X
(?y{w})\y
\y
\Y
x*
a|
\Qa.b\E
\<a
a{
a{1
a{a}
{
}
]
a**
*a
(
)
[a
(?<a
\k<x>
[^\n]+
[^\r\n]
(?m:^a)
(?:)
()
(?=)
[A-Z]?[a-z]+
\p{L}[\p{M}\p{L}]*
(?i)[k]
(?i)\x{212a}
(?i)[^k]
(?i)ﬃ
(?i)[ß]
(?i)(ß)\1
(?i:Ω)+
(*FAIL)
(*MAX{2})a
(?<p>\((?:[^()]|\g<p>)*\))
(?P<n>a)
(?'n'a)
\p{L}{2}
[^\s\p{L}\p{N}]+
 ?[^\s\p{L}\p{N}]+
\p{N}{1,3}
(?:\p{Han}|\p{Hiragana})+
[一-龥]+
\x{1F600}
[\x{1F600}-\x{1F64F}]
[\u4e00-\u9fff]
\\
\/
\-
\_
\'
\`
a.c
a.*?c
(?s:a.*c)
[\h]
[^\h]
[\R]
[\X]
[\b]
[[:alpha:][:digit:]]+
[[:alpha:]&&[:lower:]]+
[&&a]
[a&&]
[a&&&&b]
\p{Lower}+
\p{Upper}+
\p{Space}+
\p{Digit}+
\p{Cntrl}
\p{XDigit}+
\p{Blank}
(?i)\p{Lu}+
(?i)[[:upper:]]+
(?i)\p{Ll}
(?i)[A-Z]+
(?i)[^A-Z]+
(?i)ŉ
(?i)ẞ
(?i)ﬅ
""".strip("\n").split("\n") + ["(?x: a \\ b # x\n )", "(?<=[a-z])(?=[A-Z])|-"]

PARTS = [
    "a", "b", "c", "d", "x", "y", "z", "A", "B", "K", "S", "k", "s", "'", "\u2019", '"', "(", ")",
    "[", "]", "{", "}", "-", "_", ".", ",", "!", "?", "/", " ", "\t", "\n", "\r", "\x0b", "\x0c",
    "\r\n", "\xdf", "\u1e9e", "\u017f", "ss", "\ufb00", "ff", "\ufb03", "\ufb05", "st", "\xe9",
    "e\u0301", "\u0301", "\u4e2d", "\u56fd", "\u6587", "\u3042", "\u30a2", "\u30fc", "\uff71",
    "\u3005", "\u3007", "\u3002", "\u3000", "\ud55c", "\uae00", "\u0e01", "\u0e33", "\u0915",
    "\u094d", "\u0937", "\u093f", "\u0627", "\u0628", "\u0663", "\u0660", "\u06f4", "\xbd", "\xb2",
    "\u2167", "\u24d0", "\u01c5", "\u01c6", "\u01c4", "\u03c3", "\u03c2", "\u03a3", "\u03a9",
    "\u0130", "\u0131", "i", "I", "\u0149", "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7",
    "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "\u200d", "\u200c", "\u200b", "\xad", "\ufeff", "\x85",
    "\xa0", "\u2028", "\u2029", "\u180e", "\x00", "\x01", "\x1b", "\x1c", "\x7f", "\u20ac", "$",
    "+", "<", "=", "^", "`", "|", "~", "\xa9", "\u203f", "\u2013", "\u2014", "\xab", "\xbb",
    "\u201e", "\u201c", "\u201d", "\U00010400", "\U0001d7d8", "\ue000", "\u0378", "'s", "'S", "'ll",
    "'RE", "abc", "aab", "abab", "aBcD", "hello", "World", "123", "42", "\xb5", "\u039c", "\xc5",
    "\ufb01",
]


def any_character(rng):
    """Of those that Unicode 14 has, with the classes of Unicode 16."""
    while True:
        c = chr(rng.randrange(rng.choice([0x250, 0x3000, 0x10000, 0x20000])))
        if unicodedata.category(c) in ("Ll", "Lu", "Lo", "Nd", "No", "Po", "Sm", "So", "Cc") and not 0x363 <= ord(c) < 0x370:
            return c


def texts(count):
    rng = random.Random(1)
    return ["".join(rng.choice(PARTS) if rng.random() < 0.85 else any_character(rng)
                    for _ in range(rng.randrange(1, 40))) for _ in range(count)]


def pieces(pattern, texts_, behavior="isolated", invert=False):
    split = Split(Regex(pattern), behavior, invert)
    return [[piece for piece, _ in split.pre_tokenize_str(text)] for text in texts_]


def hash_of(all_pieces):
    value = 0xCBF29CE484222325
    for row in all_pieces:
        for byte in ("".join(piece + "\x1f" for piece in row) + "\x1e").encode():
            value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return "%016x" % value


def main():
    assert unicodedata.unidata_version.startswith("14."), "characters of Unicode 14"
    some = texts(40)
    patterns = {}
    for pattern in PATTERNS:
        try:
            patterns[pattern] = hash_of(pieces(pattern, some))
        except Exception:  # of the library: not a pattern
            patterns[pattern] = None
    behaviors = []
    for pattern in ("(?=[A-Z])|-", "x*", r"\s+|\b", "(?:)"):
        for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
            for invert in (False, True):
                text = "aBc-D -Ef--Gxx  b xcc-"
                name = "".join(word.capitalize() for word in behavior.split("_"))
                behaviors.append([pattern, name, invert, pieces(pattern, [text], behavior, invert)[0]])
    print(json.dumps({"texts": some, "behaviors_of": text, "behaviors": behaviors, "patterns": patterns},
                     indent=0, ensure_ascii=True))


if __name__ == "__main__":
    main()
