#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load on `tessera serve` from this machine, which client and server share: rates, bits, memory, leavers.

  bazel build //tools:tessera
  python3 bench/serve_load.py FOLDER --clients 1,8,64 --slots 8 [--requests 10000] [--leavers 1000]

FOLDER is a model with its tokenizer. One server is started for each number of --slots; every text is compared, bit by bit, with
the one that came when nobody else was asking. Rates are those of new tokens, all clients together, beside
`tessera generate` of the same prompts one after the other, whose loading is taken off by a second run
with one token each. The time to a first token is measured for prompts of 512 tokens that begin as an earlier one did,
and for others. --requests and --leavers are short texts, and clients that leave at random moments;
the server's memory (VmRSS) is printed on the way. Standard library alone.
"""
import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import tempfile
import time


class Server:
    def __init__(self, options, slots):
        command = [options.tessera, "serve", "--model", options.model, "--port", "0", "--slots", str(slots), "--threads",
                   str(options.threads), "--dtype", options.dtype, "--max-waiting", "4096", "--max-connections", "4096"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", self.process.stdout.readline())[1])

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) / 1024

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, "the server did not end as it should"


class Client:
    """A connection that is kept."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def ask(self, path, body=None, on_piece=None):
        """The body of the answer; of a stream its events, with `on_piece` called for each."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split()[1])
        length = re.search(r"content-length: (\d+)", head)
        if length:
            data = await self.reader.readexactly(int(length[1]))
            if status != 200:
                raise RuntimeError(f"{status}: {data.decode()}")
            return data if path == "/metrics" else json.loads(data)
        pieces = []
        while size := int((await self.reader.readline()).strip(), 16):
            pieces.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
            if on_piece:
                on_piece()
        await self.reader.readexactly(2)
        return b"".join(pieces)

    def leave(self):
        if self.writer is not None:
            self.writer.transport.abort()
        self.writer = None


def prompts(count, tokens, words, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choice(words) for _ in range(tokens)) for _ in range(count)]


def completion(prompt, tokens, **more):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1, **more}


async def many(port, clients, bodies):
    """Each of the clients asks for the next until none is left; the answers in order, and the seconds."""
    answers, line = [None] * len(bodies), iter(range(len(bodies)))

    async def work():
        client = Client(port)
        for i in line:
            answers[i] = (await client.ask("/v1/completions", bodies[i]))["choices"][0]
        client.leave()

    begin = time.time()
    await asyncio.gather(*(work() for _ in range(clients)))
    return answers, time.time() - begin


def offline(options, texts, tokens):
    """Seconds of `tessera generate` for all but the first token of each text."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(text + "\n" for text in texts))
        file.flush()

        def run(count):
            begin = time.time()
            subprocess.run([options.tessera, "generate", "--model", options.model, "--prompts", file.name, "--batch-size", "1",
                            "--max-new-tokens", str(count), "--threads", str(options.threads), "--dtype", options.dtype],
                           check=True, stdout=subprocess.DEVNULL)
            return time.time() - begin
        return run(tokens) - run(1)


async def rates(options, server, slots, texts, alone):
    bodies = [completion(text, options.tokens) for text in texts]
    for clients in options.clients:
        rounds = []
        for _ in range(options.rounds):
            answers, seconds = await many(server.port, clients, bodies)
            rounds.append(len(bodies) * options.tokens / seconds)
            different = sum(a["text"] != b["text"] or a["logprobs"] != b["logprobs"] for a, b in zip(answers, alone))
            assert different == 0, f"{different} texts differ from those that came alone"
        print(f"| {slots} | {clients} | {statistics.median(rounds):.1f} | all equal |", flush=True)


async def first_token(options, server, words):
    client, times = Client(server.port), {"miss": [], "hit": []}
    for i, text in enumerate(prompts(options.rounds, 512, words, 99)):
        for kind, prompt in (("miss", text), ("hit", text + " " + words[i])):
            body, begin, first = completion(prompt, 2, stream=True), time.time(), []
            await client.ask("/v1/completions", body, lambda: first.append(time.time()))
            times[kind].append(first[0] - begin)
    miss, hit = (statistics.median(times[kind]) for kind in ("miss", "hit"))
    print(f"time to the first token of 512: {miss * 1e3:.1f} ms, with the beginning there {hit * 1e3:.1f} ms ({hit / miss:.3f})")


async def requests(options, server, texts):
    before = server.memory()
    for part in range(5):
        bodies = [completion(texts[i % len(texts)], 2) for i in range(options.requests // 5)]
        await many(server.port, 64, bodies)
        print(f"after {(part + 1) * len(bodies)} requests: {server.memory():.0f} MiB (before: {before:.0f})", flush=True)


async def leavers(options, server, texts, alone):
    draw, waits, next_ones, watcher = random.Random(5), [], [], Client(server.port)

    async def token():
        begin = time.time()
        await watcher.ask("/v1/completions", completion("a", 1))
        return time.time() - begin

    async def leaver():
        client = Client(server.port)
        body = completion(draw.choice(texts) * draw.choice([1, 6]), 64, stream=draw.random() < 0.5)
        try:
            await asyncio.wait_for(client.ask("/v1/completions", body), draw.uniform(0, 0.5))
        except asyncio.TimeoutError:
            pass
        client.leave()

    begin, alone_token = server.memory(), statistics.median([await token() for _ in range(20)])
    for _ in range(options.leavers // 20):
        await asyncio.gather(*(leaver() for _ in range(20)))
        left = time.time()
        while (load := await watcher.ask("/load"))["running"] or load["waiting"]:
            await asyncio.sleep(0.001)
        waits.append(time.time() - left)
        next_ones.append(await token() - alone_token)
    answers, _ = await many(server.port, 8, [completion(text, options.tokens) for text in texts])
    assert all(a["text"] == b["text"] for a, b in zip(answers, alone))
    print(f"{options.leavers} leavers: places free after {statistics.median(waits) * 1e3:.0f} ms (most {max(waits) * 1e3:.0f}), "
          f"whoever comes then waits {statistics.median(next_ones) * 1e3:.0f} ms longer than alone (most {max(next_ones) * 1e3:.0f}), "
          f"{begin:.0f} MiB before, {server.memory():.0f} after; texts as before")


async def run(options):
    with open(os.path.join(options.model, "vocab.json")) as file:
        words = [w[1:] for w in json.load(file) if re.fullmatch("\u0120[a-z]{4,7}", w)]
    texts = prompts(options.texts, 16, words, 1)
    server = Server(options, 1)
    alone, _ = await many(server.port, 1, [completion(text, options.tokens) for text in texts])
    seconds = offline(options, texts, options.tokens)
    print(f"offline: {len(texts) * (options.tokens - 1) / seconds:.1f} tokens/s\n| slots | clients | tokens/s | texts |\n|---|---|---|---|")
    for slots in options.slots:
        if slots != 1:
            server.end()
            server = Server(options, slots)
        await rates(options, server, slots, texts, alone)
    await first_token(options, server, words)
    if options.requests:
        await requests(options, server, texts)
    if options.leavers:
        await leavers(options, server, texts, alone)
    server.end()


def main():
    numbers = lambda text: [int(n) for n in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--slots", type=numbers, default=[1, 4, 8])
    parser.add_argument("--clients", type=numbers, default=[1, 8, 64])
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--leavers", type=int, default=0)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
