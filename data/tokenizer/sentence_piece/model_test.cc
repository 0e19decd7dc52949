// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sentence_piece/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "base/python_text.h"
#include "base/status.h"
#include "base/utf8.h"

namespace tessera::data {
namespace {

using Piece = SentencePieceSpec::Piece;

void PutVarint(uint64_t value, std::string* out) {
  for (; value > 127; value >>= 7) *out += static_cast<char>(value | 128);
  *out += static_cast<char>(value);
}

void PutNumber(uint32_t field, int value, std::string* out) {
  PutVarint(field << 3, out);
  PutVarint(static_cast<uint64_t>(value), out);
}

void PutBytes(uint32_t field, std::string_view bytes, std::string* out) {
  PutVarint(field << 3 | 2, out);
  PutVarint(bytes.size(), out);
  *out += bytes;
}

std::string MessageOf(const SentencePieceSpec& spec) {
  std::string out;
  for (const Piece& piece : spec.pieces) {
    std::string message;
    PutBytes(1, piece.text, &message);
    PutVarint(2 << 3 | 5, &message);
    message.append(reinterpret_cast<const char*>(&piece.score), sizeof(piece.score));
    PutNumber(3, piece.type, &message);
    PutBytes(1, message, &out);
  }
  std::string trainer;
  PutNumber(3, spec.model_type, &trainer);
  PutNumber(24, spec.treat_whitespace_as_suffix, &trainer);
  PutNumber(35, spec.byte_fallback, &trainer);
  PutBytes(2, trainer, &out);
  std::string normalizer;
  PutNumber(3, spec.normalizer.add_dummy_prefix, &normalizer);
  PutNumber(4, spec.normalizer.remove_extra_whitespaces, &normalizer);
  PutNumber(5, spec.normalizer.escape_whitespaces, &normalizer);
  PutBytes(3, normalizer, &out);
  return out;
}

// The same by strings and maps, one step after the other.
class Reference {
 public:
  explicit Reference(const SentencePieceSpec& spec) : spec_(spec) {
    for (size_t i = 0; i < spec.pieces.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      (IsTextPiece(spec.pieces[i]) ? texts_ : others_)[spec.pieces[i].text] = id;
    }
  }

  std::vector<int32_t> Encode(std::string_view text) const {
    std::vector<std::pair<std::string, int32_t>> pieces;
    const std::string normalized = Normalized(text);
    switch (spec_.model_type) {
      case SentencePieceSpec::kUnigram:
        pieces = Best(normalized);
        break;
      case SentencePieceSpec::kBpe:
        pieces = Merged(normalized);
        break;
      case SentencePieceSpec::kWord:
        pieces = Words(normalized);
        break;
      default:
        for (const auto& [symbol, frozen] : Symbols(normalized)) {
          pieces.emplace_back(symbol, IdOf(symbol));
        }
    }
    std::vector<int32_t> ids;
    bool after_unknown = false;
    for (const auto& [piece, id] : pieces) {
      if (TypeOf(id) == Piece::kControl) return {};
      const bool unknown = TypeOf(id) == Piece::kUnknown;
      if (unknown && spec_.byte_fallback) {
        for (const char c : piece) ids.push_back(others_.at(ByteName(static_cast<uint8_t>(c))));
      } else if (!unknown || !after_unknown) {
        ids.push_back(id);
      }
      after_unknown = unknown;
    }
    return ids;
  }

  static std::string ByteName(int byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(byte));
    return name;
  }

 private:
  int TypeOf(int32_t id) const { return spec_.pieces[static_cast<size_t>(id)].type; }
  int32_t IdOf(const std::string& text) const {
    if (const auto other = others_.find(text); other != others_.end()) return other->second;
    const auto at = texts_.find(text);
    return at == texts_.end() ? others_.at("<unk>") : at->second;
  }

  std::string Normalized(std::string_view raw) const {
    const auto& spec = spec_.normalizer;
    const std::string blank = spec.escape_whitespaces ? "▁" : " ";
    std::string text = ReplaceInvalidBytes(raw);
    while (spec.remove_extra_whitespaces && text.find("  ") != std::string::npos) {
      text = ReplacedAll(text, "  ", " ");
    }
    if (spec.remove_extra_whitespaces && text.starts_with(' ')) text.erase(0, 1);
    if (text.empty()) return "";
    text = ReplacedAll(text, " ", blank);
    const bool adds = spec.add_dummy_prefix;
    if (adds && !spec_.treat_whitespace_as_suffix) text = blank + text;
    while (spec.remove_extra_whitespaces && text.ends_with(blank)) {
      text.resize(text.size() - blank.size());
    }
    if (adds && spec_.treat_whitespace_as_suffix) text += blank;
    return text;
  }

  // Characters and user-defined pieces, with whether they are the latter.
  std::vector<std::pair<std::string, bool>> Symbols(const std::string& text) const {
    std::vector<std::pair<std::string, bool>> symbols;
    for (size_t i = 0; i < text.size(); i += symbols.back().first.size()) {
      const auto length = static_cast<size_t>(DecodeUtf8(text, i).length);
      symbols.emplace_back(text.substr(i, length), false);
      for (const auto& [piece, id] : texts_) {
        if (TypeOf(id) != Piece::kUserDefined ||
            !std::string_view(text).substr(i).starts_with(piece)) {
          continue;
        }
        const bool longer = !symbols.back().second || piece.size() > symbols.back().first.size();
        if (longer) symbols.back() = {piece, true};
      }
    }
    return symbols;
  }

