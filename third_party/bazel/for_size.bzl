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

_COPT = "//command_line_option:copt"

def _for_size_impl(settings, _attributes):
    sanitizers = [copt for copt in settings[_COPT] if copt.startswith("-fsanitize=")]
    return {_SETTING: not sanitizers}

# The configuration of a rule's dependencies. Under a sanitizer it is that of all else: nothing is
# compiled twice.
for_size = transition(
    implementation = _for_size_impl,
    inputs = [_COPT],
    outputs = [_SETTING],
)

def _for_size(copts):
    return select({
        str(Label("//third_party/bazel:built_for_size")): copts,
        "//conditions:default": [],
    })

def size_copts():
    """Compiler options of a library of this project."""
    return _for_size([
        "-Oz",
        # Nothing in such a library starts the profiler (core/profiler.h).
        "-DTESSERA_NO_PROFILER",
        # What JSON of another kind throws says no more than that (third_party/json).
        "-DTESSERA_SHORT_JSON_ERRORS",
        # A function that is hardly larger than its call, as that of a text of known length.
        "--param=max-inline-insns-size=1",
        # Expressions that are kept for later use cost more code than they save.
        "-fno-gcse",
        # Names and tables of types are for dynamic_cast and typeid; exceptions have theirs anyway.
        "-fno-rtti",
        # Arrays of 17 bytes and more are guarded: not the 16 within every std::string, which only
        # the C++ library writes to.
        "--param=ssp-buffer-size=17",
    ])

def size_copts_of_c():
    """Compiler options of C from elsewhere that is not what the time goes to."""
    return _for_size(["-Oz"])

def size_copts_of_kernels(level):
    """Compiler options of a source that is compiled once per instruction set."""
    return _for_size([
        level,
        # Nothing throws through a kernel: it needs no tables for unwinding.
        "-fno-asynchronous-unwind-tables",
    ])
