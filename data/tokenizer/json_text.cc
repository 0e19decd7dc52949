// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/json_text.h"

#include "core/file.h"

namespace tessera::data {
namespace {

using nlohmann::json;

// Only reports where and why the text is no JSON.
class ErrorFinder : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    position_ = position;
    return false;
  }
  std::size_t position() const { return position_; }

 private:
  std::size_t position_ = 0;
};

// The offset of the bracket that opens level kMaxJsonDepth + 1, or npos.
size_t FindTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxJsonDepth) return i;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::string_view::npos;
}

}  // namespace

StatusOr<json> ParseJson(std::string_view text, std::string_view source) {
  const size_t deep = FindTooDeep(text);
  if (deep != std::string_view::npos) {
    return InvalidArgument(source, ": JSON nested deeper than ", kMaxJsonDepth, " levels at byte ",
                           deep);
  }
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    ErrorFinder finder;
    json::sax_parse(text, &finder);
    return InvalidArgument(source, ": not valid JSON at byte ", finder.position());
  }
  return value;
}

StatusOr<json> ReadJsonFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(text, path);
}

std::string JsonQuoted(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace tessera::data
