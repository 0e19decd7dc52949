# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/bleu.json: texts, and what sacrebleu makes of them.

    pip install sacrebleu==2.6.0
    python data/text_metrics/make_bleu_goldens.py > data/text_metrics/testdata/bleu.json
"""
import json
import random

import sacrebleu

REFERENCES = [
    "Two young, White males are outside near many bushes.",
    "Several men in hard hats are operating a giant pulley system.",
    "A little girl climbing into a wooden playhouse; it costs $1,234.56 (or 10-20 more)!",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster...",
    "He said: \"don't &quot;go&quot; there &amp; stay\" -- 3.14, 2,71 a.b.c , x.",
    "今天天气很好，我们去公园散步吧。",
    "深度学习是机器学习的一个分支，GPT-3有1750亿参数（2020年）。",
    "“引号”…与—破折号 ½ ① 日本語テスト",
    "one", "", "  spaced \u3000 out\ttext  ", "<skipped> line-\nbreak\nhere",
]


def damaged(text, rng):
    words = text.split(" ")
    for _ in range(rng.randint(0, 3)):
        i = rng.randrange(len(words))
        change = rng.randrange(4)
        if change == 0:
            del words[i]
        elif change == 1:
            words.insert(i, rng.choice(["the", "a", ",", "男", "und"]))
        elif change == 2:
            words[i] = words[i][::-1]
        else:
            words[i] = words[i].upper()
        if not words:
            words = [""]
    return " ".join(words)


def main():
    rng = random.Random(7)
    corpora = [[damaged(r, rng) for r in REFERENCES] for _ in range(4)]
    corpora += [REFERENCES, ["unrelated"] * len(REFERENCES), [""] * len(REFERENCES),
                [r[:7] for r in REFERENCES], [r + " and more words behind" for r in REFERENCES]]
    second = [damaged(r, rng) for r in REFERENCES]
    cases = []
    for number, outputs in enumerate(corpora):
        for tokenize in ("13a", "zh"):
            for lower_case in (False, True):
                for name, references in (("one", [REFERENCES]), ("two", [second, REFERENCES])):
                    b = sacrebleu.corpus_bleu(outputs, references, tokenize=tokenize, lowercase=lower_case)
                    cases.append(dict(outputs=number, references=name, tokenize=tokenize,
                                      lower_case=lower_case, score=b.score, precisions=b.precisions, bp=b.bp,
                                      output_length=b.sys_len, reference_length=b.ref_len))
    tokens = [dict(text=r, **{t: sacrebleu.metrics.BLEU(tokenize=t).tokenizer(r.rstrip()) for t in ("13a", "zh")})
              for r in REFERENCES]
    sets = dict(one=[REFERENCES], two=[second, REFERENCES])
    print(json.dumps(dict(outputs=corpora, references=sets, cases=cases, tokens=tokens), indent=0))


if __name__ == "__main__":
    main()
