#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel for Python from what tools/package has laid out:

    wheel.py PREFIX MODULE OUT VERSION MACHINE

PREFIX has bin/tessera, lib/libtessera_training.so.0, lib/tessera and share; MODULE is the folder
python/tessera; MACHINE is x86_64 or aarch64. The wheel is written to OUT, under a name that says which
systems it runs on; the name is printed. The same files and the same SOURCE_DATE_EPOCH give the same bytes.

Installing puts the command itself into the environment's bin, no script of Python's, and its shared
libraries into lib/tessera beside that, where the command looks for them.
"""
from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import time
import zipfile

LIBRARY = "libtessera_training.so.0"  # all of tessera.h, and training

# What manylinux has every system have, of what is needed here.
SYSTEM_LIBRARIES = {
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
}

# The glibc of the oldest systems whose compiler's libraries have these versions of symbols, as the
# policies of manylinux have it (auditwheel, policy/manylinux-policy.json).
COMPILER_LIBRARIES = {
    "GLIBCXX": [("3.4.24", "2.27"), ("3.4.28", "2.31"), ("3.4.29", "2.34"), ("3.4.30", "2.35"),
                ("3.4.33", "2.39")],
    "CXXABI": [("1.3.11", "2.27"), ("1.3.12", "2.31"), ("1.3.13", "2.34"), ("1.3.15", "2.39")],
    "GCC": [("7.0.0", "2.27"), ("12.0.0", "2.35"), ("14.0.0", "2.39")],
}

DESCRIPTION = """\
Tessera trains and runs transformers. This package has the command `tessera` and a module:

    import tessera

    with tessera.Model("folder") as model:
        print(model.generate("Once upon a time", max_new_tokens=20))

The module needs no other package and, of the system, glibc alone. The command is a program of its
own; it needs glibc and the C++ library of GCC (libstdc++6, libgcc_s), too.
"""


def fail(message: str) -> None:
    sys.exit(f"error: {message}")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class Binary:
    """A program or library: what it is called, needs, and asks the system's libraries for."""

    def __init__(self, path: pathlib.Path) -> None:
        environment = {**os.environ, "LC_ALL": "C"}
        text = subprocess.run(
            ["objdump", "-p", path], check=True, capture_output=True, text=True, env=environment
        ).stdout
        self.path = path
        self.needed = re.findall(r"^ +NEEDED +(\S+)$", text, re.M)
        # "required from libc.so.6:", and a line for each version.
        references = text.partition("Version References:")[2]
        self.versions = re.findall(r"^ +0x\S+ 0x\S+ \d+ ([A-Z]+)_([0-9.]+)$", references, re.M)
        self.relative_relocations = "GLIBC_ABI_DT_RELR" in references


def glibc_of(binary: Binary) -> str:
    """The oldest glibc of systems that run it."""
    least = "2.36" if binary.relative_relocations else "2.17"
    for library, version in binary.versions:
        if library == "GLIBC":
            asked = version
        elif library in COMPILER_LIBRARIES:
            known = COMPILER_LIBRARIES[library]
            asked = next((glibc for one, glibc in known if numbers(version) <= numbers(one)), "")
            if not asked:
                fail(f"{binary.path}: {library}_{version} is newer than tools/packaging/wheel.py knows")
        else:
            continue  # between libraries that the wheel has
        least = max(least, asked, key=numbers)
    return least


def platform_tag(binaries: list[Binary], machine: str) -> str:
    present = {binary.path.name for binary in binaries} | SYSTEM_LIBRARIES
    for binary in binaries:
        for library in binary.needed:
            if library not in present:
                fail(f"{binary.path} needs {library}, which the wheel lacks and systems may lack")
    glibc = max((glibc_of(binary) for binary in binaries), key=numbers)
    return f"manylinux_{glibc.replace('.', '_')}_{machine}"


class Wheel:
    """The files of a wheel, by their names in it."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self.files[name] = (content, mode)

    def add_files(self, folder: str, paths: list[pathlib.Path], mode: int = 0o644) -> None:
        for path in paths:
            self.add(f"{folder}/{path.name}", path.read_bytes(), mode)

    def add_record(self, information: str) -> None:
        """Digests of all files, in the order in which they are written."""
        # The folder of information comes last, as the format recommends.
        self.files = dict(sorted(self.files.items(),
                                 key=lambda file: (file[0].startswith(information), file[0])))
        lines = []
        for name, (content, _) in self.files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.append(f"{name},sha256={digest.decode()},{len(content)}\n")
        record = f"{information}/RECORD"
        self.add(record, "".join([*lines, f"{record},,\n"]).encode())

    def write(self, path: pathlib.Path, seconds: int) -> None:
        moment = max(time.gmtime(seconds)[:6], (1980, 1, 1, 0, 0, 0))
        temporary = path.with_name(path.name + ".part")
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, (content, mode) in self.files.items():
                entry = zipfile.ZipInfo(name, moment)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.create_system = 3  # Unix: the mode counts
                entry.external_attr = (0o100000 | mode) << 16
                archive.writestr(entry, content)
        temporary.replace(path)


def metadata(version: str, licences: list[pathlib.Path]) -> str:
    return "\n".join([
        "Metadata-Version: 2.4",
        "Name: tessera",
        f"Version: {version}",
        "Summary: Trains and runs transformers",
        "License-Expression: Apache-2.0",
        *(f"License-File: {path.name}" for path in licences),
        "Requires-Python: >=3.9",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: 3",
        "Classifier: Typing :: Typed",
        "Description-Content-Type: text/markdown",
        "",
        DESCRIPTION,
    ])


def main() -> None:
    if len(sys.argv) != 6:
        fail("usage: wheel.py PREFIX MODULE OUT VERSION MACHINE")
    prefix, module, out = map(pathlib.Path, sys.argv[1:4])
    version, machine = sys.argv[4:]
    command = prefix / "bin" / "tessera"
    library = prefix / "lib" / LIBRARY
    brought = sorted((prefix / "lib" / "tessera").iterdir())
    documents = prefix / "share" / "doc" / "tessera"
    licences = [documents / "LICENSE", documents / "NOTICE", *sorted(documents.glob("*.copyright"))]
    binaries = [Binary(path) for path in [command, library, *brought]]
    tag = f"py3-none-{platform_tag(binaries, machine)}"

    wheel = Wheel()
    wheel.add_files("tessera", [*module.glob("*.py"), module / "py.typed"])
    wheel.add_files("tessera", [library], 0o755)
    data = f"tessera-{version}.data"
    wheel.add_files(f"{data}/scripts", [command], 0o755)
    wheel.add_files(f"{data}/data/lib/tessera", brought)
    wheel.add_files(f"{data}/data/share/man/man1", [prefix / "share/man/man1/tessera.1"])
    wheel.add_files(f"{data}/data/share/bash-completion/completions",
                    [prefix / "share/bash-completion/completions/tessera"])
    information = f"tessera-{version}.dist-info"
    wheel.add(f"{information}/METADATA", metadata(version, licences).encode())
    wheel.add(f"{information}/WHEEL", (
        "Wheel-Version: 1.0\nGenerator: tessera tools/package\nRoot-Is-Purelib: false\n"
        f"Tag: {tag}\n").encode())
    wheel.add_files(f"{information}/licenses", licences)
    wheel.add_files(f"{information}/sboms", [documents / "tessera.spdx.json"])
    wheel.add_record(information)

    out.mkdir(parents=True, exist_ok=True)
    path = out / f"tessera-{version}-{tag}.whl"
    wheel.write(path, int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    print(path.name)


if __name__ == "__main__":
    main()
