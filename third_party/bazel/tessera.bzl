# SPDX-License-Identifier: Apache-2.0
"""How Tessera's C++ is compiled, and who may include whom.

    load("//third_party/bazel:tessera.bzl", "tessera_library", "tessera_test")

    tessera_library(
        name = "softmax",
        srcs = ["softmax.cc"],
        hdrs = ["softmax.h"],
        deps = ["//autograd"],
    )

    tessera_test(
        name = "softmax_test",
        srcs = ["softmax_test.cc"],
        deps = [":softmax"],
    )

A target's visibility follows from the floor (top-level folder) it lives on: the package groups
`//:above_<floor>` of the root BUILD.bazel. A package that must be seen by fewer says so itself.

Another workspace loads the same rules (third_party/bazel/repositories.bzl) for targets of its own. There
the floors have no say: whatever is not private may be used, a target of that workspace is as visible
as its package says, and warnings, of another compiler perhaps, are no errors.
"""

load("//third_party/bazel:for_size.bzl", "size_copts", "size_copts_of_kernels")
load("//third_party/bazel:link_only.bzl", "link_only")
load("//third_party/bazel:source_unit.bzl", "sources_in_units")

# The name of the repository that this file is in; "" where that is the workspace that is built.
_REPOSITORY = Label("//:BUILD.bazel").workspace_name

_WARNINGS = [
    "-Wall",
    "-Wextra",
] + ([] if _REPOSITORY else ["-Werror"]) + [
    # GCC 12 sees overlapping copies in plain std::string concatenation (GCC bug 105651).
    "-Wno-restrict",
]

_AVX512_FLAGS = [
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-mavx2",
    "-mfma",
    "-mf16c",
    "-mprefer-vector-width=512",
]

_ARM64 = str(Label("//third_party/bazel:arm64"))

# What makes other processors compute as x86-64 does: GCC would fuse a product and a sum wherever they
# meet, and char has no sign on ARM64.
_SAME_RESULTS = select({
    _ARM64: [
        "-ffp-contract=off",
        "-fsigned-char",
    ],
    "//conditions:default": [],
})

# What a source of tessera_isa_library is compiled for. `baseline` is any x86-64, `neon` any ARM64;
# `neondot` has dot products of bytes as well.
_ISA_FLAGS = {
    "baseline": [],
    "avx2": [
        "-mavx2",
        "-mfma",
        "-mf16c",
    ],
    "avx512": _AVX512_FLAGS,
    "avx512vnni": _AVX512_FLAGS + [
        "-mavx512vnni",
        "-DTESSERA_ISA_AVX512=1",
    ],
    "avx512bf16": _AVX512_FLAGS + [
        "-mavx512vnni",
        "-mavx512bf16",
        "-DTESSERA_ISA_AVX512=1",
    ],
    "amx": _AVX512_FLAGS + [
        "-mamx-tile",
        "-mamx-bf16",
        "-DTESSERA_ISA_AVX512=1",
    ],
    "neon": [],
    "neondot": [
        "-march=armv8.2-a+dotprod",
        "-DTESSERA_ISA_NEON=1",
    ],
}

_ARM64_ISAS = [
    "neon",
    "neondot",
]

_FLOORS = [
    "base",
    "core",
    "net",
    "autograd",
    "ops",
    "nn",
    "optim",
    "data",
    "models",
    "dist",
    "train",
    "runtime",
    "serve",
    "corpus",
    "tools",
]

def _floor_visibility():
    floor = native.package_name().split("/")[0]
    if floor in _FLOORS:
        return ["//:above_" + floor]
    return ["//:programs"]

# What runs once a step, a request, a layer or a file, and calls what the time goes to: a fifth less to
# compile.
_CALLERS = [
    "data/chat",
    "data/classification",
    "data/preference",
    "data/sequence_pairs",
    "dist",
    "models",
    "serve",
    "tools",
    "train",
]

# Within them what has loops over elements or tokens of its own.
_CALLED = [
    "dist/comm",
    "models/generation",
]

def _is_in(folders):
    package = native.package_name() + "/"
    for folder in folders:
        if package.startswith(folder + "/"):
            return True
    return False

def _level_copts():
    return ["-O1"] if _is_in(_CALLERS) and not _is_in(_CALLED) else []

def library_visibility(given):
    """Of a target on this floor, unless it is given."""
    return _visibility(given)

def _visibility(given):
    """Of a target that says `given` about it; None: nothing."""
    if not _REPOSITORY:
        return given or _floor_visibility()
    if native.repository_name() == "@" + _REPOSITORY and given != ["//visibility:private"]:
        return ["//visibility:public"]
    return given

def system_library(name, libraries = [], defines = [], from_sources = None, visibility = None):
    """A library of the distribution.

    `libraries` are the names behind -l, users before providers; `defines` is what its headers need
    to fit how it was built. `from_sources` is the same library compiled here, for ARM64, whose
    libraries the distribution does not install beside those of x86-64.
    """
    linkopts = (["-Wl,--push-state,--as-needed"] + ["-l" + library for library in libraries] +
                ["-Wl,--pop-state"]) if libraries else []
    native.cc_library(
        name = name,
        defines = defines,
        linkopts = select({
            _ARM64: [],
            "//conditions:default": linkopts,
        }) if from_sources else linkopts,
        deps = select({
            _ARM64: [from_sources],
            "//conditions:default": [],
        }) if from_sources else [],
        visibility = visibility,
    )

