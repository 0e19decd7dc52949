// SPDX-License-Identifier: Apache-2.0
#include "tools/libraries/loaded_libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

namespace tessera::tools {
namespace {

std::string LastPart(const std::string& path) { return path.substr(path.rfind('/') + 1); }

int AddFile(dl_phdr_info* info, size_t /*size*/, void* files) {
  const std::string name = LastPart(info->dlpi_name == nullptr ? "" : info->dlpi_name);
  // The program itself has an empty name.
  if (!name.empty() && !name.starts_with("linux-vdso")) {
    static_cast<std::vector<std::string>*>(files)->push_back(name);
  }
  return 0;
}

bool Owns(const Library& library, const std::string& file) {
  return std::any_of(library.files.begin(), library.files.end(),
                     [&](std::string_view begin) { return file.starts_with(begin); });
}

// "/usr/lib/libicuuc.so.72.1" of "libicuuc.so.72"; empty where it is not loaded.
std::string FullPath(const std::string& file) {
  void* const handle = dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return "";
  const link_map* map = nullptr;
  const bool found = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0;
  const std::unique_ptr<char, decltype(&std::free)> path(
      found ? realpath(map->l_name, nullptr) : nullptr, &std::free);
  dlclose(handle);
  return path == nullptr ? "" : path.get();
}

std::string VersionOf(const Library& library, const std::vector<std::string>& files) {
  if (library.version_function != nullptr) {
    void* const function = dlsym(RTLD_DEFAULT, library.version_function);
    if (function != nullptr) return reinterpret_cast<const char* (*)()>(function)();
  }
  if (!library.version.empty() || files.empty()) return library.version;
  return VersionInFileName(LastPart(FullPath(files[0])));
}

}  // namespace

std::vector<std::string> LoadedFiles() {
  std::vector<std::string> files;
  dl_iterate_phdr(AddFile, &files);
  std::sort(files.begin(), files.end());
  return files;
}

std::string VersionInFileName(std::string_view name) {
  const size_t end = name.find(".so.");
  return end == std::string_view::npos ? "" : std::string(name.substr(end + 4));
}

std::vector<ListedLibrary> ListLibraries(const std::vector<std::string>& files) {
  std::vector<ListedLibrary> listed;
  std::vector<std::string> left = files;
  for (const Library& library : LibraryTable()) {
    ListedLibrary entry = {.name = std::string(library.name), .library = &library};
    const auto owned = std::stable_partition(
        left.begin(), left.end(), [&](const std::string& file) { return !Owns(library, file); });
    entry.files.assign(owned, left.end());
    left.erase(owned, left.end());
    // What comes with another library is there where that is.
    const bool is_of_a_library = library.kind == Library::Kind::kShared && library.target.empty();
    if (entry.files.empty() && (is_of_a_library || !IsBuiltIn(library))) continue;
    entry.version = VersionOf(library, entry.files);
    listed.push_back(std::move(entry));
  }
  for (const std::string& file : left) {
    listed.push_back({.name = file.substr(0, file.find(".so")),
                      .version = VersionInFileName(LastPart(FullPath(file))),
                      .files = {file}});
  }
  return listed;
}

}  // namespace tessera::tools
