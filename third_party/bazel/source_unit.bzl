# SPDX-License-Identifier: Apache-2.0
"""Several sources of a library as one: most of a source's compile time goes to headers, and to functions
of the standard library, which its neighbours compile again.

    load("//third_party/bazel:source_unit.bzl", "sources_in_units")

    native.cc_library(
        name = "status",
        srcs = sources_in_units("status", ["error.cc", "status.cc"], separate = [], testonly = False),
    )

Lines and names of files are those of the sources, in errors, in assertions and for a debugger. What a
source needs it still includes itself: bazel build --config=separate //... compiles each alone. A name in a
source's anonymous namespace hides that of an outer namespace from its neighbours, too.
"""

# A change recompiles the unit that it is in. More sources gain little more for the first build.
_MOST_SOURCES = 8

_SEPARATE = str(Label("//third_party/bazel:separate"))

def _source_unit_impl(ctx):
    unit = ctx.actions.declare_file(ctx.label.name + ".cc")
    arguments = ctx.actions.args()
    arguments.add(unit)
    arguments.add_all(ctx.files.srcs)
    ctx.actions.run_shell(
        inputs = ctx.files.srcs,
        outputs = [unit],
        arguments = [arguments],
        command = """
            unit=$1; shift
            {
              # Of sources GCC would think that they are headers.
              printf '#pragma GCC diagnostic ignored "-Wsubobject-linkage"\\n'
              for source; do
                printf '#line 1 "%s"\\n' "$source"
                cat "$source"
              done
            } >"$unit"
        """,
        mnemonic = "SourceUnit",
    )
    return DefaultInfo(files = depset([unit]))

_source_unit = rule(
    implementation = _source_unit_impl,
    attrs = {"srcs": attr.label_list(allow_files = [".cc"])},
)

def sources_in_units(name, srcs, separate, testonly):
    """`srcs` of the library `name`, its sources in units.

    Sources in `separate` have names that others have, too, or macros; they are compiled alone, and so is
    what another target makes.
    """
    if type(srcs) != "list":
        if separate:
            fail("%s: sources of a select() are compiled alone anyway" % name)
        return srcs
    for source in separate:
        if source not in srcs:
            fail("%s: %s is separate, and no source" % (name, source))
    joined = [source for source in srcs if source.endswith(".cc") and source not in separate and
                                           ":" not in source]
    if len(joined) < 2:
        return srcs
    count = (len(joined) + _MOST_SOURCES - 1) // _MOST_SOURCES
    units = []
    for i in range(count):
        unit = "%s_unit_%d" % (name, i)
        _source_unit(
            name = unit,
            srcs = joined[len(joined) * i // count:len(joined) * (i + 1) // count],
            testonly = testonly,
            visibility = ["//visibility:private"],
        )
        units.append(":" + unit)
    return select({
        _SEPARATE: srcs,
        "//conditions:default": [source for source in srcs if source not in joined] + units,
    })
