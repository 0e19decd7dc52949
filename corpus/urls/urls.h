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
  std::string domain_list = "openwebtext";
  std::vector<std::string> blocked_domains;
  std::vector<std::string> extensions = {
      "3gp",  "7z",  "ai",  "aif", "apk",  "app",  "avi",  "bin", "bmp", "bz2", "css",
      "csv",  "dat", "deb", "dmg", "doc",  "docx", "eps",  "exe", "flv", "gif", "gifv",
      "gz",   "ico", "iso", "jar", "jpeg", "jpg",  "js",   "log", "m4a", "mid", "midi",
      "mkv",  "mov", "mp3", "mp4", "mpeg", "mpg",  "msi",  "ogg", "ogv", "otf", "pdf",
      "pkg",  "png", "pps", "ppt", "pptx", "psd",  "py",   "qt",  "ram", "rar", "rpm",
      "sql",  "svg", "swf", "tar", "tgz",  "tif",  "tiff", "ttf", "txt", "wav", "webm",
      "webp", "wma", "wmv", "xls", "xlsx", "xml",  "xz",   "zip"};
  bool keep_duplicates = false;

  static const OptionTable& Table();
};

StatusOr<Counts> RunUrls(const UrlsOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_URLS_URLS_H_
