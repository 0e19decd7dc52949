// SPDX-License-Identifier: Apache-2.0
// Chat templates: how a model's conversations look as text, in the Jinja that model folders bring
// (`chat_template.jinja`, `chat_template` of tokenizer_config.json), with transformers' settings.
//
//   TESSERA_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Parse(text, path));
//   TESSERA_ASSIGN_OR_RETURN(const Rendering rendering,
//                            chat.Render({{"messages", messages}, {"add_generation_prompt", true},
//                                         {"bos_token", "<s>"}}));
//   rendering.text;        // "<s>[INST] Hi [/INST]"
//   rendering.generated;   // what `{% generation %}` encloses: the assistant's words
//
// Templates are programs from outside. They are given values and nothing else, and a rendering is
// bounded in its steps, its output and its recursion; all that goes wrong is a status with the line
// ("chat_template:12: 'messages' is undefined"), among that what the template itself refuses
// (raise_exception). Values are Python's: integers (those beyond 64 bits are shown and compared,
// and not computed with), floats, texts of characters, lists, mappings in their order; `tojson`
// writes what json.dumps writes.
//
// https://jinja.palletsprojects.com/en/stable/templates/ has the language. Not understood are
// inheritance, imports, recursive loops, `*args`, and the formatting of texts (`%`, `format`).
#ifndef TESSERA_DATA_CHAT_CHAT_TEMPLATE_H_
#define TESSERA_DATA_CHAT_CHAT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

namespace chat {
struct Node;
}  // namespace chat

// The bounds of a rendering, and its day.
struct RenderOptions {
  int64_t max_steps = 10'000'000;       // operations, elements, and sixteens of bytes
  size_t max_output = size_t{1} << 26;  // bytes
  // What strftime_now shows; nullopt: the clock, in this process's time zone.
  std::optional<std::tm> now = std::nullopt;
};

// A conversation as text.
struct Rendering {
  // Bytes [begin, end) of the text.
  struct Span {
    size_t begin;
    size_t end;
    friend bool operator==(const Span&, const Span&) = default;
  };
  std::string text;
  // In order; of blocks in macros and in blocks of `set` there are none.
  std::vector<Span> generated = {};
};

// Immutable; safe from several threads.
class ChatTemplate {
 public:
  // `text` is UTF-8; `source` begins messages.
  static StatusOr<ChatTemplate> Parse(std::string_view text, std::string source = "chat_template");

  // `variables` is an object: `messages`, and whatever else the template asks for.
  StatusOr<Rendering> Render(const nlohmann::ordered_json& variables,
                             const RenderOptions& options = {}) const;
  // As it was parsed.
  const std::string& text() const { return text_; }

 private:
  ChatTemplate() = default;

  std::string text_;
  std::string source_;
  std::shared_ptr<const std::vector<chat::Node>> body_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CHAT_TEMPLATE_H_
