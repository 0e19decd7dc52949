# SPDX-License-Identifier: Apache-2.0
"""`tessera corpus` beside Python's tools, on a corpus made of the data at hand.

    pip install --target PEERS datasketch text-dedup "datatrove[processing]" spacy ftfy langid \\
        trafilatura lxml_html_clean
    bazel build -c opt //tools:tessera
    PYTHONPATH=PEERS python bench/corpus.py make SHARED corpus.jsonl --mb 1000
    PYTHONPATH=PEERS python bench/corpus.py peers corpus.jsonl --documents 1000
    python bench/corpus.py ours bazel-bin/tools/tessera corpus.jsonl --folder /tmp/out
    python bench/corpus.py languages bazel-bin/tools/tessera SHARED
    PYTHONPATH=PEERS python bench/corpus.py pages bazel-bin/tools/tessera SHARED

make: documents of SHARED/data/web (464 articles and 93 pages of Common Crawl), by a generator with a
fixed seed. A new document is one of these with 80 to 100 % of its words replaced by others of them all;
of three new ones, one stands there once, one again with 0 to 4 % of its words replaced, one again with
5 to 30 %, so that pairs grow as documents do. One document in ten is read as windows-1252 where it is
UTF-8. Every document has an id.

peers: MB/s of one process on the first documents: MinHash of 128 permutations (datasketch, text-dedup
with xxh3, datatrove with 14 bands of 9), ftfy.fix_text, langid.classify, datatrove's rules.

ours: seconds, MB/s and the most memory of each step, with 1 and 2 threads on as many cores.

languages: the share of held-out lines (what make_profiles.py does not read) that get their language.

pages: SHARED/data/web's crawl beside trafilatura: the speed of each, and how much of the 4-grams of
words they have in common.
"""
import argparse
import collections
import glob
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zlib


def source_documents(shared):
    for name in ("articles_multi_extractor.jsonl", "cc_en_head-0091.jsonl"):
        for line in open(os.path.join(shared, "data/web", name)):
            document = json.loads(line)
            yield document.get("url") or document["metadata"]["url"], document["text"]


def make(args):
    rng = random.Random(1)
    sources = [(url, re.split(r"(\s+)", text)) for url, text in source_documents(args.shared)
               if len(text) > 500]
    words = [w for _, pieces in sources for w in pieces[::2]]
    size, number = 0, 0

    def changed(pieces, share):
        pieces = pieces[:]
        for i in rng.sample(range(0, len(pieces), 2), int(share * len(pieces[::2]))):
            pieces[i] = rng.choice(words)
        return pieces

    with open(args.output, "w") as out:
        while size < args.mb * 1000000:
            url, pieces = rng.choice(sources)
            new = changed(pieces, rng.uniform(0.8, 1))
            again = rng.choice([None, rng.uniform(0, 0.04), rng.uniform(0.05, 0.3)])
            for pieces in [new] if again is None else [new, changed(new, again)]:
                text = "".join(pieces)
                if rng.random() < 0.1:
                    text = text.encode().decode("windows-1252", "replace").replace("\ufffd", "")
                line = json.dumps({"id": "d%d" % number, "url": url, "text": text}, ensure_ascii=False)
                out.write(line + "\n")
                size += len(line.encode()) + 1
                number += 1
    print(number, "documents,", size, "bytes")


def rate(name, texts, work):
    begin = time.perf_counter()
    for text in texts:
        work(text)
    seconds = time.perf_counter() - begin
    megabytes = sum(len(t.encode()) for t in texts) / 1e6
    print("%-28s %8.3f MB/s  %8.0f documents/s" % (name, megabytes / seconds, len(texts) / seconds))


