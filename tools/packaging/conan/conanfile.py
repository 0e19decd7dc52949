# SPDX-License-Identifier: Apache-2.0
"""A Conan package of the libraries for C, of what tools/package has made:

    TESSERA_PREFIX=out conan export-pkg tools/packaging/conan -of /tmp/tessera-conan

gives the targets tessera::tessera and tessera::training, which need libc and libm alone. With
`-o "tessera/*:shared=False"` they are the archives.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.files import copy, load


class TesseraConan(ConanFile):
    name = "tessera"
    description = "Deep-learning framework: the runtime for C"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch"
    options = {"shared": [True, False]}
    default_options = {"shared": True}

    @property
    def _prefix(self):
        prefix = os.environ.get("TESSERA_PREFIX")
        if not prefix:
            raise ConanException("TESSERA_PREFIX: set it to the folder that tools/package has made")
        return os.path.abspath(prefix)

    def set_version(self):
        header = load(self, os.path.join(self._prefix, "include", "tessera.h"))
        self.version = re.search(r'#define TSR_VERSION "([^"]+)"', header).group(1)

    def package(self):
        prefix, folder = self._prefix, self.package_folder
        libraries = "libtessera*.so*" if self.options.shared else "libtessera*.a"
        copy(self, "tessera*.h*", os.path.join(prefix, "include"), os.path.join(folder, "include"),
             keep_path=False, excludes="tessera/*")
        copy(self, libraries, os.path.join(prefix, "lib"), os.path.join(folder, "lib"),
             excludes=["libtessera_cpp_*", "tessera/*"])
        copy(self, "*", os.path.join(prefix, "share/doc/tessera"),
             os.path.join(folder, "licenses"), excludes="*.copyright")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "tessera")
        for name, library in [("tessera", "tessera"), ("training", "tessera_training")]:
            component = self.cpp_info.components[name]
            component.set_property("cmake_target_name", f"tessera::{name}")
            component.set_property("pkg_config_name", library.replace("_", "-"))
            component.libs = [library]
            component.system_libs = ["m", "pthread"]
