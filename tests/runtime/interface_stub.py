# SPDX-License-Identifier: Apache-2.0
"""interface_stub.py HEADER FOLDER OUT: a source that defines what a header of C declares, so that
its debug information describes the whole interface: cc -g -shared. FOLDER has what it includes."""

import re
import sys

header, folder, out = sys.argv[1:]


def text_of(path):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    return re.sub(
        r'^#include "(.*)"$', lambda match: text_of(f"{folder}/{match[1]}"), text, flags=re.M)


FUNCTION = r"(^(?!typedef)[a-z][a-z_0-9 *]*\btsr_[a-z_]+\([^;{}]*\));"
with open(out, "w", encoding="utf-8") as file:
    file.write(re.sub(FUNCTION, r"\1 { __builtin_trap(); }", text_of(header), flags=re.M))
