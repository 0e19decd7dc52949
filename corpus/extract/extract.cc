// SPDX-License-Identifier: Apache-2.0
#include "corpus/extract/extract.h"

#include <nlohmann/json.hpp>

#include "corpus/extract/main_text.h"
#include "corpus/extract/page_blocks.h"
#include "corpus/io/text_units.h"

namespace tessera::corpus {

const OptionTable& ExtractOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<ExtractOptions>("Extraction")
          .Include<ExtractOptions, FilterFiles>()
          .Add("html_key", &ExtractOptions::html_key,
               "the member that is the page; WARC's pages are in html")
          .Add("all_text", &ExtractOptions::all_text,
               "all that a reader sees, menus and footers too")
          .Add("keep_html", &ExtractOptions::keep_html, "leave the page in the document"));
  return *table;
}

StatusOr<Counts> RunExtract(const ExtractOptions& options, const RunContext& context) {
  DocumentPass pass;
  pass.name = "extract";
  pass.files = options;
  pass.made_from = {{"html_key", options.html_key},
                    {"all_text", options.all_text},
                    {"keep_html", options.keep_html}};
  pass.apply = [&](Document& document, Counts*) -> Verdict {
    const std::string html = document.Text(options.html_key);
    if (html.empty()) {
      // What is a text already, as WET's, continues as it is.
      return document.has_text() ? Verdict() : Verdict{"no_page", options.html_key};
    }
    PageBlocks page;
    if (std::string wrong = ReadPage(html, &page); !wrong.empty()) {
      return {"unreadable_page", std::move(wrong)};
    }
    std::string text = options.all_text ? AllText(page) : MainText(page);
    if (text.empty()) return {"no_content", std::to_string(page.blocks.size())};
    document.set_text(std::move(text));
    if (const std::string_view title = Bare(page.title); !title.empty()) {
      std::string quoted;
      AppendJsonString(title, &quoted);
      document.Set("title", std::move(quoted));
    }
    if (!options.keep_html) document.Remove(options.html_key);
    return {};
  };
  return RunDocuments(pass, context);
}

}  // namespace tessera::corpus
