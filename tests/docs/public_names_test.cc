// SPDX-License-Identifier: Apache-2.0
// Fails for a public name that nothing is said about: types and functions at namespace level of the
// headers that programs outside are given. They have a comment above them, at the end of a line, or
// above their group, which has no blank line within. The header's opening comment counts for its
// first name, and for names that it mentions. tools/reference makes pages of these comments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// The text without what is in angle brackets: "std::function Run(int n)".
std::string WithoutTemplates(const std::string& text) {
  std::string plain;
  int depth = 0;
  for (const char c : text) {
    if (c == '<') ++depth;
    if (depth == 0) plain += c;
    if (c == '>' && depth > 0) --depth;
  }
  return plain;
}

// What a declaration at namespace level adds to it; "" where that is nothing new (a forward
// declaration, a specialisation, a member's definition), a variable or an alias.
std::string NameIn(const std::string& declaration) {
  static const std::regex kTemplate(R"(^template ?<)");
  static const std::regex kType(R"(^\s*(?:struct|class|enum class|enum)\s+(\w+)[^<(]*\{)");
  static const std::regex kFunction(R"(([:\w]*\b\w+|operator *[^\s\w(]+) ?\()");
  std::string text = declaration;
  if (std::regex_search(text, kTemplate)) {
    size_t end = text.find('<');
    for (int depth = 0; end < text.size(); ++end) {
      if (text[end] == '<') ++depth;
      if (text[end] == '>' && --depth == 0) break;
    }
    text = text.substr(std::min(end + 1, text.size()));
  }
  std::smatch match;
  if (std::regex_search(text, match, kType)) return match[1];
  if (text.find("operator") == std::string::npos) text = WithoutTemplates(text);
  if (!std::regex_search(text, match, kFunction)) return "";
  const std::string name = match[1];
  const std::string before = match.prefix();
  const bool macro = name == "TESSERA_CHECK" || before.empty();
  const bool other = before.find('=') != std::string::npos || before.find("using ") == 0 ||
                     before.find("friend ") == 0 || name.find("::") != std::string::npos;
  return macro || other ? "" : name;
}

// A line of code without its comment and with empty literals.
std::string CodeOf(const std::string& line) {
  std::string code;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line.compare(i, 2, "//") == 0) break;
    const bool digits = i > 0 && std::isalnum(static_cast<unsigned char>(line[i - 1])) != 0;
    if (line[i] == '"' || (line[i] == '\'' && !digits)) {
      const char quote = line[i++];
      while (i < line.size() && line[i] != quote) i += line[i] == '\\' ? 2 : 1;
      continue;
    }
    code += line[i];
  }
  while (!code.empty() && code.back() == ' ') code.pop_back();
  return code;
}

// Reads one header line by line.
class Reader {
 public:
  // "line 12: Frobnicate", of every name without a comment.
  std::vector<std::string> Undocumented(const std::string& header) {
    std::istringstream in(header);
    for (std::string line; std::getline(in, line);) {
      ++number_;
      Read(line);
    }
    return undocumented_;
  }

 private:
  void Read(const std::string& line) {
    const std::string code = CodeOf(line);
    const bool comment = line.find("//") != std::string::npos && code != line;
    if (number_ == ++opening_lines_ && line.starts_with("//")) {
      opening_ += line + "\n";
      return;
    }
    opening_lines_ = -1;
    if (directive_ || line.starts_with("#")) {
      directive_ = line.ends_with("\\");
      return;
    }
    if (declaration_.empty()) {
      if (line.empty()) documented_ = false;
      if (code.empty()) {
        // A line of dashes is a headline.
        if (comment) documented_ = !line.starts_with("// --");
        return;
      }
      static const std::regex kNamespace(R"(^(?:inline )?namespace ?([\w:]*) ?\{$)");
      std::smatch match;
      if (std::regex_match(code, match, kNamespace)) {
        inside_.push_back(match[1]);
        return;
      }
      if (code == "}") {
        if (!inside_.empty()) inside_.pop_back();
        return;
      }
      begin_ = number_;
      said_ = documented_;
    }
    said_ = said_ || (depth_ == 0 && comment);
    declaration_ += (declaration_.empty() ? "" : " ") + code;
    for (const char c : code) {
      depth_ += c == '(' || c == '{' || c == '[';
      depth_ -= c == ')' || c == '}' || c == ']';
    }
    if (depth_ > 0 || (!code.ends_with(";") && !code.ends_with("}"))) return;
    said_ = said_ || comment;
    Finish();
    declaration_.clear();
  }