  std::vector<std::pair<std::string, int32_t>> Words(const std::string& text) const {
    std::vector<std::pair<std::string, int32_t>> words;
    std::string word;
    for (size_t i = 0; i < text.size();) {
      const std::string character = text.substr(i, static_cast<size_t>(DecodeUtf8(text, i).length));
      if (character == "▁" && !word.empty()) words.emplace_back(std::exchange(word, ""), 0);
      word += character;
      i += character.size();
    }
    if (!word.empty()) words.emplace_back(word, 0);
    for (auto& [piece, id] : words) id = IdOf(piece);
    return words;
  }

  std::vector<std::pair<std::string, int32_t>> Best(const std::string& text) const {
    float lowest = 0;
    float highest = 0;
    for (const Piece& piece : spec_.pieces) {
      if (piece.type == Piece::kNormal) lowest = std::min(lowest, piece.score);
      if (piece.type == Piece::kNormal) highest = std::max(highest, piece.score);
    }
    struct Way {
      bool known = false;
      float score = 0;
      size_t begin = 0;
      int32_t id = 0;
    };
    std::vector<Way> ways(text.size() + 1);
    ways[0].known = true;
    for (size_t end = 1; end <= text.size(); ++end) {
      for (size_t begin = end < 24 ? 0 : end - 24; begin < end; ++begin) {
        if (!ways[begin].known) continue;
        const std::string piece = text.substr(begin, end - begin);
        const bool character = static_cast<size_t>(DecodeUtf8(text, begin).length) == end - begin;
        const auto at = texts_.find(piece);
        const bool found = at != texts_.end() && TypeOf(at->second) != Piece::kUnused;
        if (!found && !character) continue;
        Way way = {true, lowest - 10 + ways[begin].score, begin, others_.at("<unk>")};
        double exact = way.score;
        if (found) {
          way.id = at->second;
          const Piece& known = spec_.pieces[static_cast<size_t>(way.id)];
          exact = known.type == Piece::kUserDefined
                      ? static_cast<float>(piece.size()) * highest - 0.1
                      : known.score;
          exact += ways[begin].score;
          way.score = static_cast<float>(exact);
        }
        if (!ways[end].known || exact > ways[end].score) ways[end] = way;
      }
    }
    std::vector<std::pair<std::string, int32_t>> pieces;
    for (size_t end = text.size(); end > 0; end = ways[end].begin) {
      pieces.emplace_back(text.substr(ways[end].begin, end - ways[end].begin), ways[end].id);
    }
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }

  std::vector<std::pair<std::string, int32_t>> Merged(const std::string& text) const {
    auto symbols = Symbols(text);
    std::map<std::string, std::pair<std::string, std::string>> made;  // of unused pieces
    const auto result = [&](size_t i) -> const Piece* {
      if (i + 1 >= symbols.size() || symbols[i].second || symbols[i + 1].second) return nullptr;
      const auto at = texts_.find(symbols[i].first + symbols[i + 1].first);
      return at == texts_.end() ? nullptr : &spec_.pieces[static_cast<size_t>(at->second)];
    };
    const auto note = [&](size_t i) {
      const Piece* const piece = result(i);
      if (piece != nullptr) made[piece->text] = {symbols[i].first, symbols[i + 1].first};
    };
    for (size_t i = 0; i < symbols.size(); ++i) note(i);
    while (true) {
      size_t best = symbols.size();
      for (size_t i = 0; i < symbols.size(); ++i) {
        if (result(i) == nullptr) continue;
        if (best == symbols.size() || result(i)->score > result(best)->score) best = i;
      }
      if (best == symbols.size()) break;
      symbols[best].first += symbols[best + 1].first;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
      if (best > 0) note(best - 1);
      note(best);
    }
    std::vector<std::pair<std::string, int32_t>> pieces;
    const auto take_apart = [&](const auto& self, const std::string& piece) -> void {
      const int32_t id = IdOf(piece);
      if (TypeOf(id) != Piece::kUnused || !made.contains(piece)) {
        pieces.emplace_back(piece, id);
        return;
      }
      self(self, made[piece].first);
      self(self, made[piece].second);
    };
    for (const auto& [symbol, frozen] : symbols) take_apart(take_apart, symbol);
    return pieces;
  }

  const SentencePieceSpec& spec_;
  std::map<std::string, int32_t> texts_;
  std::map<std::string, int32_t> others_;
};

class RandomModels {
 public:
  explicit RandomModels(uint32_t seed) : generator_(seed) {}

  bool Chance(int percent) { return Below(100) < percent; }
  int Below(int end) { return static_cast<int>(generator_() % static_cast<uint32_t>(end)); }

