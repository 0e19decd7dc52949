// SPDX-License-Identifier: Apache-2.0
// A SentencePiece tokenizer as a tokenizer.json, from which transformers 4 ("fast") and 5 get the
// ids that the library gives. Their own conversions of a .model file give others: they split text
// at white space of any kind, put no blank before a "\u2581" that is in the text, and forget
// what a family's class in Python does.
//
// What cannot be said there, and so is theirs: a character map is asked by graphemes, where the
// library looks for the longest match; scores are added in double; of ALBERT, "9," is no piece in
// "9,9" because its score is low; of T5, a text that ends with </s> gets another one in a row.
#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/json_text.h"
#include "base/python_text.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "data/tokenizer/precompiled_map.h"
#include "data/tokenizer/sentence_piece/sentence_piece.h"
#include "data/tokenizer/tokenizer_json_text.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;
using Piece = SentencePieceSpec::Piece;

// What Python's str.split takes for white space.
constexpr std::string_view kPythonSpace =
    "[\\t-\\r\\x1c-\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}]";

std::string Replace(std::string_view kind, std::string_view pattern, std::string_view content) {
  return Concat("{\"type\": \"Replace\", \"pattern\": {\"", kind, "\": ", JsonQuoted(pattern),
                "}, \"content\": ", JsonQuoted(content), "}");
}

std::string Sequence(std::string_view key, const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ",\n") + part;
  return Concat("{\"type\": \"Sequence\", \"", key, "\": [", out, "]}");
}

std::string Metaspace(std::string_view replacement, std::string_view scheme) {
  return Concat("{\"type\": \"Metaspace\", \"replacement\": ", JsonQuoted(replacement),
                ", \"prepend_scheme\": \"", scheme, "\", \"split\": false}");
}

int64_t NumCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

// A digit and a comma, which ALBERT's class takes apart.
bool EndsInNumberComma(const std::string& piece) {
  if (piece.size() < 2 || piece.back() != ',') return false;
  const size_t before = LastCharacter(piece, piece.size() - 1);
  return UnicodeClasses::Get().Of(DecodeUtf8(piece, before).code_point) == CharClass::kNumber;
}

// Whether a character map takes the "▁" in front of a text for the blank that it stands for.
bool MapsToBlank(const std::string& character_map) {
  PrecompiledMap map;
  std::string_view to;
  return map.Parse(character_map) &&
         map.LongestPrefix(kSentencePieceBlank, &to) == kSentencePieceBlank.size() && to == " ";
}

// The merges that make each piece of a BPE model out of two others: those of better pieces first.
std::string MergesJson(const std::vector<Piece>& pieces) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int type = pieces[i].type;
    if (type != Piece::kNormal && type != Piece::kUserDefined) continue;
    ids.emplace(pieces[i].text, static_cast<int32_t>(i));
  }
  using Merge = std::tuple<float, int32_t, int32_t, int32_t>;  // -score, result, left, right
  std::vector<Merge> merges;
  for (const auto& [text, id] : ids) {
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ids.find(text.substr(0, cut));
      const auto right = ids.find(text.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      merges.emplace_back(-pieces[static_cast<size_t>(id)].score, id, left->second, right->second);
    }
  }
  std::sort(merges.begin(), merges.end());
  std::string out;
  for (const auto& [score, id, left, right] : merges) {
    out += Concat(out.empty() ? "" : ",\n", "[", JsonQuoted(pieces[static_cast<size_t>(left)].text),
                  ", ", JsonQuoted(pieces[static_cast<size_t>(right)].text), "]");
  }
  return out;
}

}  // namespace

std::string SentencePieceTokenizer::NormalizerJson(const SentencePieceSpec& spec) const {
  std::vector<std::string> steps;
  const bool bare = bare_;
  if (config_.remove_space) {
    steps.push_back(Replace("Regex", Concat(kPythonSpace, "+"), " "));
    steps.push_back(Replace("Regex", "\\A | \\z", ""));
  }
  if (config_.family == SentencePieceFamily::kAlbert) {
    steps.push_back(Replace("String", "``", "\""));
    steps.push_back(Replace("String", "''", "\""));
    if (!config_.keep_accents) {
      steps.push_back(R"({"type": "NFKD"})");
      steps.push_back(R"({"type": "StripAccents"})");
    }
    if (config_.do_lower_case) steps.push_back(R"({"type": "Lowercase"})");
  }
  if (bare) steps.push_back(Replace("String", kSentencePieceBlank, " "));
  if (!spec.normalizer.character_map.empty()) {
    steps.push_back(Concat("{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"",
                           EncodeBase64(spec.normalizer.character_map), "\"}"));
  }
  if (spec.normalizer.remove_extra_whitespaces) {
    // The first blank of a run stays where it is: what replaces it would not count as the
    // beginning of the text.
    steps.push_back(Replace("Regex", "(?<= ) +", ""));
    if (!bare) steps.push_back(Replace("Regex", "\\A ", ""));
  }
  if (!bare && spec.normalizer.add_dummy_prefix) {
    steps.push_back(
        Concat("{\"type\": \"Prepend\", \"prepend\": ", JsonQuoted(kSentencePieceBlank), "}"));
  }
  steps.push_back(Replace("String", " ", kSentencePieceBlank));
  if (spec.normalizer.remove_extra_whitespaces) {
    steps.push_back(Replace("Regex", Concat(kSentencePieceBlank, "+\\z"), ""));
  }
  return Sequence("normalizers", steps);
}

