// SPDX-License-Identifier: Apache-2.0
// Addresses of the web, as far as lists of them need.
#ifndef TESSERA_CORPUS_URLS_URL_H_
#define TESSERA_CORPUS_URLS_URL_H_

#include <optional>
#include <string>
#include <string_view>

namespace tessera::corpus {

struct Url {
  std::string scheme;  // http or https
  std::string host;    // in lower case
  std::string port;    // empty: the scheme's
  std::string path;    // from "/" on, with the query; "/" at least
};

// Nothing for what is no address of http or https that a crawler could ask: another scheme, no
// host with a dot in it (localhost and addresses of numbers are hosts), blanks or controls, a port
// that is none, more than 2048 bytes. User names are dropped, and so is what is behind "#".
std::optional<Url> ParseUrl(std::string_view text);

// The same for addresses of one page: scheme and "www." left out, no default port, no "/" at the
// end.
std::string UrlKey(const Url& url);

// Whether an address that ParseUrl reads has the form that Megatron-LM's blacklist_urls.py asks
// for: a name with a dot, or four numbers, and behind it nothing but a port, "/..." or "?...".
// "_", localhost and users do not fit. Names in other letters, which that script drops, do.
bool HasUsualForm(std::string_view text);

// "google" of www.google.com and of www.google.co.uk: what somebody has registered below a country,
// a top-level domain, or a country's com, co, org and the like. Of four numbers they themselves.
std::string_view RegisteredName(std::string_view host);

// "pdf" of "/a/b.PDF?x=1"; empty where there is none.
std::string ExtensionOf(const Url& url);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_URLS_URL_H_
