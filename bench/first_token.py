#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Milliseconds from the start of `tessera generate` to the first byte that it prints, and to its end: one token, files in the page cache.

  bazel build //tools:tessera
  python3 bench/first_token.py q8-folder f32-folder bf16-folder:bfloat16 [--prompt "Hello world"] [--runs 41]

A folder may say its --dtype behind a colon. Without --prompt two ids are continued, and no tokenizer is read. The folders' programs run in turns.
Standard library alone.
"""
import argparse
import os
import statistics
import time


def run(command):
    reads, writes = os.pipe()
    begin = time.perf_counter()
    process = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writes, 1)])
    os.close(writes)
    first = os.read(reads, 1)
    first_byte = time.perf_counter() - begin
    status = os.waitpid(process, 0)[1]
    end = time.perf_counter() - begin
    os.close(reads)
    assert first and status == 0, f"failed: {' '.join(command)}"
    return first_byte * 1e3, end * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--tessera", default="bazel-bin/tools/tessera")
    parser.add_argument("--prompt")
    parser.add_argument("--runs", type=int, default=41)
    options = parser.parse_args()
    commands = {}
    for folder in options.folders:
        model, _, dtype = folder.partition(":")
        text = ["--prompt", options.prompt] if options.prompt else ["--ids", "15496,995"]
        commands[folder] = [options.tessera, "generate", "--model", model, *text, "--max-new-tokens", "1"] + (["--dtype", dtype] if dtype else [])
    times = {folder: [] for folder in commands}
    for _ in range(options.runs):
        for folder, command in commands.items():
            times[folder].append(run(command))
    print("| folder | first byte, ms (least) | end, ms (least) |\n|---|---|---|")
    for folder, pairs in times.items():
        first, end = zip(*pairs)
        print(f"| {os.path.basename(folder)} | {statistics.median(first):.1f} ({min(first):.1f}) | {statistics.median(end):.1f} ({min(end):.1f}) |")


if __name__ == "__main__":
    main()