def peers(args):
    texts = [json.loads(line)["text"] for _, line in zip(range(args.documents), open(args.corpus))]
    from datasketch import MinHash

    def minhash(text):
        words = re.findall(r"\w+", text.lower())
        grams = {" ".join(words[i:i + 5]).encode() for i in range(len(words) - 4)}
        sketch = MinHash(num_perm=128)
        sketch.update_batch(grams)

    rate("datasketch MinHash", texts, minhash)
    import numpy as np
    from text_dedup.minhash import embed_func
    from text_dedup.utils import xxh3_32hash
    prime = np.uint64((1 << 61) - 1)
    draws = np.random.RandomState(1)
    settings = {"num_perm": 128, "ngram_size": 5, "min_length": 0,
                "hashranges": [(i, i + 6) for i in range(0, 126, 6)],
                "permutations": tuple(draws.randint(1, prime, 128, np.uint64) for _ in range(2)),
                "hash_func": xxh3_32hash, "dtype": np.uint64,
                "max_hash": np.uint32((1 << 32) - 1), "modulo_prime": prime}
    rate("text-dedup embed_func", texts, lambda t: embed_func(t, 0, **settings))
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature
    signature = MinhashDedupSignature("unused", MinhashConfig(num_buckets=14, hashes_per_bucket=9))
    rate("datatrove MinHash", texts[:300], lambda t: signature.get_signature(signature.get_shingles(t)))
    import ftfy
    rate("ftfy.fix_text", texts, ftfy.fix_text)
    import langid
    rate("langid.classify", texts, langid.classify)
    from datatrove.data import Document
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
    for name, rule in (("GopherQualityFilter", GopherQualityFilter()),
                       ("GopherRepetitionFilter", GopherRepetitionFilter())):
        rate("datatrove " + name, texts[:500], lambda t: rule.filter(Document(text=t, id="0")))


STEPS = {
    "dedup near": ["dedup", "--threshold", "0.8"],
    "dedup line": ["dedup", "--by", "line"],
    "clean repair": ["clean", "--min-tokens", "0", "--min-characters", "0"],
    "clean language": ["clean", "--repair=false", "--language", "en", "--min-tokens", "0",
                       "--min-characters", "0"],
    "clean gopher_quality": ["clean", "--repair=false", "--filters", "gopher_quality",
                             "--min-tokens", "0", "--min-characters", "0"],
    "clean gopher_repetition": ["clean", "--repair=false", "--filters", "gopher_repetition",
                                "--min-tokens", "0", "--min-characters", "0"],
    "clean all": ["clean", "--language", "en", "--filters",
                  "gopher_quality,gopher_repetition,c4"],
    "shuffle": ["shuffle"],
    "stats": ["stats"],
}


