"""Libraries of whole floors, for programs outside of this repository, and their headers.

    load("//third_party/bazel:sdk.bzl", "sdk_library")

    sdk_library(
        name = "tessera_cpp_nn",
        floors = ["core", "autograd", "ops", "nn"],
        libraries = ["pcre2-8"],
        deps = ["//nn", "//ops:all"],
    )

builds libtessera_cpp_nn.so and libtessera_cpp_nn.a of the objects that `deps` and what they depend on
have on these floors. Kernels, families and tasks register themselves, so nothing may be left out by
a linker: the archive holds one object, made of all. `libraries` are the system's that these objects
need; `sdk_deps` are other such libraries. tessera_cpp_nn.headers lists the headers, a path a line;
those with one of `private_headers` in their path, which need what a user may not have, stay inside.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

SdkInfo = provider(fields = ["shared"])

def _on_floors(path, floors):
    return path.split("/")[0] in floors

def _is_public(path, private_headers):
    for part in private_headers:
        if part in path:
            return False
    return path.endswith(".h")

def _objects(linking_context, floors):
    objects = []
    for linker_input in linking_context.linker_inputs.to_list():
        owner = linker_input.owner
        if owner.workspace_name or not _on_floors(owner.package, floors):
            continue
        for library in linker_input.libraries:
            objects += library.pic_objects or library.objects
    return objects

def _sdk_library_impl(context):
    floors = context.attr.floors
    info = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in context.attr.deps])
    toolchain = find_cpp_toolchain(context)
    compiler = toolchain.compiler_executable
    below = [dep[SdkInfo].shared for dep in context.attr.sdk_deps]

    name = "lib" + context.label.name
    objects = context.actions.args()
    objects.add_all(_objects(info.linking_context, floors), uniquify = True)
    objects.use_param_file("@%s", use_always = True)

    whole = context.actions.declare_file("_objs/%s.o" % name)
    context.actions.run_shell(
        mnemonic = "SdkObject",
        command = "%s -r -nostdlib -o %s $1" % (compiler, whole.path),
        arguments = [objects],
        inputs = depset(_objects(info.linking_context, floors), transitive = [toolchain.all_files]),
        outputs = [whole],
        use_default_shell_env = True,
    )
    archive = context.actions.declare_file(name + ".a")
    context.actions.run_shell(
        mnemonic = "SdkArchive",
        command = "rm -f {0} && {1} rcsD {0} {2}".format(
            archive.path,
            toolchain.ar_executable,
            whole.path,
        ),
        inputs = depset([whole], transitive = [toolchain.all_files]),
        outputs = [archive],
        use_default_shell_env = True,
    )

    # A package has copies of the system's libraries in lib/tessera where it brings them along; those
    # are found for their own needs as well, which a runpath is not.
    shared = context.actions.declare_file(name + ".so")
    context.actions.run_shell(
        mnemonic = "SdkShared",
        command = " ".join([compiler, "-shared", "-o", shared.path, whole.path] +
                           [library.path for library in below] + [
            "-Wl,-soname,%s.so.0" % name,
            "-Wl,--disable-new-dtags,-rpath,'$ORIGIN:$ORIGIN/tessera'",
            "-Wl,--no-undefined,--as-needed",
            "-pthread",
        ] + ["-l" + library for library in context.attr.libraries] + ["-lstdc++", "-lm"] +
                           context.fragments.cpp.linkopts),
        inputs = depset([whole] + below, transitive = [toolchain.all_files]),
        outputs = [shared],
        use_default_shell_env = True,
    )

    headers = [
        header
        for header in info.compilation_context.headers.to_list()
        if _on_floors(header.short_path, floors) and
           _is_public(header.short_path, context.attr.private_headers)
    ]
    header_list = context.actions.declare_file(context.label.name + ".headers")
    context.actions.write(header_list, "".join([h.short_path + "\n" for h in headers]))

    files = depset([shared, archive, header_list])
    return [
        DefaultInfo(
            files = files,
            runfiles = context.runfiles(headers, transitive_files = files),
        ),
        SdkInfo(shared = shared),
    ]

sdk_library = rule(
    implementation = _sdk_library_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "floors": attr.string_list(mandatory = True),
        "libraries": attr.string_list(),
        "private_headers": attr.string_list(),
        "sdk_deps": attr.label_list(providers = [SdkInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
