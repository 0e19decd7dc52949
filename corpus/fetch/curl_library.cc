// SPDX-License-Identifier: Apache-2.0
#include "corpus/fetch/curl_library.h"

#include <dlfcn.h>

#include <string>

namespace tessera::corpus {
namespace {

StatusOr<CurlLibrary> Load() {
  void* const library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return NotFound("libcurl cannot be loaded (", dlerror(), "); Debian's package libcurl4 has it");
  }
  CurlLibrary curl;
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    void* const address = dlsym(library, name);
    if (address == nullptr) missing = name;
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(address);
  };
#define TESSERA_CURL_FUNCTION(name) find("curl_" #name, &curl.name)
  TESSERA_CURL_FUNCTION(global_init);
  TESSERA_CURL_FUNCTION(easy_init);
  TESSERA_CURL_FUNCTION(easy_setopt);
  TESSERA_CURL_FUNCTION(easy_getinfo);
  TESSERA_CURL_FUNCTION(easy_strerror);
  TESSERA_CURL_FUNCTION(easy_cleanup);
  TESSERA_CURL_FUNCTION(multi_init);
  TESSERA_CURL_FUNCTION(multi_setopt);
  TESSERA_CURL_FUNCTION(multi_add_handle);
  TESSERA_CURL_FUNCTION(multi_remove_handle);
  TESSERA_CURL_FUNCTION(multi_perform);
  TESSERA_CURL_FUNCTION(multi_poll);
  TESSERA_CURL_FUNCTION(multi_info_read);
  TESSERA_CURL_FUNCTION(multi_cleanup);
#undef TESSERA_CURL_FUNCTION
  if (!missing.empty()) return NotFound("libcurl has no ", missing);
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return Internal("libcurl does not start");
  return curl;
}

}  // namespace

StatusOr<const CurlLibrary*> LoadCurl() {
  static const auto* const loaded = new StatusOr<CurlLibrary>(Load());
  TESSERA_RETURN_IF_ERROR(loaded->status());
  return &**loaded;
}

}  // namespace tessera::corpus