std::string SentencePieceTokenizer::ModelJson(const SentencePieceSpec& spec) const {
  float best = 0;
  bool has_best = false;
  bool has_bytes = false;
  for (const Piece& piece : spec.pieces) {
    has_bytes |= piece.type == Piece::kByte;
    if (piece.type != Piece::kNormal) continue;
    best = has_best ? std::max(best, piece.score) : piece.score;
    has_best = true;
  }
  std::vector<std::pair<int32_t, std::string>> vocab;
  std::string scores;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const int32_t at = PieceOfId(id);
    const AddedToken* const added = FindAdded(id);
    const Piece piece = at >= 0 ? spec.pieces[static_cast<size_t>(at)] : Piece();
    std::string text = added != nullptr ? added->content : piece.text;
    double score = at >= 0 ? piece.score : 0;
    if (piece.type == Piece::kUserDefined) {
      score = static_cast<double>(NumCharacters(piece.text)) * best - 0.1;
    } else if (piece.type != Piece::kNormal && piece.type != Piece::kByte && added == nullptr) {
      text += ' ';  // never in text, where blanks are written otherwise
    }
    if (config_.family == SentencePieceFamily::kAlbert && EndsInNumberComma(text)) score -= 100;
    scores += Concat(id == 0 ? "" : ",\n", "[", JsonQuoted(text), ", ", json(score).dump(), "]");
    vocab.emplace_back(id, std::move(text));
  }
  const int32_t unk = IdOfPiece(model_->unk_id());
  if (spec.model_type == SentencePieceSpec::kUnigram) {
    return Concat("{\"type\": \"Unigram\", \"unk_id\": ", unk,
                  ", \"byte_fallback\": ", JsonBool(has_bytes), ",\n\"vocab\": [", scores, "]}");
  }
  return BpeJson{.unk_token = JsonQuoted(vocab[static_cast<size_t>(unk)].second),
                 .fuse_unk = true,
                 .byte_fallback = has_bytes,
                 .vocab = VocabJson(vocab),
                 .merges = MergesJson(spec.pieces)}
      .Text();
}

std::string SentencePieceTokenizer::TokenizerJsonText() const {
  const bool known = config_.family == SentencePieceFamily::kT5 ||
                     config_.family == SentencePieceFamily::kAlbert ||
                     config_.family == SentencePieceFamily::kLlama ||
                     config_.family == SentencePieceFamily::kXlmRoberta;
  const SentencePieceSpec spec = ReadSentencePieceSpec(config_.model);
  if (!known || row_template(false) == nullptr || row_template(true) == nullptr ||
      !spec.normalizer.escape_whitespaces || spec.treat_whitespace_as_suffix ||
      (spec.model_type != SentencePieceSpec::kUnigram &&
       spec.model_type != SentencePieceSpec::kBpe)) {
    return "";
  }
  TokenizerJson whole = {
      .added_tokens = added_, .normalizer = NormalizerJson(spec), .model = ModelJson(spec)};
  for (AddedToken& token : whole.added_tokens) token.normalized = false;
  if (bare_ && config_.add_prefix_space) {
    // A blank in front, unless the text begins with one and both become one. Where they do not, the
    // first of two steps adds it, for which the "▁" of the text is no blank.
    whole.pre_tokenizer =
        MapsToBlank(spec.normalizer.character_map)
            ? Metaspace(kSentencePieceBlank, "first")
            : Sequence("pretokenizers",
                       {Metaspace(" ", "first"), Metaspace(kSentencePieceBlank, "never")});
  }
  whole.post_processor = TemplateJson(*row_template(false), *row_template(true),
                                      [this](int32_t id) { return TokenString(id); });
  whole.decoder = Concat(
      "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": ",
      JsonQuoted(kSentencePieceBlank), "}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, ",
      "{\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": "
      "0}]}");
  return whole.Text();
}

}  // namespace tessera::data
