// SPDX-License-Identifier: Apache-2.0
// `tessera corpus fetch`: the pages of a list of addresses, politely.
#ifndef TESSERA_CORPUS_FETCH_FETCH_H_
#define TESSERA_CORPUS_FETCH_FETCH_H_

#include <string>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/document_pass.h"

namespace tessera::corpus {

// A host is asked for one page at a time, for /robots.txt first, and then with pauses. Redirections
// are addresses of their own, whose hosts are asked as politely. Documents are written as they
// come: `url` (as it was asked for), `status`, `content_type`, and the page in `html`, a plain text
// in `text`, both as UTF-8. A killed run keeps what it has and asks for the rest.
//
// Without `allow_private` no connection is made to an address outside of the public Internet
// (corpus/fetch/private_address.h), whatever name, spelling or redirection leads there. A run that
// fetched nothing, since hosts could not be reached, fails.
struct FetchOptions : FilterFiles {
  std::string user_agent = "tessera-corpus";
  int64_t connections = 32;
  double delay = 1;
  double timeout = 30;
  int64_t max_bytes = int64_t{4} << 20;
  int64_t redirects = 5;
  int64_t retries = 1;
  bool allow_private = false;

  static const OptionTable& Table();
};

// On one rank: InvalidArgument on several.
StatusOr<Counts> RunFetch(const FetchOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_FETCH_FETCH_H_