  std::string Text(int characters) {
    constexpr const char* kCharacters[] = {"a", "b", "c", "▁", "é", "字", "😀"};
    std::string text;
    for (int i = 0; i < characters; ++i) text += kCharacters[Below(Chance(80) ? 4 : 7)];
    return text;
  }
  std::string HostileText() {
    std::string text;
    for (int i = Below(12); i >= 0; --i) {
      text += Text(Below(8));
      if (Chance(40)) text += std::string(static_cast<size_t>(Below(4)), ' ');
      if (Chance(10)) text += static_cast<char>(Below(256));
      if (Chance(2)) text += Text(300);
    }
    return text;
  }
  SentencePieceSpec Spec(int model_type) {
    SentencePieceSpec spec;
    spec.model_type = model_type;
    spec.treat_whitespace_as_suffix = Chance(20);
    spec.byte_fallback = Chance(30);
    spec.normalizer = {"", Chance(70), Chance(60), Chance(80)};
    spec.pieces = {{"<unk>", 0, Piece::kUnknown}, {"</s>", 0, Piece::kControl}};
    if (Chance(10)) spec.pieces.push_back({"c", 0, Piece::kControl});
    for (int byte = 0; spec.byte_fallback && byte < 256; ++byte) {
      spec.pieces.push_back({Reference::ByteName(byte), 0, Piece::kByte});
    }
    const bool odd_types = Chance(50);
    const bool ties = Chance(50);
    std::map<std::string, bool> seen;
    const bool only_first_blanks = Chance(50);
    for (int i = Chance(70) ? 60 : 8; i > 0; --i) {
      std::string text = Text(1 + Below(4));
      if (only_first_blanks) {
        text = Concat(Chance(30) ? "▁" : "", ReplacedAll(text, "▁", "a"));
      }
      if (!seen.emplace(text, true).second) continue;
      const int type = !odd_types || Chance(85) ? Piece::kNormal
                       : Chance(60)             ? Piece::kUnused
                                                : Piece::kUserDefined;
      const float score =
          ties ? static_cast<float>(-Below(6)) : static_cast<float>(-Below(9999)) / 700;
      spec.pieces.push_back({text, score, type});
    }
    return spec;
  }

 private:
  std::mt19937 generator_;
};

class RandomModelTest : public testing::TestWithParam<int> {};

TEST_P(RandomModelTest, GivesTheIdsOfTheReference) {
  RandomModels random(static_cast<uint32_t>(GetParam()));
  size_t num_ids = 0;
  for (int i = 0; i < 100; ++i) {
    const SentencePieceSpec spec = random.Spec(GetParam());
    std::string error;
    const auto model = SentencePieceModel::Parse(MessageOf(spec), &error);
    ASSERT_NE(model, nullptr) << error;
    const Reference reference(spec);
    for (int j = 0; j < 40; ++j) {
      const std::string text = random.HostileText();
      std::vector<int32_t> ids;
      model->Encode(text, &ids);
      ASSERT_EQ(ids, reference.Encode(text)) << i << ": " << text;
      num_ids += ids.size();
    }
  }
  EXPECT_GT(num_ids, 10000u);
}

INSTANTIATE_TEST_SUITE_P(Types, RandomModelTest,
                         testing::Values(SentencePieceSpec::kUnigram, SentencePieceSpec::kBpe,
                                         SentencePieceSpec::kWord, SentencePieceSpec::kCharacter));

TEST(SentencePieceModelTest, PiecesThatDoNotFitTogetherAreNamed) {
  const auto failure = [](const std::vector<Piece>& pieces, bool byte_fallback = false) {
    SentencePieceSpec spec;
    spec.pieces = pieces;
    spec.byte_fallback = byte_fallback;
    std::string error;
    EXPECT_EQ(SentencePieceModel::Parse(MessageOf(spec), &error), nullptr);
    return error;
  };
  const Piece unknown = {"<unk>", 0, Piece::kUnknown};
  const Piece a = {"a", 0, Piece::kNormal};
  const std::string begin = "not a SentencePiece model: ";
  EXPECT_EQ(failure({a}), begin + "no piece is the unknown one");
  EXPECT_EQ(failure({unknown}), begin + "there are no pieces of text");
  EXPECT_EQ(failure({unknown, a, a}), begin + "piece a is defined twice");
  EXPECT_EQ(failure({unknown, a, {"", 0, Piece::kNormal}}), begin + "a piece is empty");
  EXPECT_EQ(failure({unknown, a, {std::string("b\0", 2), 0, Piece::kNormal}}),
            begin + "a piece has a zero byte");
  EXPECT_EQ(failure({unknown, a, {"<u>", 0, Piece::kUnknown}}),
            begin + "two pieces are the unknown one");
  EXPECT_EQ(failure({unknown, a, {"<0x41>", 0, Piece::kByte}}), begin + "piece <0x41> is no byte");
  EXPECT_EQ(failure({unknown, a, {"<0x4g>", 0, Piece::kByte}}, true),
            begin + "piece <0x4g> is no byte");
  EXPECT_EQ(failure({unknown, a, {"<0x41>", 0, Piece::kByte}}, true),
            begin + "pieces for some bytes are missing");
}

}  // namespace
}  // namespace tessera::data
