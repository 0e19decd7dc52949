// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_normalizer.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/base64.h"
#include "base/error.h"
#include "base/normal_forms.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "core/regex.h"
#include "data/tokenizer/bert_normalizer.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/precompiled_map.h"

namespace tessera::data {
namespace {

std::string WithoutMarks(std::string_view text, bool* keeps_begin) {
  std::string out;
  if (!text.empty() && IsMark(DecodeUtf8(text, 0).code_point)) *keeps_begin = false;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (!IsMark(c.code_point)) out.append(text.substr(i, static_cast<size_t>(c.length)));
    i += static_cast<size_t>(c.length);
  }
  return out;
}

// Control characters that SentencePiece's rule nmt removes, and what it takes for white space.
bool IsNmtControl(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
         c == 0x8F || c == 0x9F;
}
bool IsNmtSpace(char32_t c) {
  constexpr char32_t kOther[] = {0x09,   0x0A,   0x0C,   0x0D,   0x1680,
                                 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD};
  return (c >= 0x200B && c <= 0x200F) ||
         std::find(std::begin(kOther), std::end(kOther), c) != std::end(kOther);
}

std::string CleanedForNmt(std::string_view text, bool* keeps_begin) {
  std::string out;
  if (!text.empty() && IsNmtControl(DecodeUtf8(text, 0).code_point)) *keeps_begin = false;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const auto length = static_cast<size_t>(c.length);
    if (IsNmtSpace(c.code_point)) {
      out.push_back(' ');
    } else if (!IsNmtControl(c.code_point)) {
      out.append(text.substr(i, length));
    }
    i += length;
  }
  return out;
}

std::string Stripped(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    const Utf8Char c = DecodeUtf8(text, begin);
    if (!IsUnicodeSpace(c.code_point)) break;
    begin += static_cast<size_t>(c.length);
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (!IsUnicodeSpace(DecodeUtf8(text, last).code_point)) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

// Whether a grapheme ends between two bytes of ASCII.
bool IsAsciiBorder(char before, char behind) {
  return ((before | behind) & 0x80) == 0 && !(before == '\r' && behind == '\n');
}

// The map is asked for each grapheme of less than six bytes, as a whole; what it does not hold is
// looked up by characters. Either way the shortest entry that the piece begins with replaces all of
// the piece (the spm_precompiled crate).
std::string Mapped(const PrecompiledMap& map, const Regex& graphemes, std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto by_characters = [&](std::string_view piece) {
    for (size_t i = 0; i < piece.size();) {
      const auto length = static_cast<size_t>(DecodeUtf8(piece, i).length);
      const std::string_view c = piece.substr(i, length);
      std::string_view to;
      out.append(map.ShortestPrefix(c, &to) > 0 ? to : c);
      i += length;
    }
  };
  const auto as_a_whole = [&](std::string_view piece) {
    std::string_view to;
    if (piece.size() < 6 && map.ShortestPrefix(piece, &to) > 0) {
      out.append(to);
    } else {
      by_characters(piece);
    }
  };
  size_t begin = 0;
  for (size_t i = 1; i <= text.size(); ++i) {
    if (i < text.size() && !IsAsciiBorder(text[i - 1], text[i])) continue;
    const std::string_view part = text.substr(begin, i - begin);
    if (part.size() == 1) {
      as_a_whole(part);
    } else {
      graphemes.FindAll(part,
                        [&](size_t from, size_t to) { as_a_whole(part.substr(from, to - from)); });
    }
    begin = i;
  }
  return out;
}

// Normalizers replace characters by a few others. A chain of them that lets a text grow without end
// is damaged, or worse.
void CheckGrowth(size_t before, size_t after) {
  constexpr size_t kAlways = size_t{1} << 20;
  constexpr size_t kFactor = 64;
  TESSERA_CHECK(after <= kAlways || after / kFactor <= before, "tokenizer",
                "the normalizers make more than ", kFactor, " times as much of a text of ", before,
                " bytes");
}

}  // namespace

std::string ReplacedMatches(const TextPattern& pattern, std::string_view text,
                            std::string_view content) {
  std::string out;
  size_t done = 0;
  pattern.FindAll(text, [&](size_t begin, size_t end) {
    CheckGrowth(text.size(), out.size());
    out.append(text.substr(done, begin - done));
    out.append(content);
    done = end;
  });
  out.append(text.substr(done));
  return out;
}

