# SPDX-License-Identifier: Apache-2.0
"""Code that is compiled for size instead of speed: whatever a library for other programs is made of
(c_library.bzl). Results are the same: there is no arithmetic that an optimisation may reorder."""

_SETTING = str(Label("//third_party/bazel:for_size"))

def _flag_impl(_):
    return []

for_size_flag = rule(
    implementation = _flag_impl,
    build_setting = config.bool(),
)

def _for_size_impl(_settings, _attributes):
    return {_SETTING: True}

# The configuration of a rule's dependencies.
for_size = transition(
    implementation = _for_size_impl,
    inputs = [],
    outputs = [_SETTING],
)

def size_copts(level = "-Os"):
    """Compiler options of a library of this project."""
    return select({
        str(Label("//third_party/bazel:built_for_size")): [level],
        "//conditions:default": [],
    })
