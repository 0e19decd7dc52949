// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/dynamic_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Parts(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The folders inside `folder`, sorted; none where it is no folder.
std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (fs::is_directory(it->path(), error)) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// <prefix>/lib/python3.*/{site,dist}-packages/nvidia/*/lib
void AddPythonPackages(const fs::path& prefix, std::vector<fs::path>* folders) {
  for (const fs::path& python : FoldersIn(prefix / "lib")) {
    if (python.filename().string().rfind("python3", 0) != 0) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const fs::path& package : FoldersIn(python / packages / "nvidia")) {
        folders->push_back(package / "lib");
      }
    }
  }
}

}  // namespace

LibrarySearch LibrarySearch::OfThisProcess() {
  LibrarySearch search;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) search.program_folder = program.parent_path().string();
  search.environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  return search;
}

std::vector<std::string> LibrarySearch::Folders() const {
  std::vector<fs::path> wanted;
  for (const std::string& folder : Parts(environment("TESSERA_CUDA_LIBRARIES"))) {
    wanted.emplace_back(folder);
  }
  if (!program_folder.empty()) {
    const fs::path program(program_folder);
    wanted.push_back(program);
    wanted.push_back(program / "lib");
    wanted.push_back(program.parent_path() / "lib");
  }
  const size_t system_at = wanted.size();
  const std::string home = environment("CUDA_HOME");
  wanted.push_back(fs::path(home.empty() ? "/usr/local/cuda" : home) / "lib64");
  const std::string venv = environment("VIRTUAL_ENV");
  if (!venv.empty()) AddPythonPackages(venv, &wanted);
  for (const std::string& folder : Parts(environment("PATH"))) {
    std::error_code error;
    if (fs::exists(fs::path(folder) / "python3", error)) {
      const fs::path prefix = fs::path(folder).parent_path();
      AddPythonPackages(prefix, &wanted);
      // Where Debian's pip installs.
      if (prefix == "/usr") AddPythonPackages("/usr/local", &wanted);
    }
  }
  std::vector<std::string> folders;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i == system_at) folders.push_back("");
    std::error_code error;
    const std::string folder = wanted[i].string();
    if (fs::is_directory(wanted[i], error) &&
        std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.push_back(folder);
    }
  }
  return folders;
}

StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::string& name,
                                              const LibrarySearch& search) {
  std::string reason;
  for (const std::string& folder : search.Folders()) {
    const std::string path = folder.empty() ? name : folder + "/" + name;
    std::error_code error;
    if (!folder.empty() && !fs::exists(path, error)) continue;
    DynamicLibrary library;
    library.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    library.path_ = path;
    if (library.handle_ != nullptr) return library;
    if (!folder.empty()) {
      const char* text = dlerror();
      reason = text != nullptr ? text : path;
    }
  }
  if (!reason.empty()) return NotFound(name, " does not load: ", reason);
  return NotFound(name,
                  " is not on this machine; TESSERA_CUDA_LIBRARIES, LD_LIBRARY_PATH or VIRTUAL_ENV "
                  "can say where it is");
}

StatusOr<void*> DynamicLibrary::Symbol(const char* function) const {
  void* symbol = dlsym(handle_, function);
  if (symbol == nullptr) return NotFound(path_, " has no function ", function);
  return symbol;
}

}  // namespace tessera::cuda
