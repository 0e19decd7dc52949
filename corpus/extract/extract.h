// SPDX-License-Identifier: Apache-2.0
// `tessera corpus extract`: texts from pages.
#ifndef TESSERA_CORPUS_EXTRACT_EXTRACT_H_
#define TESSERA_CORPUS_EXTRACT_EXTRACT_H_

#include <string>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/document_pass.h"

namespace tessera::corpus {

struct ExtractOptions : FilterFiles {
  std::string html_key = "html";
  bool all_text = false;
  bool keep_html = false;

  static const OptionTable& Table();
};

StatusOr<Counts> RunExtract(const ExtractOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_EXTRACT_EXTRACT_H_