  void Finish() {
    const std::string name = NameIn(declaration_);
    if (name.empty() || Internal()) return;
    const bool first = std::exchange(first_, false);
    if (said_ || (first && !opening_.empty())) told_.insert(name);
    if (told_.contains(name)) return;  // a definition needs no second comment
    if (std::regex_search(name, std::regex("^\\w+$")) &&
        std::regex_search(opening_, std::regex("\\b" + name + "\\b"))) {
      return;
    }
    undocumented_.push_back("line " + std::to_string(begin_) + ": " + name);
  }
  // Whether nobody calls by name what is here: in namespaces of a header's own, and in those of
  // instruction sets, of which one is chosen at run time.
  bool Internal() const {
    static const std::regex kInternal(R"(|.*internal|.*detail|baseline|avx2|avx512|neon)");
    return std::any_of(inside_.begin(), inside_.end(),
                       [](const std::string& name) { return std::regex_match(name, kInternal); });
  }

  int number_ = 0;
  int opening_lines_ = 0;  // of the opening comment so far; -1: it is over
  std::string opening_;
  bool first_ = true;                // no name has been read yet
  std::vector<std::string> inside_;  // namespaces
  bool directive_ = false;           // in a directive of several lines
  bool documented_ = false;          // the group of declarations that the next line is in
  std::string declaration_;          // what has been read of one
  int begin_ = 0;                    // its first line
  bool said_ = false;                // whether something is said about it
  int depth_ = 0;                    // of brackets in it
  std::set<std::string> told_;
  std::vector<std::string> undocumented_;
};

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(PublicNamesTest, EveryPublicNameHasAComment) {
  std::istringstream paths(ReadText("tools/packaging/headers.list"));
  int headers = 0;
  for (std::string path; std::getline(paths, path); ++headers) {
    for (const std::string& name : Reader().Undocumented(ReadText(path))) {
      ADD_FAILURE() << path << ", " << name << " has no comment";
    }
  }
  EXPECT_GT(headers, 100);
  EXPECT_LT(headers, 170);
}

// The list names files that exist in one of the libraries; the build passes over others.
TEST(PublicNamesTest, EveryListedHeaderIsThere) {
  std::set<std::string> there;
  std::istringstream paths(ReadText("tools/packaging/headers.list"));
  for (std::string path; std::getline(paths, path);) there.insert(path);
  std::istringstream list(ReadText("tools/packaging/public_headers.bzl"));
  size_t listed = 0;
  for (std::string line; std::getline(list, line);) {
    const size_t begin = line.find("    \"");
    if (begin != 0) continue;
    ++listed;
    const std::string path = line.substr(5, line.find('"', 5) - 5);
    EXPECT_TRUE(there.contains(path)) << path;
  }
  EXPECT_EQ(listed, there.size());
}

// A program that was given the package can include what the table of operations names.
TEST(PublicNamesTest, OperationsAreInPublicHeaders) {
  std::set<std::string> there;
  std::istringstream paths(ReadText("tools/packaging/headers.list"));
  for (std::string path; std::getline(paths, path);) there.insert(path);
  const std::string page = ReadText("docs/operations.md");
  int named = 0;
  for (size_t end = page.find(".h`"); end != std::string::npos; end = page.find(".h`", end + 1)) {
    const size_t begin = page.rfind('`', end) + 1;
    const std::string path = page.substr(begin, end + 2 - begin);
    ++named;
    EXPECT_TRUE(there.contains(path)) << path;
  }
  EXPECT_GT(named, 50);
}

TEST(PublicNamesTest, ANameWithoutACommentIsFound) {
  const std::string header = R"(// Opens. Named() is what it is about.
#ifndef A_H_
#define A_H_

namespace tessera {

class Forward;
class First {};
struct Bare {
  int member;  // said
};

// Said.
struct Told {};
struct InTheGroup {};

void Named();

// Declared with a comment, defined below.
int Defined();
int Defined() { return 1; }

template <typename T>
std::function<void(int)> Call(const T& t,
                              int n = 3);
int AtTheEnd();  // said

// --- A headline ---

enum class Kind { kA };

int Told::Member() { return 1; }
inline constexpr int kNumber = Told(1);
TESSERA_REGISTER(x);

namespace detail {
void Hidden();
}  // namespace detail

}  // namespace tessera

#endif  // A_H_
)";
  EXPECT_EQ(Reader().Undocumented(header),
            (std::vector<std::string>{"line 9: Bare", "line 23: Call", "line 30: Kind"}));
}

}  // namespace
}  // namespace tessera
