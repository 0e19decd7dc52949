// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/tokenizer_json_file.h"

#include <string_view>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "core/thread_pool.h"

namespace tessera::data {
namespace {

// A range of a text; empty: it has none.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool empty() const { return begin == end; }
};

struct Spans {
  Span vocab;
  Span merges;
};

// Reads one member's value into *span; false where that is there already or is no such thing.
bool TakeSpan(JsonReader* reader, char bracket, Span* span) {
  if (!span->empty() || reader->Next() != bracket) return false;
  span->begin = reader->position();
  if (!reader->SkipValue()) return false;
  span->end = reader->position();
  return true;
}

// Calls visit(key), which reads the value, for the members of an object.
template <typename Visit>
bool ReadMembers(JsonReader* reader, Visit visit) {
  if (!reader->Take('{')) return false;
  do {
    std::string key;
    if (!reader->ReadString(&key) || !reader->Take(':') || !visit(key)) return false;
  } while (reader->Take(','));
  return reader->Take('}');
}

// Where model.vocab and model.merges stand.
std::optional<Spans> FindSpans(std::string_view text) {
  Spans spans;
  int models = 0;
  JsonReader reader(text);
  const bool read = ReadMembers(&reader, [&](const std::string& key) {
    if (key != "model") return reader.SkipValue();
    ++models;
    return ReadMembers(&reader, [&](const std::string& part) {
      if (part == "vocab") return TakeSpan(&reader, '{', &spans.vocab);
      if (part == "merges") return TakeSpan(&reader, '[', &spans.merges);
      return reader.SkipValue();
    });
  });
  const bool found = read && models == 1 && !spans.vocab.empty() && !spans.merges.empty();
  return found ? std::optional(spans) : std::nullopt;
}

bool IsPiece(std::string_view text) {
  return !text.empty() && text.find(' ') == std::string_view::npos;
}

// ["a b", ...] or [["a", "b"], ...].
bool ReadMerges(std::string_view text, BpeRules* merges) {
  if (FindInvalidUtf8(text) != kNoInvalidUtf8) return false;
  merges->reserve(text.size() / 12);
  JsonReader reader(text);
  if (!reader.Take('[')) return false;
  std::string line;
  do {
    std::string left;
    std::string right;
    if (reader.Take('[')) {
      if (!reader.ReadString(&left) || !reader.Take(',') || !reader.ReadString(&right))
        return false;
      if (!reader.Take(']')) return false;
    } else {
      line.clear();
      if (!reader.ReadString(&line)) return false;
      const size_t space = line.find(' ');
      if (space == std::string::npos) return false;
      left.assign(line, 0, space);
      right.assign(line, space + 1);
    }
    if (!IsPiece(left) || !IsPiece(right)) return false;
    merges->emplace_back(std::move(left), std::move(right));
  } while (reader.Take(','));
  return reader.Take(']') && reader.AtEnd();
}

std::optional<TokenizerJsonFile> ReadPlain(std::string_view text, const std::string& path) {
  const std::optional<Spans> spans = FindSpans(text);
  if (!spans) return std::nullopt;
  const auto part = [&](const Span& span) {
    return text.substr(span.begin, span.end - span.begin);
  };
  TokenizerJsonFile file;
  file.large.emplace();
  std::optional<VocabEntries> vocab;
  bool has_merges = false;
  ParallelFor(2, /*grain=*/1, [&](int64_t which, int64_t) {
    if (which == 0) {
      vocab = ReadVocabJson(part(spans->vocab));
    } else {
      has_merges = ReadMerges(part(spans->merges), &file.large->merges);
    }
  });
  if (!vocab || vocab->empty() || !has_merges) return std::nullopt;
  file.large->vocab = *std::move(vocab);
  file.large->place = path + ": model";
  const bool vocab_first = spans->vocab.begin < spans->merges.begin;
  const auto& [first, second] =
      vocab_first ? std::pair(spans->vocab, spans->merges) : std::pair(spans->merges, spans->vocab);
  auto root = ParseJson(Concat(text.substr(0, first.begin), vocab_first ? "{}" : "[]",
                               text.substr(first.end, second.begin - first.end),
                               vocab_first ? "[]" : "{}", text.substr(second.end)),
                        path);
  if (!root.ok()) return std::nullopt;
  file.root = *std::move(root);
  return file;
}

}  // namespace

StatusOr<TokenizerJsonFile> ReadTokenizerJsonFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  TokenizerJsonFile file;
  if (auto plain = ReadPlain(text, path)) {
    file = *std::move(plain);
  } else {
    TESSERA_ASSIGN_OR_RETURN(file.root, ParseJson(text, path));
  }
  file.text = std::move(text);
  return file;
}

}  // namespace tessera::data
