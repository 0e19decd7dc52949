// SPDX-License-Identifier: Apache-2.0
#include "corpus/urls/urls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "corpus/dedup/repeats.h"
#include "corpus/urls/url.h"
#include "data/dataset/text_input.h"
#include "data/dataset/token_cache.h"

namespace tessera::corpus {
namespace {

// Domains, and the beginnings of addresses ("a.org/b"), that are not wanted.
class Blacklist {
 public:
  Status Read(const std::string& path) {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    for (const absl::string_view line : absl::StrSplit(text, '\n')) Add(std::string(line));
    return OkStatus();
  }

  // The entry that an address falls under; empty: none.
  std::string Find(const Url& url) const {
    std::string_view host = url.host;
    for (;;) {
      if (entries_.contains(std::string(host))) return std::string(host);
      const size_t dot = host.find('.');
      if (dot == std::string_view::npos) break;
      host.remove_prefix(dot + 1);
    }
    if (!has_paths_) return "";
    const std::string key = UrlKey(url);
    for (size_t end = key.find('/'); end != std::string::npos; end = key.find('/', end + 1)) {
      if (entries_.contains(key.substr(0, end))) return key.substr(0, end);
    }
    return entries_.contains(key) ? key : "";
  }

 private:
  void Add(std::string line) {
    line.resize(std::min(line.find('#'), line.size()));
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    if (line.empty()) return;
    if (line.find("://") == std::string::npos) line.insert(0, "http://");
    const std::optional<Url> url = ParseUrl(line);
    if (!url) return;
    const std::string key = UrlKey(*url);
    has_paths_ = has_paths_ || key.find('/') != std::string::npos;
    entries_.insert(key);
  }

  absl::flat_hash_set<std::string> entries_;
  bool has_paths_ = false;
};

// Of a line of a list it is the line itself.
std::string AddressOf(const Document& document) {
  std::string url = document.Url();
  return url.empty() ? document.text() : url;
}

}  // namespace

const OptionTable& UrlsOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<UrlsOptions>("Addresses")
          .Include<UrlsOptions, FilterFiles>()
          .Add("blacklist", &UrlsOptions::blacklist,
               "files of domains, with all domains below them, or of beginnings of addresses, "
               "one a line; or directories of such files",
               {.unset = "none"})
          .Add("extensions", &UrlsOptions::extensions, "ends of names that are no pages")
          .Add("keep_duplicates", &UrlsOptions::keep_duplicates,
               "keep addresses that came before; https, www. and a / at the end make no "
               "difference"));
  return *table;
}

StatusOr<Counts> RunUrls(const UrlsOptions& options, const RunContext& context) {
  Blacklist blacklist;
  DocumentPass pass;
  pass.name = "urls";
  pass.files = options;
  pass.made_from = {{"extensions", options.extensions},
                    {"keep_duplicates", options.keep_duplicates}};
  if (!options.blacklist.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const auto files, data::ListInputFiles(options.blacklist));
    TESSERA_ASSIGN_OR_RETURN(pass.made_from["blacklist"], data::DescribeFiles(files));
    for (const std::string& file : files) TESSERA_RETURN_IF_ERROR(blacklist.Read(file));
  }
  TESSERA_ASSIGN_OR_RETURN(const BlockRun run, MakeBlockRun(pass));
  std::optional<SortedFile<Repeat>> repeats;
  RepeatSearch search = {.name = "urls",
                         .inputs = run.inputs,
                         .text_key = options.text_key,
                         .folder = options.output + ".work"};
  search.keys = [](Document& document, const AddKey& add) {
    if (const auto url = ParseUrl(AddressOf(document))) add(0, UrlKey(*url));
  };
  pass.apply = [&](Document& document, Counts*) -> Verdict {
    const std::string address = AddressOf(document);
    const std::optional<Url> url = ParseUrl(address);
    if (!url) return {"malformed_url", address};
    if (std::string entry = blacklist.Find(*url); !entry.empty()) {
      return {"blacklisted_domain", std::move(entry)};
    }
    if (std::string extension = ExtensionOf(*url);
        std::ranges::find(options.extensions, extension) != options.extensions.end()) {
      return {"blacklisted_extension", std::move(extension)};
    }
    if (repeats) {
      if (const auto found = repeats->Of(document.number); !found.empty()) {
        return {"duplicate_url", std::to_string(found[0].first)};
      }
    }
    return {};
  };
  return RunOnce(run, search.folder, context, [&]() -> StatusOr<Counts> {
    if (!options.keep_duplicates) {
      TESSERA_ASSIGN_OR_RETURN(repeats, FindRepeats(search, context));
    }
    return RunDocuments(pass, context);
  });
}

}  // namespace tessera::corpus
