// SPDX-License-Identifier: Apache-2.0
#include "tools/report/chart_parts.h"

namespace tessera::report {

std::string ColourOf(size_t run) { return "r" + std::to_string(run % 8); }

std::string LetterOf(size_t run) {
  std::string letter(1, static_cast<char>('A' + run % 26));
  if (run >= 26) letter += std::to_string(run / 26 + 1);
  return letter;
}

std::string IdOf(std::string_view name) {
  std::string id;
  for (const char c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    id += plain ? std::string(1, c) : "-" + std::to_string(static_cast<unsigned char>(c));
  }
  return id;
}

void OpenPicture(const Picture& picture, Markup* out) {
  const std::string title = picture.id + "-title", description = picture.id + "-description";
  out->Open("svg", {{"viewBox", "0 0 " + Markup::Value(picture.width).text() + " " +
                                    Markup::Value(picture.height).text()},
                    {"role", "img"},
                    {"class", picture.css_class},
                    {"aria-labelledby", title},
                    {"aria-describedby", description}});
  out->Leaf("title", {{"id", title}}, picture.title);
  out->Leaf("desc", {{"id", description}}, picture.description);
}

void OpenScroll(std::string_view label, Markup* out) {
  out->Open("div",
            {{"class", "scroll"}, {"tabindex", 0}, {"role", "region"}, {"aria-label", label}});
}

void OpenTable(const std::string& id, std::string_view summary, std::string_view caption,
               Markup* out) {
  out->Open("details", {{"id", id + "-table"}}).Leaf("summary", {}, summary);
  OpenScroll(caption, out);
  out->Open("table").Leaf("caption", {}, caption);
}

void CloseTable(Markup* out) { out->Close().Close().Close(); }

}  // namespace tessera::report
