# SPDX-License-Identifier: Apache-2.0
"""Libraries for programs that are not built here: all that they are made of inside, C outside.

    load("//third_party/bazel:c_library.bzl", "c_library")

    c_library(
        name = "tessera",
        exports = "exports.map",
        prefix = "tsr_",
        dep = ":c_api",
    )

gives libtessera.so, which is libtessera.so.0 too, the name that programs of this repository link,
and libtessera.a. Both hold everything that `dep` needs but libc and libm, the C++ library included,
and show the symbols that begin with `prefix` alone: whatever a host is linked with beside them
cannot clash. The archive is one object, so that what only registers itself is there as soon as
anything is used.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("//third_party/bazel:for_size.bzl", "for_size")

# The C++ library, from archives. Those before it are of the same kind by what system_library says.
_CXX_ARCHIVES = [
    "-l:libstdc++.a",
    "-l:libgcc_eh.a",
    "-l:libgcc.a",
]

def _relocatable_archive_impl(context):
    toolchain = find_cpp_toolchain(context)
    files = []
    arguments = []
    flags = []
    for input in context.attr.dep[0][CcInfo].linking_context.linker_inputs.to_list():
        flags += input.user_link_flags
        for library in input.libraries:
            file = library.pic_static_library or library.static_library
            files.append(file)
            if library.alwayslink:
                arguments += ["-Wl,--whole-archive", file.path, "-Wl,--no-whole-archive"]
            else:
                arguments.append(file.path)
    archives = [flag for flag in flags if flag.startswith("-l:")]
    context.actions.run_shell(
        inputs = depset(files, transitive = [toolchain.all_files]),
        outputs = [context.outputs.out],
        # Groups of templates are dissolved, or a host's copy of one could take the place of ours;
        # symbols that are unique in a process become weak, which alone can be made local.
        command = """set -e
object={out}.o
{compiler} -r -nostdlib -o $object -Wl,--force-group-allocation -Wl,--start-group "$@" -Wl,--end-group
{objcopy} --wildcard --weaken-symbol='_Z*' $object
{objcopy} --wildcard --keep-global-symbol='{prefix}*' $object
rm -f {out}
{ar} rcsD {out} $object
rm $object
""".format(
            ar = toolchain.ar_executable,
            compiler = toolchain.compiler_executable,
            objcopy = toolchain.objcopy_executable,
            out = context.outputs.out.path,
            prefix = context.attr.prefix,
        ),
        arguments = arguments + archives + _CXX_ARCHIVES,
        mnemonic = "RelocatableArchive",
        use_default_shell_env = True,
    )

_relocatable_archive = rule(
    implementation = _relocatable_archive_impl,
    attrs = {
        "dep": attr.label(
            cfg = for_size,
            mandatory = True,
            providers = [CcInfo],
        ),
        "out": attr.output(mandatory = True),
        "prefix": attr.string(mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _shared_library_impl(context):
    [library] = context.attr.library[0][DefaultInfo].files.to_list()
    for out in [context.outputs.out, context.outputs.soname]:
        context.actions.symlink(output = out, target_file = library)

_shared_library = rule(
    implementation = _shared_library_impl,
    attrs = {
        "library": attr.label(
            cfg = for_size,
            mandatory = True,
        ),
        "out": attr.output(mandatory = True),
        "soname": attr.output(mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)

def c_library(name, dep, exports, prefix, visibility = None):
    """lib<name>.so and lib<name>.a of `dep`, which is linked whole."""
    native.cc_binary(
        name = name + "_linked.so",
        linkshared = True,
        additional_linker_inputs = [exports],
        deps = [dep],
        linkopts = [
            "-Wl,--version-script=$(location %s)" % exports,
            "-Wl,-soname,lib%s.so.0" % name,
            "-Wl,--no-undefined",
            "-Wl,--as-needed",
            # Its threads outlive dlclose.
            "-Wl,-z,nodelete",
            # Functions that are the same, as those of many templates are, become one, and so do
            # constants; ends of texts are shared.
            "-fuse-ld=lld",
            "-Wl,--icf=all",
            "-Wl,--ignore-data-address-equality",
            "-Wl,-O2",
            "-static-libgcc",
            "-l:libstdc++.a",
        ],
        tags = ["manual"],
        visibility = ["//visibility:private"],
    )
    _shared_library(
        name = name + "_shared",
        library = name + "_linked.so",
        out = "lib%s.so" % name,
        soname = "lib%s.so.0" % name,
        visibility = visibility,
    )
    _relocatable_archive(
        name = name + "_archive",
        dep = dep,
        out = "lib%s.a" % name,
        prefix = prefix,
        visibility = visibility,
    )
