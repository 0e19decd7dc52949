# SPDX-License-Identifier: Apache-2.0
"""Libraries for programs outside of this repository, and their headers.

    load("//third_party/bazel:sdk.bzl", "sdk_library")

    sdk_library(
        name = "tessera_cpp_train",
        libraries = ["yaml-cpp"],
        sdk_deps = [":tessera_cpp_nn"],
        deps = ["//train", "//train/tasks"],
    )

builds libtessera_cpp_train.so and libtessera_cpp_train.a of the objects that `deps` and what they
depend on have, less those of `sdk_deps`, which are other such libraries. Kernels, families and tasks
register themselves, so nothing may be left out by a linker: the archive holds one object, made of
all. `libraries` are the system's that these objects need.

tessera_cpp_train.headers lists the public headers that come in addition, a path a line: those of its
sources that `public_headers` names.

    sdk_headers(
        name = "headers",
        libraries = {
            ":tessera_cpp_nn": "nn",
            ":tessera_cpp_train": "train",
        },
    )

lets a program include each of them as <tessera/core/tensor.h>, and all of a library, and of those
before it, as <tessera/nn.h>. headers.list has their paths.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# Of a library and those below it: the shared one, objects and headers, as sets (keys of a dict), and
# the public ones among the headers that come in addition, as a list.
SdkInfo = provider(fields = ["shared", "objects", "headers", "public_headers"])

def _objects(linking_context):
    objects = []
    for linker_input in linking_context.linker_inputs.to_list():
        if not linker_input.owner.workspace_name:
            for library in linker_input.libraries:
                objects += library.pic_objects or library.objects
    return objects

def _set(lists):
    return {element: None for elements in lists for element in elements}

def _sdk_library_impl(context):
    info = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in context.attr.deps])
    toolchain = find_cpp_toolchain(context)
    compiler = toolchain.compiler_executable
    below = [dep[SdkInfo] for dep in context.attr.sdk_deps]
    shared_below = [sdk.shared for sdk in below]
    objects_below = _set([sdk.objects for sdk in below])
    headers_below = _set([sdk.headers for sdk in below])

    name = "lib" + context.label.name
    all_objects = _set([_objects(info.linking_context)])
    own_objects = [object for object in all_objects if object not in objects_below]
    objects = context.actions.args()
    objects.add_all(own_objects)
    objects.use_param_file("@%s", use_always = True)

    whole = context.actions.declare_file("_objs/%s.o" % name)
    context.actions.run_shell(
        mnemonic = "SdkObject",
        command = "%s -r -nostdlib -o %s $1" % (compiler, whole.path),
        arguments = [objects],
        inputs = depset(own_objects, transitive = [toolchain.all_files]),
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
                           [library.path for library in shared_below] + [
            "-Wl,-soname,%s.so.0" % name,
            "-Wl,--disable-new-dtags,-rpath,'$ORIGIN:$ORIGIN/tessera'",
            "-Wl,--no-undefined,--as-needed",
            "-pthread",
        ] + ["-l" + library for library in context.attr.libraries] + ["-lstdc++", "-lm"] +
                           context.fragments.cpp.linkopts),
        inputs = depset([whole] + shared_below, transitive = [toolchain.all_files]),
        outputs = [shared],
        use_default_shell_env = True,
    )

    all_headers = _set([info.compilation_context.headers.to_list()])
    own_headers = [
        header
        for header in all_headers
        if not header.owner.workspace_name and header not in headers_below
    ]
    public = _set([context.attr.public_headers])
    headers = [header for header in own_headers if header.short_path in public]
    header_list = context.actions.declare_file(context.label.name + ".headers")
    context.actions.write(header_list, "".join([h.short_path + "\n" for h in headers]))

    files = depset([shared, archive, header_list])
    return [
        DefaultInfo(
            files = files,
            runfiles = context.runfiles(own_headers, transitive_files = files),
        ),
        SdkInfo(
            shared = shared,
            objects = all_objects,
            headers = all_headers,
            public_headers = headers,
        ),
    ]

sdk_library = rule(
    implementation = _sdk_library_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "libraries": attr.string_list(),
        "public_headers": attr.string_list(),
        "sdk_deps": attr.label_list(providers = [SdkInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

# A header <tessera/NAME> that includes these.
def _including(context, name, comment, includes):
    header = context.actions.declare_file("include/tessera/" + name)
    context.actions.write(header, "// SPDX-License-Identifier: Apache-2.0\n// {}\n#pragma once\n{}".format(
        comment,
        "".join(["#include %s\n" % path for path in includes]),
    ))
    return header

def _sdk_headers_impl(context):
    paths = []
    made = []
    umbrellas = []
    for library, umbrella in context.attr.libraries.items():
        own = sorted([header.short_path for header in library[SdkInfo].public_headers])
        paths += own
        made += [_including(context, path, "Where the sources have it.", ["\"%s\"" % path]) for path in own]
        if umbrella:
            umbrellas.append("<tessera/%s.h>" % umbrella)
            made.append(_including(
                context,
                umbrella + ".h",
                "All public headers of %s." % library.label.name,
                umbrellas[:-1] + ["<tessera/%s>" % path for path in own],
            ))
    headers = _set([library[SdkInfo].headers for library in context.attr.libraries.keys()]).keys()
    list_of_paths = context.actions.declare_file(context.label.name + ".list")
    context.actions.write(list_of_paths, "".join([path + "\n" for path in paths]))
    files = depset([list_of_paths] + made)
    here = "/".join([context.bin_dir.path] +
                    ([context.label.workspace_root] if context.label.workspace_root else []) +
                    [context.label.package, "include"])
    compilation = cc_common.create_compilation_context(
        headers = depset(headers + made),
        quote_includes = depset([context.label.workspace_root or "."]),
        system_includes = depset([here]),
    )
    return [
        DefaultInfo(
            files = files,
            runfiles = context.runfiles(
                [header for header in headers if not header.owner.workspace_name],
                transitive_files = files,
            ),
        ),
        CcInfo(compilation_context = compilation),
    ]

sdk_headers = rule(
    implementation = _sdk_headers_impl,
    attrs = {"libraries": attr.label_keyed_string_dict(providers = [SdkInfo])},
)
