# SPDX-License-Identifier: Apache-2.0
"""Programs that stay alive and answer lines, so that they can be timed in turns: what the scripts of this folder share."""
import json
import statistics
import subprocess


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Program:
    """A process that prints "start" once it is ready, and then answers each line with one of JSON."""

    def __init__(self, name, command):
        self.name, self.command, self.rates = name, [str(word) for word in command], {}
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read("start")

    def read(self, wanted):
        for line in self.process.stdout:
            if line.startswith(wanted):
                return line
        raise SystemExit(f"{self.name} has ended: {' '.join(self.command)}")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.read("{"))

    def note(self, what, rate):
        self.rates.setdefault(what, []).append(rate)

    def rate(self, what):
        return statistics.median(self.rates[what])
