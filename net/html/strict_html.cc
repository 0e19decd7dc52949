// SPDX-License-Identifier: Apache-2.0
#include "net/html/strict_html.h"

#include <cctype>
#include <set>

namespace tessera::net {
namespace {

constexpr std::string_view kDoctype = "<!doctype html>\n";
constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};

class Parser {
 public:
  explicit Parser(std::string_view html) : html_(html) {}

  StatusOr<std::vector<Element>> Parse() {
    if (html_.substr(0, kDoctype.size()) != kDoctype) return Wrong("there is no doctype");
    at_ = kDoctype.size();
    while (at_ < html_.size()) {
      TESSERA_RETURN_IF_ERROR(html_[at_] == '<' ? Tag() : Text());
    }
    if (!open_.empty()) return Wrong("<" + elements_[open_.back()].name + "> is not closed");
    return elements_;
  }

 private:
  Status Wrong(const std::string& what) const {
    return InvalidArgument("byte ", at_, ": ", what, ": ", html_.substr(at_, 60));
  }

  Status CheckEntities(std::string_view text) const {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '<') return Wrong("a stray <");
      if (text[i] != '&') continue;
      bool known = false;
      for (const std::string_view entity : kEntities) {
        known = known || text.substr(i, entity.size()) == entity;
      }
      if (!known) return Wrong("a stray &");
    }
    return OkStatus();
  }

  Status Text() {
    const std::string_view text = html_.substr(at_, html_.find('<', at_) - at_);
    TESSERA_RETURN_IF_ERROR(CheckEntities(text));
    if (!open_.empty()) elements_[open_.back()].text += text;
    at_ += text.size();
    return OkStatus();
  }

  std::string Name() {
    const size_t begin = at_;
    while (at_ < html_.size() &&
           (std::isalnum(static_cast<unsigned char>(html_[at_])) != 0 || html_[at_] == '-')) {
      ++at_;
    }
    return std::string(html_.substr(begin, at_ - begin));
  }

  Status Tag() {
    ++at_;
    if (at_ < html_.size() && html_[at_] == '/') {
      ++at_;
      const std::string name = Name();
      if (open_.empty() || elements_[open_.back()].name != name) return Wrong("closes " + name);
      open_.pop_back();
      if (at_ >= html_.size() || html_[at_++] != '>') return Wrong("a > is missing");
      return OkStatus();
    }
    Element element;
    element.name = Name();
    if (element.name.empty()) return Wrong("a tag without a name");
    while (at_ < html_.size() && html_[at_] == ' ') TESSERA_RETURN_IF_ERROR(Attribute(&element));
    if (at_ >= html_.size() || html_[at_++] != '>') return Wrong("a > is missing");
    const std::string name = element.name;
    elements_.push_back(std::move(element));
    if (name == "meta" || name == "link" || name == "input") return OkStatus();
    if (name == "style" || name == "script") return RawText(name);
    open_.push_back(elements_.size() - 1);
    return OkStatus();
  }

  Status Attribute(Element* element) {
    ++at_;
    const std::string name = Name();
    std::string value;
    if (name.empty()) return Wrong("an attribute without a name");
    if (html_.substr(at_, 2) == "=\"") {
      const size_t end = html_.find('"', at_ + 2);
      if (end == std::string_view::npos) return Wrong("a quote is missing");
      value = html_.substr(at_ + 2, end - at_ - 2);
      TESSERA_RETURN_IF_ERROR(CheckEntities(value));
      at_ = end + 1;
    }
    if (!element->attributes.emplace(name, value).second) return Wrong(name + " stands twice");
    if (name == "id" && !ids_.insert(value).second)
      return Wrong("the id " + value + " comes again");
    return OkStatus();
  }

  Status RawText(const std::string& name) {
    const std::string end = "</" + name + ">";
    const size_t close = html_.find(end, at_);
    if (close == std::string_view::npos) return Wrong(end + " is missing");
    elements_.back().text = html_.substr(at_, close - at_);
    at_ = close + end.size();
    return OkStatus();
  }

  const std::string_view html_;
  size_t at_ = 0;
  std::vector<Element> elements_;
  std::vector<size_t> open_;
  std::set<std::string> ids_;
};

}  // namespace

StatusOr<std::vector<Element>> ParseStrictly(std::string_view html) { return Parser(html).Parse(); }

std::vector<Element> Find(const std::vector<Element>& elements, std::string_view name,
                          std::string_view css_class) {
  std::vector<Element> found;
  for (const Element& element : elements) {
    if (element.name != name) continue;
    const auto classes = element.attributes.find("class");
    const std::string padded =
        classes == element.attributes.end() ? "" : " " + classes->second + " ";
    if (css_class.empty() || padded.find(Concat(" ", css_class, " ")) != std::string::npos) {
      found.push_back(element);
    }
  }
  return found;
}

}  // namespace tessera::net
