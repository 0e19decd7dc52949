# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/rouge.json: texts, and what rouge_score makes of them.

    pip install rouge-score==0.1.2
    python data/text_metrics/make_rouge_goldens.py > data/text_metrics/testdata/rouge.json

Texts with CJK characters are cut by the class below, which differs from rouge_score's own tokenizer
in taking each such character for a token.
"""
import json
import random
import re

from rouge_score import rouge_scorer, tokenizers

from make_bleu_goldens import REFERENCES, damaged

CJK = "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u4e00-\u9fff"
TYPES = ["rouge1", "rouge2", "rougeL"]
TEXTS = REFERENCES + ["İstanbul 3 K\u212a ÅNGSTRÖM ﬁn", "the the the cat cat sat", "a b a b a b a c", "__x_y__ don't"]


class ByCharacter(tokenizers.Tokenizer):
    def tokenize(self, text):
        return re.findall(f"[a-z0-9]+|[{CJK}]", text.lower())


def main():
    own = tokenizers.DefaultTokenizer(use_stemmer=False)
    by_character = ByCharacter()

    def tokenizer_for(text):
        return by_character if re.search(f"[{CJK}]", text) else own

    rng = random.Random(3)
    pairs = []
    tokens = []
    for text in TEXTS:
        tokens.append(dict(text=text, tokens=tokenizer_for(text).tokenize(text)))
        half = text[len(text) // 3:] + text[:len(text) // 3]
        for output in [text, half, text[::-1], "the", *(damaged(text, rng) for _ in range(2))]:
            scorer = rouge_scorer.RougeScorer(TYPES, tokenizer=tokenizer_for(text + output))
            scores = scorer.score(text, output)
            pairs.append(dict(output=output, reference=text, **{t: scores[t].fmeasure for t in TYPES}))
    print(json.dumps(dict(pairs=pairs, tokens=tokens), indent=0))


if __name__ == "__main__":
    main()