def ours(args):
    size = os.path.getsize(args.corpus) / 1e6
    for name, step in STEPS.items():
        if args.step and name not in args.step:
            continue
        line = "%-24s" % name
        for cores in ("0", "0,1"):
            output = os.path.join(args.folder, "out.html" if name == "stats" else "out.jsonl")
            for end in ("", ".journal", ".part"):
                if os.path.exists(output + end):
                    os.remove(output + end)
            command = ["taskset", "-c", cores, args.tessera, "corpus", step[0], "--input",
                       args.corpus, "--output", output, "--threads",
                       str(len(cores.split(",")))] + step[1:]
            begin = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            out = process.stdout.read().decode()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - begin
            if status != 0:
                sys.exit("%s failed" % " ".join(command))
            line += "  %7.2f s %7.1f MB/s %5d MiB" % (seconds, size / seconds,
                                                      usage.ru_maxrss // 1024)
        print(line, " ", out.strip().split("\n")[-1], flush=True)


def run(tessera, *arguments):
    subprocess.run([tessera, "corpus", *arguments], check=True, stdout=subprocess.DEVNULL)


def held_out(shared):
    data = os.path.join(shared, "data")
    for language in ("en", "de"):
        yield "multi30k " + language, language, [
            line for name in ("val", "test_2016_flickr")
            for line in gzip.open("%s/multi30k/%s.%s.gz" % (data, name, language), "rt")]
    yield "sst2 dev, test", "en", [line.split("\t")[0] for name in ("dev", "test")
                                   for line in list(open("%s/sst2/%s.tsv" % (data, name)))[1:]]
    for name in ("botchan", "tinyshakespeare"):
        lines = [line.strip() for line in open("%s/text/%s.txt" % (data, name))]
        yield name, "en", [line for line in lines
                           if len(line) >= 20 and zlib.crc32(line.encode()) % 10 == 0]
    ideographs = re.compile("[\u4e00-\u9fff]")
    yield "alpaca", "zh", [
        line for name in sorted(glob.glob(data + "/zh/instruct/*.json")) for row in json.load(open(name))
        for text in row.values() if isinstance(text, str)
        for line in text.split("\n") if len(ideographs.findall(line)) >= 5]
    yield "poems", "zh", [line for name in sorted(glob.glob(data + "/zh/poems/*.json"))
                          for row in json.load(open(name)) for line in row["paragraphs"]
                          if len(line) > 4]


def languages(args):
    for name, language, lines in held_out(args.shared):
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/in.jsonl", "w") as out:
                for line in lines:
                    if line.strip():
                        out.write(json.dumps({"text": line.strip()}) + "\n")
            run(args.tessera, "clean", "--input", folder + "/in.jsonl", "--output",
                folder + "/out.jsonl", "--repair=false", "--tag", "--min-tokens", "0",
                "--min-characters", "0")
            found = [json.loads(line)["language"] for line in open(folder + "/out.jsonl")]
        print("%-16s %s %6d lines  %6.2f %%" % (name, language, len(found),
                                              100 * found.count(language) / len(found)))


def common(a, b):
    def grams(text):
        words = re.findall(r"\w+", text.lower())
        return collections.Counter(zip(*[words[i:] for i in range(4)]))
    a, b = grams(a), grams(b)
    both = sum((a & b).values())
    return both / max(1, sum(a.values())), both / max(1, sum(b.values()))


def pages(args):
    import trafilatura
    crawl = os.path.join(args.shared, "data/web/sample-0000.warc.gz")
    with tempfile.TemporaryDirectory() as folder:
        run(args.tessera, "extract", "--input", crawl, "--output", folder + "/a.jsonl", "--keep-html")
        documents = [json.loads(line) for line in open(folder + "/a.jsonl")]
        begin = time.perf_counter()
        theirs = [trafilatura.extract(d["html"], include_comments=False) or "" for d in documents]
        seconds = time.perf_counter() - begin
        size = sum(len(d["html"].encode()) for d in documents) / 1e6
        shares = [common(d["text"], text) for d, text in zip(documents, theirs)]
        print("%d pages; of our 4-grams trafilatura has %.3f, of its own we have %.3f (means)" % (
            len(documents), sum(a for a, _ in shares) / len(shares),
            sum(b for _, b in shares) / len(shares)))
        print("trafilatura %.2f MB/s" % (size / seconds))
        times = int(100 / size)
        with open(folder + "/many.jsonl", "w") as out:
            for _ in range(times):
                for d in documents:
                    out.write(json.dumps({"id": d["id"], "html": d["html"]}, ensure_ascii=False) + "\n")
        for threads in ("1", "2"):
            begin = time.perf_counter()
            run(args.tessera, "extract", "--input", folder + "/many.jsonl", "--output",
                folder + "/out%s.jsonl" % threads, "--threads", threads)
            seconds = time.perf_counter() - begin
            print("tessera, %s threads: %.1f MB/s" % (threads, times * size / seconds))


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(required=True)
command = commands.add_parser("make")
command.add_argument("shared")
command.add_argument("output")
command.add_argument("--mb", type=int, default=1000)
command.set_defaults(run=make)
command = commands.add_parser("peers")
command.add_argument("corpus")
command.add_argument("--documents", type=int, default=2000)
command.set_defaults(run=peers)
command = commands.add_parser("ours")
command.add_argument("tessera")
command.add_argument("corpus")
command.add_argument("--folder", default=".")
command.add_argument("--step", action="append")
command.set_defaults(run=ours)
for name, task in (("languages", languages), ("pages", pages)):
    command = commands.add_parser(name)
    command.add_argument("tessera")
    command.add_argument("shared")
    command.set_defaults(run=task)
arguments = parser.parse_args()
arguments.run(arguments)
