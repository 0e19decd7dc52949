// SPDX-License-Identifier: Apache-2.0
#include "docs/site/guides.h"

#include <map>
#include <utility>
#include <vector>

#include "docs/site/html.h"

namespace tessera::site {
namespace {

int HeadingLevel(const Tag& tag) {
  const bool heading =
      tag.name.size() == 2 && tag.name[0] == 'h' && tag.name[1] >= '1' && tag.name[1] <= '6';
  return heading ? tag.name[1] - '0' : 0;
}

bool LeadsElsewhere(std::string_view link) {
  return link.starts_with("https:") || link.starts_with("http:") || link.starts_with("mailto:");
}

// Copies HTML piece by piece, with changes on the way.
class Copy {
 public:
  explicit Copy(std::string_view html) : html_(html) {}
  void UpTo(size_t end) {
    text_ += html_.substr(at_, end - at_);
    at_ = end;
  }
  void SkipTo(size_t end) { at_ = end; }
  void Add(std::string_view text) { text_ += text; }
  std::string Finish() {
    UpTo(html_.size());
    return std::move(text_);
  }

 private:
  std::string_view html_;
  size_t at_ = 0;
  std::string text_;
};

}  // namespace

std::string PathOfGuide(std::string_view markdown_path) {
  if (markdown_path == "README.md") return "index.html";
  return std::string(markdown_path.substr(0, markdown_path.rfind(".md"))) + ".html";
}

Page GuideOf(std::string_view markdown_path, std::string_view html,
             const std::function<std::string(const std::string& link)>& link) {
  Page page;
  page.path = PathOfGuide(markdown_path);
  page.title = markdown_path;
  page.sections.emplace_back();
  Copy copy(html);
  std::map<std::string, int> used;  // anchors, and how often
  size_t text_begin = 0;            // of the open section
  const auto end_section = [&](size_t end) {
    page.sections.back().text = PlainText(html.substr(text_begin, end - text_begin));
  };
  const std::vector<Tag> tags = TagsOf(html);
  for (size_t i = 0; i < tags.size(); ++i) {
    const Tag& tag = tags[i];
    if (const int level = HeadingLevel(tag); level > 0 && !tag.closes) {
      size_t closing = i + 1;
      while (closing < tags.size() && !(tags[closing].closes && tags[closing].name == tag.name)) {
        ++closing;
      }
      if (closing == tags.size()) continue;
      const std::string heading = PlainText(html.substr(tag.end, tags[closing].begin - tag.end));
      std::string anchor = AnchorOf(heading);
      if (const int before = used[anchor]++; before > 0) anchor += "-" + std::to_string(before);
      copy.UpTo(tag.begin);
      copy.Add("<" + tag.name + " id=\"" + Escaped(anchor) + "\">");
      copy.SkipTo(tag.end);
      end_section(tag.begin);
      text_begin = tags[closing].end;
      if (level == 1 && page.sections.size() == 1 && page.sections[0].text.empty()) {
        page.title = heading;
      } else {
        page.sections.push_back({anchor, heading, "", level});
      }
      continue;
    }
    if (tag.name == "table") {
      copy.UpTo(tag.closes ? tag.end : tag.begin);
      copy.Add(tag.closes ? "</div>" : "<div class=\"table\">");
    }
    for (const Attribute& attribute : tag.attributes) {
      if (attribute.name != "href" && attribute.name != "src") continue;
      if (LeadsElsewhere(attribute.value)) continue;
      copy.UpTo(attribute.value_begin);
      copy.Add(Escaped(link(attribute.value)));
      copy.SkipTo(attribute.value_end);
    }
  }
  end_section(html.size());
  page.body = copy.Finish();
  return page;
}

}  // namespace tessera::site