def tessera_library(
        name,
        srcs = [],
        hdrs = [],
        deps = [],
        copts = [],
        linkopts = [],
        alwayslink = False,
        testonly = False,
        separate = [],
        visibility = None,
        **kwargs):
    """A C++ library. `alwayslink` keeps objects that only register themselves.

    Its sources are compiled in units of several (source_unit.bzl), but for those in `separate`.
    """
    native.cc_library(
        name = name,
        srcs = sources_in_units(name, srcs, separate, testonly),
        hdrs = hdrs,
        deps = deps,
        copts = _WARNINGS + _SAME_RESULTS + _level_copts() + size_copts() + copts,
        linkopts = linkopts,
        alwayslink = alwayslink,
        linkstatic = True,
        testonly = testonly,
        visibility = _visibility(visibility),
        **kwargs
    )

def tessera_isa_library(
        name,
        srcs,
        hdrs = [],
        private_hdrs = [],
        deps = [],
        copts = [],
        isas = ["baseline", "avx2", "avx512"],
        level_for_size = "-O2",
        visibility = None,
        **kwargs):
    """Compiles each source once per instruction set; one library holds the results.

    `isas` are those of x86-64, and `neondot` of ARM64. There a source is compiled for `neon`, too, if
    it is for `baseline`.

    The source sees TESSERA_ISA (baseline, avx2, avx512, avx512vnni, avx512bf16, amx, neon or neondot:
    the name of the namespace its code stands in) and, for #if, TESSERA_ISA_BASELINE, ...,
    TESSERA_ISA_NEON = 1; those after avx512 on x86-64 have TESSERA_ISA_AVX512 as well, and neondot
    has TESSERA_ISA_NEON. It
    includes intrinsics, <cstdint>, <cstddef> and headers of raw pointers only: an inline function
    of a library or of std compiled here could be merged with another file's copy and be an
    illegal instruction on an older processor. core/cpu_isa.h chooses among the results.

    `hdrs` are for whoever calls the kernels. `private_hdrs` are the sources' own: nobody else sees
    them, so that a change to one compiles these sources alone (link_only.bzl).

    `level_for_size` is the level of optimisation in libraries for other programs (for_size.bzl):
    "-Os" where the time goes elsewhere.
    """
    parts = {}
    for isa in isas + (["neon"] if "baseline" in isas else []):
        part = name + "_" + isa
        native.cc_library(
            name = part,
            srcs = srcs + private_hdrs,
            hdrs = hdrs,
            deps = deps,
            copts = _WARNINGS + _ISA_FLAGS[isa] + [
                "-DTESSERA_ISA=" + isa,
                "-DTESSERA_ISA_%s=1" % isa.upper(),
                "-O3",
                # A sum is fused where the source says so, the same in vector bodies and tails.
                "-ffp-contract=off",
                # GCC 12 warns about its own AVX-512 headers (GCC bug 105593).
                "-Wno-uninitialized",
                "-Wno-maybe-uninitialized",
                "-fno-exceptions",
                # What only processors of before 2013 run counts by its size there.
            ] + size_copts_of_kernels("-Os" if isa == "baseline" else level_for_size) + copts,
            linkstatic = True,
            # Which of them can be compiled, the processor says.
            tags = ["manual"],
            visibility = ["//visibility:private"],
            **kwargs
        )
        parts[isa] = ":" + part
    compiled = select({
        _ARM64: [part for isa, part in parts.items() if isa in _ARM64_ISAS],
        "//conditions:default": [part for isa, part in parts.items() if isa not in _ARM64_ISAS],
    })
    if not private_hdrs:
        native.cc_library(
            name = name,
            hdrs = hdrs,
            deps = compiled,
            visibility = _visibility(visibility),
            **kwargs
        )
        return
    native.cc_library(
        name = name + "_headers",
        hdrs = hdrs,
        deps = deps,
        visibility = ["//visibility:private"],
    )
    link_only(
        name = name,
        headers = [":%s_headers" % name],
        visibility = _visibility(visibility),
        deps = compiled,
        **kwargs
    )

def tessera_test(name, srcs, deps = [], copts = [], size = "small", **kwargs):
    """A GoogleTest program; main comes from gtest_main."""
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs,
        deps = deps + [Label("//third_party:gtest")],
        copts = _WARNINGS + _SAME_RESULTS + copts,
        linkstatic = True,
        visibility = ["//visibility:private"],
        **kwargs
    )

def tessera_mpi_test(name, srcs, ranks, deps = [], copts = [], args = [], size = "small", **kwargs):
    """A GoogleTest program with a main of its own that runs on ranks of one machine.

    `ranks` lists how many: [1, 2] gives the tests <name>_1 and <name>_2. third_party/bazel/mpi_test.sh
    starts them; more ranks than cores are allowed.
    """
    native.cc_binary(
        name = name,
        srcs = srcs,
        deps = deps + [Label("//third_party:gtest")],
        copts = _WARNINGS + _SAME_RESULTS + copts,
        linkstatic = True,
        testonly = True,
        visibility = ["//visibility:private"],
    )
    for n in ranks:
        native.sh_test(
            name = "%s_%d" % (name, n),
            size = size,
            srcs = [Label("//third_party/bazel:mpi_test.sh")],
            args = [str(n), "$(location :%s)" % name] + args,
            data = [":" + name],
            visibility = ["//visibility:private"],
            **kwargs
        )

def tessera_binary(name, srcs, deps = [], copts = [], visibility = None, **kwargs):
    """A program."""
    native.cc_binary(
        name = name,
        srcs = srcs,
        deps = deps,
        copts = _WARNINGS + _SAME_RESULTS + copts,
        visibility = _visibility(visibility),
        **kwargs
    )

def tessera_benchmark(name, srcs, deps = [], copts = [], **kwargs):
    """A Google Benchmark program; main comes from benchmark_main."""
    native.cc_binary(
        name = name,
        srcs = srcs,
        deps = deps + [Label("//third_party:benchmark")],
        copts = _WARNINGS + copts,
        testonly = True,
        visibility = ["//visibility:private"],
        **kwargs
    )
