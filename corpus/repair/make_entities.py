# SPDX-License-Identifier: Apache-2.0
"""Writes entities.inc: the characters that HTML 4 has names for.

    python corpus/repair/make_entities.py > corpus/repair/entities.inc
"""
from html.entities import name2codepoint

print("// SPDX-License-Identifier: Apache-2.0")
print("// {name, character}, sorted by name; made by make_entities.py.")
line = ""
for name in sorted(name2codepoint):
    item = '{"%s", 0x%X},' % (name, name2codepoint[name])
    if len(line) + 1 + len(item) > 100:
        print(line)
        line = item
    else:
        line = (line + " " + item).strip()
print(line)
