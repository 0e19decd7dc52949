// SPDX-License-Identifier: Apache-2.0
// libcurl, loaded when something is first fetched: nothing else of the program needs it.
#ifndef TESSERA_CORPUS_FETCH_CURL_LIBRARY_H_
#define TESSERA_CORPUS_FETCH_CURL_LIBRARY_H_

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "base/status.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

namespace tessera::corpus {

// Functions by curl's names without the prefix.
struct CurlLibrary {
#define TESSERA_CURL_FUNCTION(name) decltype(&curl_##name) name = nullptr
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
};

// The one of this process; NotFound with the package that has it. It stays loaded.
StatusOr<const CurlLibrary*> LoadCurl();

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_FETCH_CURL_LIBRARY_H_
