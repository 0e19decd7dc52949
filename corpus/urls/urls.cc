// SPDX-License-Identifier: Apache-2.0
#include "corpus/urls/urls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "corpus/dedup/repeats.h"
#include "corpus/urls/url.h"
#include "data/dataset/text_input.h"
#include "data/dataset/token_cache.h"

namespace tessera::corpus {
namespace {

// Domains, names of domains ("google": google.com, google.co.uk), and beginnings of addresses
// ("a.org/b") that are not wanted.
class BlockedDomains {
 public:
  void AddList(const std::string& name) {
    if (name != "openwebtext") return;
    for (const char* entry : {
#include "corpus/urls/openwebtext_domains.inc"
         }) {
      names_.insert(entry);
    }
  }

  Status Read(const std::string& path) {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    for (const absl::string_view line : absl::StrSplit(text, '\n')) Add(std::string(line));
    return OkStatus();
  }

  // The entry that an address falls under; empty: none.
  std::string Find(const Url& url) const {
    if (!names_.empty()) {
      std::string name(RegisteredName(url.host));
      if (names_.contains(name)) return name;
    }
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
    if (line.find_first_of("./:") == std::string::npos) {
      names_.insert(absl::AsciiStrToLower(line));
      return;
    }
    if (line.find("://") == std::string::npos) line.insert(0, "http://");
    const std::optional<Url> url = ParseUrl(line);
    if (!url) return;
    const std::string key = UrlKey(*url);
    has_paths_ = has_paths_ || key.find('/') != std::string::npos;
    entries_.insert(key);
  }

  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_set<std::string> entries_;
  bool has_paths_ = false;
};

// Of a line of a list it is the line itself.
std::string AddressOf(const Document& document) {
  const std::string url = document.Url();
  return std::string(absl::StripAsciiWhitespace(url.empty() ? document.text() : url));
}

// No address of a page has so few characters: "http://a".
bool IsShort(std::string_view address) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return std::ranges::count_if(address, begins) <= 8;
}

}  // namespace

const OptionTable& UrlsOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<UrlsOptions>("Addresses")
          .Include<UrlsOptions, FilterFiles>()
          .Add("domain_list", &UrlsOptions::domain_list,
               "built-in list of domains to drop: `openwebtext` has those of pictures, films, "
               "shops and social networks that the preparation of OpenWebText leaves out",
               {.choices = {"openwebtext", "none"}})
          .Add(
              "blocked_domains", &UrlsOptions::blocked_domains,
              "files of more domains, with all domains below them, of names under any ending "
              "(`google`), or of beginnings of addresses, one a line; or directories of such "
              "files",
              {.type = "FILE|DIR", .unset = "none", .aliases = {{"blacklist", "earlier versions"}}})
          .Add("extensions", &UrlsOptions::extensions, "ends of names that are no pages")
          .Add("keep_duplicates", &UrlsOptions::keep_duplicates,
               "keep addresses that came before; https, www. and a / at the end make no "
               "difference"));
  return *table;
}

StatusOr<Counts> RunUrls(const UrlsOptions& options, const RunContext& context) {
  BlockedDomains blocked;
  blocked.AddList(options.domain_list);
  DocumentPass pass;
  pass.name = "urls";
  pass.files = options;
  pass.made_from = {{"domain_list", options.domain_list},
                    {"extensions", options.extensions},
                    {"keep_duplicates", options.keep_duplicates}};
  if (!options.blocked_domains.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const auto files, data::ListInputFiles(options.blocked_domains));
    TESSERA_ASSIGN_OR_RETURN(pass.made_from["blocked_domains"], data::DescribeFiles(files));
    for (const std::string& file : files) TESSERA_RETURN_IF_ERROR(blocked.Read(file));
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
    if (url) {
      if (std::string entry = blocked.Find(*url); !entry.empty()) {
        return {"blacklisted_domain", std::move(entry)};
      }
      if (std::string extension = ExtensionOf(*url);
          std::ranges::find(options.extensions, extension) != options.extensions.end()) {
        return {"blacklisted_extension", std::move(extension)};
      }
    }
    if (IsShort(address)) return {"short_url", address};
    if (!url || !HasUsualForm(address)) return {"malformed_url", address};
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