StatusOr<PipelineNormalizer> PipelineNormalizer::Parse(const JsonPart& part) {
  PipelineNormalizer result;
  if (!part.is_null()) TESSERA_RETURN_IF_ERROR(result.Add(part));
  return result;
}

Status PipelineNormalizer::Add(const JsonPart& part) {
  const std::string_view type = part.type();
  constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                {"NFD", NormalForm::kNfd},
                                                                {"NFKC", NormalForm::kNfkc},
                                                                {"NFKD", NormalForm::kNfkd}};
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    steps_.push_back(
        [form = form](std::string_view text, bool*) { return tessera::Normalize(text, form); });
    return OkStatus();
  }
  if (type == "Sequence") {
    const JsonPart all = part["normalizers"];
    for (size_t i = 0; i < all.size(); ++i) TESSERA_RETURN_IF_ERROR(Add(all[i]));
  } else if (type == "Lowercase") {
    steps_.push_back([](std::string_view text, bool*) { return LowerCased(text); });
  } else if (type == "StripAccents") {
    steps_.push_back(WithoutMarks);
  } else if (type == "Nmt") {
    steps_.push_back(CleanedForNmt);
  } else if (type == "ByteLevel") {
    steps_.push_back([](std::string_view text, bool*) { return PieceOfBytes(text); });
  } else if (type == "Strip") {
    TESSERA_ASSIGN_OR_RETURN(const bool left, part.Bool("strip_left", true));
    TESSERA_ASSIGN_OR_RETURN(const bool right, part.Bool("strip_right", true));
    steps_.push_back([left, right](std::string_view text, bool* keeps_begin) {
      std::string stripped = Stripped(text, left, right);
      *keeps_begin &= text.starts_with(stripped);
      return stripped;
    });
  } else if (type == "Replace") {
    TESSERA_ASSIGN_OR_RETURN(const TextPattern pattern, TextPattern::Parse(part["pattern"]));
    TESSERA_ASSIGN_OR_RETURN(const std::string content, part.Text("content", ""));
    steps_.push_back([pattern, content](std::string_view text, bool* keeps_begin) {
      pattern.FindAll(text, [&](size_t begin, size_t end) {
        const bool one = end == static_cast<size_t>(DecodeUtf8(text, 0).length);
        if (begin == 0 && (!one || content.empty())) *keeps_begin = false;
      });
      return ReplacedMatches(pattern, text, content);
    });
  } else if (type == "Prepend") {
    TESSERA_ASSIGN_OR_RETURN(const std::string front, part.Text("prepend", ""));
    steps_.push_back([front](std::string_view text, bool*) {
      return text.empty() ? std::string() : Concat(front, text);
    });
  } else if (type == "BertNormalizer") {
    BertNormalizerOptions options;
    TESSERA_ASSIGN_OR_RETURN(options.clean_text, part.Bool("clean_text", true));
    TESSERA_ASSIGN_OR_RETURN(options.tokenize_chinese_chars,
                             part.Bool("handle_chinese_chars", true));
    TESSERA_ASSIGN_OR_RETURN(options.lowercase, part.Bool("lowercase", true));
    TESSERA_ASSIGN_OR_RETURN(options.strip_accents, part.Bool("strip_accents", options.lowercase));
    const auto bert = std::make_shared<BertNormalizer>(options);
    steps_.push_back([bert](std::string_view text, bool*) { return bert->Normalize(text); });
  } else if (type == "Precompiled") {
    TESSERA_ASSIGN_OR_RETURN(const std::string coded, part.Text("precompiled_charsmap", ""));
    if (coded.empty()) return OkStatus();
    const auto bytes = DecodeBase64(coded);
    const auto map = std::make_shared<PrecompiledMap>();
    if (!bytes || !map->Parse(*bytes)) {
      return part["precompiled_charsmap"].Wrong("not a character map");
    }
    TESSERA_ASSIGN_OR_RETURN(const Regex graphemes, Regex::Compile("\\X"));
    steps_.push_back(
        [map, graphemes](std::string_view text, bool*) { return Mapped(*map, graphemes, text); });
  } else {
    return part.Unsupported();
  }
  return OkStatus();
}

std::string PipelineNormalizer::Normalize(std::string_view text, bool* keeps_begin) const {
  std::string out(text);
  bool ignored = true;
  for (const Step& step : steps_) {
    out = step(out, keeps_begin != nullptr ? keeps_begin : &ignored);
    CheckGrowth(text.size(), out.size());
  }
  return out;
}

}  // namespace tessera::data
