// SPDX-License-Identifier: Apache-2.0
// `tessera corpus urls`: which addresses are worth fetching, and whose documents stay.
#ifndef TESSERA_CORPUS_URLS_URLS_H_
#define TESSERA_CORPUS_URLS_URLS_H_

#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/document_pass.h"

namespace tessera::corpus {

struct UrlsOptions : FilterFiles {
  std::vector<std::string> blacklist;
  std::vector<std::string> extensions = {
      "3gp",  "7z",   "apk",  "avi", "bmp",  "bz2",  "csv", "css", "deb", "dmg",  "doc",
      "docx", "eps",  "exe",  "flv", "gif",  "gifv", "gz",  "ico", "iso", "jar",  "jpeg",
      "jpg",  "js",   "m4a",  "mkv", "mov",  "mp3",  "mp4", "mpg", "msi", "ogg",  "pdf",
      "png",  "ppt",  "pptx", "rar", "rpm",  "svg",  "tar", "tgz", "tif", "tiff", "wav",
      "webm", "webp", "wmv",  "xls", "xlsx", "xml",  "zip"};
  bool keep_duplicates = false;

  static const OptionTable& Table();
};

StatusOr<Counts> RunUrls(const UrlsOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_URLS_URLS_H_
