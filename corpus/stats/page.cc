// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_replace.h"
#include "base/printable_text.h"
#include "corpus/stats/page_assets.h"
#include "corpus/stats/tally.h"
#include "net/html/page_assets.h"

namespace tessera::corpus {
namespace {

constexpr size_t kMostRows = 50;

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(PrintableText(text),
                             {{"<", "&lt;"}, {">", "&gt;"}, {"&", "&amp;"}, {"\"", "&quot;"}});
}

std::string Thousands(int64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string NumberCell(int64_t value) {
  return Concat("<td class=\"number\" data-value=\"", value, "\">", Thousands(value), "</td>");
}

struct Row {
  std::string name;
  int64_t count;
};

// A row of the table with a bar as long as its share of the longest.
std::string Table(std::string_view heading, std::string_view name, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  int64_t most = 1;
  for (const Row& row : rows) most = std::max(most, row.count);
  std::string html = Concat(
      "<h2>", Escaped(heading), "</h2>\n<table><thead><tr><th role=\"button\">", Escaped(name),
      "</th><th class=\"number\" role=\"button\">documents</th><th></th></tr></thead><tbody>\n");
  for (const Row& row : rows) {
    // Widths stand in SVG's attributes, which the page's policy lets through.
    html +=
        Concat("<tr><td>", Escaped(row.name), "</td>", NumberCell(row.count),
               "<td class=\"bar\"><svg width=\"100%\" height=\"12\" role=\"presentation\"><rect "
               "width=\"",
               100.0 * static_cast<double>(row.count) / static_cast<double>(most),
               "%\" height=\"12\" fill=\"#3569b5\"></rect></svg></td></tr>\n");
  }
  return html + "</tbody></table>\n";
}

std::vector<Row> RowsOf(const Tally::Lengths& lengths) {
  std::vector<Row> rows;
  if (lengths.empty()) return rows;
  for (int power = lengths.begin()->first; power <= lengths.rbegin()->first; ++power) {
    const int64_t least = power == 0 ? 0 : int64_t{1} << (power - 1);
    const auto found = lengths.find(power);
    rows.push_back({power < 2 ? std::to_string(least)
                              : Concat(Thousands(least), " to ", Thousands(2 * least - 1)),
                    found == lengths.end() ? 0 : found->second});
  }
  return rows;
}

std::vector<Row> RowsOf(const std::map<std::string, int64_t>& counts) {
  std::vector<Row> rows;
  for (const auto& [name, count] : counts) rows.push_back({name, count});
  std::ranges::stable_sort(rows, std::greater<>(), &Row::count);
  if (rows.size() > kMostRows) rows.resize(kMostRows);
  return rows;
}

std::string DropTable(const std::map<std::string, DropTally>& drops) {
  if (drops.empty()) return "";
  std::string html =
      "<h2>What filters dropped</h2>\n<table><thead><tr><th role=\"button\">filter</th><th "
      "class=\"number\" role=\"button\">documents</th><th>examples</th></tr></thead><tbody>\n";
  for (const auto& [filter, drop] : drops) {
    html += Concat("<tr><td>", Escaped(filter), "</td>", NumberCell(drop.count), "<td><ul>");
    for (const auto& [id, value] : drop.examples) {
      html += Concat("<li>", Escaped(id), ": ", Escaped(value), "</li>");
    }
    html += "</ul></td></tr>\n";
  }
  return html + "</tbody></table>\n";
}

}  // namespace

std::string StatsPage(const std::string& title, const Tally& tally,
                      const std::map<std::string, DropTally>& drops) {
  std::string content = "<table><tbody>\n";
  for (const auto& [name, value] : {std::pair{"documents", tally.documents},
                                    {"characters", tally.characters},
                                    {"tokens, about", tally.words},
                                    {"bytes of text", tally.bytes}}) {
    content += Concat("<tr><th>", name, "</th>", NumberCell(value), "</tr>\n");
  }
  content += "</tbody></table>\n";
  content += Table("Lengths in characters", "characters", RowsOf(tally.document_characters));
  content += Table("Lengths in tokens, about", "tokens", RowsOf(tally.document_words));
  content += Table("Languages", "language", RowsOf(tally.languages));
  content += Table(Concat("Domains, the first ", kMostRows), "domain", RowsOf(tally.domains));
  content += DropTable(drops);
  return net::Fill(kPageAssets.html, {{"policy", Escaped(net::SecurityPolicy(kPageAssets))},
                                      {"title", Escaped(title)},
                                      {"style", std::string(kPageAssets.css)},
                                      {"content", content},
                                      {"script", std::string(kPageAssets.js)}});
}

}  // namespace tessera::corpus
