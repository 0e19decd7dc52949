// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"
#include "core/thread_pool.h"
#include "data/tokenizer/bpe_merges.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/unigram.h"

namespace tessera::data {
namespace {

using LargeParts = std::optional<TokenizerJsonFile::LargeParts>;

using nlohmann::json;

size_t CharacterLength(std::string_view text, size_t at) {
  return static_cast<size_t>(DecodeUtf8(text, at).length);
}

std::string NoId(std::string_view piece, std::string_view id) {
  return Concat("the id of token ", piece, " is ", id, ", not a number in [0, ", kMaxTokenId, ")");
}

class Bpe : public PipelineModel {
 public:
  Status Read(const JsonPart& part, LargeParts* large) {
    const JsonPart dropout = part["dropout"];
    if (!dropout.is_null() && dropout.value() != 0) return dropout.Unsupported();
    TESSERA_ASSIGN_OR_RETURN(unk_token_, part.Text("unk_token", ""));
    TESSERA_ASSIGN_OR_RETURN(prefix_, part.Text("continuing_subword_prefix", ""));
    TESSERA_ASSIGN_OR_RETURN(suffix_, part.Text("end_of_word_suffix", ""));
    TESSERA_ASSIGN_OR_RETURN(fuse_unk_, part.Bool("fuse_unk", false));
    TESSERA_ASSIGN_OR_RETURN(byte_fallback_, part.Bool("byte_fallback", false));
    TESSERA_ASSIGN_OR_RETURN(ignore_merges_, part.Bool("ignore_merges", false));
    if (!*large) {
      TESSERA_ASSIGN_OR_RETURN(VocabEntries vocab, ReadVocab(part["vocab"]));
      TESSERA_ASSIGN_OR_RETURN(BpeRules merges, ReadMerges(part["merges"]));
      *large = {std::move(vocab), std::move(merges), part.place()};
    }
    TESSERA_RETURN_IF_ERROR(vocab_.Set(std::move((*large)->vocab), (*large)->place, [&] {
      return AddMerges((*large)->merges, (*large)->place);
    }));
    if (byte_fallback_) vocab_.FindBytes();
    return OkStatus();
  }

  bool TakeBytes() override {
    if (!prefix_.empty() || !suffix_.empty() || byte_fallback_) return false;
    alphabet_.emplace();
    for (int b = 0; b < 256; ++b) {
      (*alphabet_)[b] = vocab_.Find(BytePiece(static_cast<uint8_t>(b))).value_or(-1);
    }
    return true;
  }

  void Encode(std::string_view word, std::vector<int32_t>* ids) const override {
    ids->clear();
    if (ignore_merges_) {
      if (const auto id = alphabet_ ? vocab_.Find(PieceOfBytes(word)) : vocab_.Find(word)) {
        ids->push_back(*id);
        return;
      }
    }
    if (alphabet_) {
      AppendOfBytes(word, ids);
    } else {
      AppendOfCharacters(word, ids);
    }
    merges_.Apply(ids);
  }

 private:
  void AppendOfBytes(std::string_view word, std::vector<int32_t>* ids) const {
    bool after_unknown = false;
    for (const char c : word) {
      const int32_t id = (*alphabet_)[static_cast<uint8_t>(c)];
      if (id >= 0) {
        ids->push_back(id);
      } else if (unk_id_ && !(after_unknown && fuse_unk_)) {
        ids->push_back(*unk_id_);
      }
      after_unknown = id < 0;
    }
  }

  void AppendOfCharacters(std::string_view word, std::vector<int32_t>* ids) const {
    bool after_unknown = false;
    std::string symbol;
    for (size_t i = 0; i < word.size();) {
      const size_t length = CharacterLength(word, i);
      symbol = i > 0 ? prefix_ : "";
      symbol += word.substr(i, length);
      i += length;
      if (i == word.size()) symbol += suffix_;
      if (const auto id = vocab_.Find(symbol)) {
        ids->push_back(*id);
        after_unknown = false;
      } else if (byte_fallback_ && vocab_.AppendBytes(symbol, ids)) {
        after_unknown = false;
      } else if (unk_id_) {
        if (!after_unknown || !fuse_unk_) ids->push_back(*unk_id_);
        after_unknown = true;
      }
    }
  }

  Status AddMerges(const BpeRules& merges, const std::string& place) {
    const VocabEntries& vocab = vocab_.entries();
    if (const std::string* twice = vocab_.index().twice()) {
      return InvalidArgument(place, ": token ", *twice, " has two ids");
    }
    merges_ = BpeMerges(merges.size());
    constexpr size_t kAtOnce = VocabIndex::kAtOnce / 2;
    std::string_view pieces[2 * kAtOnce];  // of each merge the left one and the right one
    int32_t ids[2 * kAtOnce];
    std::string both;
    // The entry that a merge probably makes: most vocabularies list merged pieces as `merges` does.
    size_t next = 0;
    for (size_t begin = 0; begin < merges.size(); begin += kAtOnce) {
      const size_t count = std::min(kAtOnce, merges.size() - begin);
      for (size_t i = 0; i < count; ++i) {
        std::tie(pieces[2 * i], pieces[2 * i + 1]) = merges[begin + i];
      }
      vocab_.index().FindAll({pieces, 2 * count}, ids);
      for (size_t i = 0; i < count; ++i) merges_.Prefetch(ids[2 * i], ids[2 * i + 1]);
      for (size_t i = 0; i < count; ++i) {
        const auto& [left, right] = merges[begin + i];
        const bool continues = !prefix_.empty() && right.starts_with(prefix_);
        both.assign(left).append(right, continues ? prefix_.size() : 0);
        const bool follows = next < vocab.size() && vocab[next].first == both;
        const std::optional<int32_t> result = follows ? vocab[next].second : vocab_.Find(both);
        if (ids[2 * i] < 0 || ids[2 * i + 1] < 0 || !result) {
          const std::string& missing = ids[2 * i] < 0 ? left : ids[2 * i + 1] < 0 ? right : both;
          return InvalidArgument(place, ": merge ", begin + i, " (", left, " ", right,
                                 ") needs the token ", missing, ", which the vocabulary lacks");
        }
        next = static_cast<size_t>(*result) + 1;
        merges_.Add(ids[2 * i], ids[2 * i + 1], static_cast<int32_t>(begin + i), *result);
      }
    }
    return OkStatus();
  }

  BpeMerges merges_;
  std::string prefix_;
  std::string suffix_;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  // Of words that are bytes: their ids, < 0 where a byte has no token.
  std::optional<std::array<int32_t, 256>> alphabet_;
};

// The vocabulary of a model without merges, which may have been read apart.
class VocabModel : public PipelineModel {
 protected:
  Status TakeVocab(const JsonPart& part, LargeParts* large) {
    if (!*large) {
      TESSERA_ASSIGN_OR_RETURN(VocabEntries vocab, ReadVocab(part["vocab"]));
      *large = {std::move(vocab), {}, part.place()};
    }
    return vocab_.Set(std::move((*large)->vocab), (*large)->place);
  }
};

// Schuster and Nakajima 2012.
class WordPieces : public VocabModel {
 public:
  Status Read(const JsonPart& part, LargeParts* large) {
    TESSERA_RETURN_IF_ERROR(TakeVocab(part, large));
    TESSERA_ASSIGN_OR_RETURN(unk_token_, part.Text("unk_token", "[UNK]"));
    if (unk_token_.empty()) return part["unk_token"].Wrong("missing");
    TESSERA_ASSIGN_OR_RETURN(const std::string prefix,
                             part.Text("continuing_subword_prefix", "##"));
    TESSERA_ASSIGN_OR_RETURN(const int64_t most, part.Count("max_input_chars_per_word", 100));
    most_characters_ = most;
    for (const auto& [piece, id] : vocab_.entries()) {
      if (piece.empty() || vocab_.Find(piece) != id) continue;  // of equal pieces the first one
      begins_[piece] = id;
      if (piece.starts_with(prefix) && piece.size() > prefix.size()) {
        continues_[piece.substr(prefix.size())] = id;
      }
      longest_ = std::max(longest_, piece.size());
    }
    return OkStatus();
  }

  // The longest piece that the word begins with, then the longest that the rest does.
  void Encode(std::string_view word, std::vector<int32_t>* ids) const override {
    ids->clear();
    size_t begin = 0;
    if (std::count_if(word.begin(), word.end(), BeginsCharacter) <= most_characters_) {
      while (begin < word.size()) {
        const Pieces& pieces = begin == 0 ? begins_ : continues_;
        size_t length = std::min(word.size() - begin, longest_);
        auto found = pieces.end();
        for (; length > 0; --length) {
          if (begin + length < word.size() && !BeginsCharacter(word[begin + length])) continue;
          found = pieces.find(word.substr(begin, length));
          if (found != pieces.end()) break;
        }
        if (length == 0) break;
        ids->push_back(found->second);
        begin += length;
      }
    }
    if (begin < word.size()) *ids = {unk_id_.value_or(0)};
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Pieces = std::unordered_map<std::string, int32_t, Hash, std::equal_to<>>;

  static bool BeginsCharacter(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

  int64_t most_characters_ = 0;
  Pieces begins_;       // as they are written: what a word begins with
  Pieces continues_;    // those behind, without the prefix
  size_t longest_ = 0;  // bytes of the longest piece
};

// A piece for every word.
class WordLevel : public VocabModel {
 public:
  Status Read(const JsonPart& part, LargeParts* large) {
    TESSERA_RETURN_IF_ERROR(TakeVocab(part, large));
    TESSERA_ASSIGN_OR_RETURN(unk_token_, part.Text("unk_token", "<unk>"));
    return unk_token_.empty() ? part["unk_token"].Wrong("missing") : OkStatus();
  }

  void Encode(std::string_view word, std::vector<int32_t>* ids) const override {
    *ids = {vocab_.Find(word).value_or(unk_id_.value_or(0))};
  }
};

class UnigramPieces : public PipelineModel {
 public:
  Status Read(const JsonPart& part, LargeParts*) {
    constexpr double kUnknownPenalty = 10;
    const JsonPart vocab = part["vocab"];
    if (vocab.size() == 0) return vocab.Wrong("not an array of pieces and scores");
    if (std::ssize(vocab.value()) > kMaxTokenId) return vocab.Wrong("too many pieces");
    std::vector<double> scores;
    std::vector<ByteTrie::Entry> entries;
    double lowest = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < vocab.size(); ++i) {
      const json& item = vocab.value()[i];
      if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
        return vocab[i].Wrong("not a piece and its score");
      }
      const auto& piece = item[0].get_ref<const std::string&>();
      const double score = item[1].get<double>();
      if (!std::isfinite(score)) return vocab[i].Wrong("the score is no number");
      scores.push_back(score);
      lowest = std::min(lowest, score);
      entries.emplace_back(piece, static_cast<int32_t>(i));
    }
    const auto count = std::ssize(scores);
    // Of equal pieces the last one is found.
    TESSERA_RETURN_IF_ERROR(
        vocab_.Set(VocabEntries(entries.rbegin(), entries.rend()), vocab.place()));
    unigram_ = {std::move(entries), std::move(scores), lowest - kUnknownPenalty};
    if (!part["unk_id"].is_null()) {
      TESSERA_ASSIGN_OR_RETURN(const int64_t unk, part.Count("unk_id", 0));
      if (unk >= count) return part["unk_id"].Wrong("not an id of the vocabulary");
      unk_id_ = static_cast<int32_t>(unk);
    }
    TESSERA_ASSIGN_OR_RETURN(byte_fallback_, part.Bool("byte_fallback", false));
    if (byte_fallback_) vocab_.FindBytes();
    return OkStatus();
  }

  void Encode(std::string_view word, std::vector<int32_t>* ids) const override {
    ids->clear();
    std::vector<Unigram<double>::Piece> pieces;
    unigram_.Segment(word, &pieces);
    const auto unknown = [this](int32_t id) {
      return id == Unigram<double>::kUnknown || (unk_id_ && id == *unk_id_);
    };
    for (size_t i = 0; i < pieces.size();) {
      // Unknown characters beside each other are one piece.
      size_t next = i + 1;
      while (unknown(pieces[i].id) && next < pieces.size() && unknown(pieces[next].id)) ++next;
      const std::string_view text =
          word.substr(pieces[i].begin, pieces[next - 1].end - pieces[i].begin);
      if (const auto id = vocab_.Find(text)) {
        ids->push_back(*id);
      } else if (!(byte_fallback_ && vocab_.AppendBytes(text, ids)) && unk_id_) {
        ids->push_back(*unk_id_);
      }
      i = next;
    }
  }

 private:
  Unigram<double> unigram_;
  bool byte_fallback_ = false;
};

template <typename Model>
StatusOr<std::unique_ptr<PipelineModel>> Make(const JsonPart& part, LargeParts* large) {
  auto model = std::make_unique<Model>();
  TESSERA_RETURN_IF_ERROR(model->Read(part, large));
  return std::unique_ptr<PipelineModel>(std::move(model));
}

}  // namespace

StatusOr<VocabEntries> ReadVocab(const JsonPart& part) {
  if (!part.value().is_object()) return part.Wrong("the vocabulary is not a JSON object");
  if (part.value().empty()) return part.Wrong("the vocabulary is empty");
  VocabEntries vocab;
  vocab.reserve(part.value().size());
  for (const auto& [piece, id] : part.value().items()) {
    const int64_t value = id.is_number_integer() ? id.get<int64_t>() : -1;
    if (value < 0 || value >= kMaxTokenId) return part.Wrong(NoId(piece, id.dump()));
    vocab.emplace_back(piece, static_cast<int32_t>(value));
  }
  return vocab;
}

StatusOr<BpeRules> ReadMerges(const JsonPart& part) {
  if (!part.value().is_array()) return part.Wrong("not an array");
  BpeRules merges;
  merges.reserve(part.size());
  for (size_t i = 0; i < part.size(); ++i) {
    const json& merge = part.value()[i];
    std::string left;
    std::string right;
    if (merge.is_string()) {
      const auto& line = merge.get_ref<const std::string&>();
      const size_t space = line.find(' ');
      left = line.substr(0, space);
      if (space != std::string::npos) right = line.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    if (left.empty() || right.empty()) return part[i].Wrong("neither \"a b\" nor [\"a\", \"b\"]");
    merges.emplace_back(std::move(left), std::move(right));
  }
  return merges;
}

Status PipelineVocab::Set(VocabEntries entries, const std::string& place,
                          const std::function<Status()>& then) {
  entries_ = std::move(entries);
  Status parts[2];  // neither reads what the other writes
  ParallelFor(2, /*grain=*/1, [&](int64_t part, int64_t) {
    if (part == 0) {
      parts[0] = SetPlaces(place);
    } else {
      index_ = VocabIndex(&entries_);
      parts[1] = then();
    }
  });
  for (const Status& part : parts) TESSERA_RETURN_IF_ERROR(part);
  return OkStatus();
}

Status PipelineVocab::SetPlaces(const std::string& place) {
  places_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto& [piece, id] = entries_[i];
    if (id < 0 || id >= kMaxTokenId) {
      return InvalidArgument(place, ": ", NoId(piece, std::to_string(id)));
    }
    const auto index = static_cast<size_t>(id);
    if (index >= places_.size()) places_.resize(index + 1, -1);
    if (places_[index] >= 0) {
      return InvalidArgument(place, ": id ", id, " is given to two tokens, ", Piece(id), " and ",
                             piece);
    }
    places_[index] = static_cast<int32_t>(i);
  }
  return OkStatus();
}

std::string_view PipelineVocab::Piece(int32_t id) const {
  if (id < 0 || id >= size() || places_[static_cast<size_t>(id)] < 0) return {};
  return entries_[static_cast<size_t>(places_[static_cast<size_t>(id)])].first;
}

void PipelineVocab::FindBytes() {
  constexpr char kDigits[] = "0123456789ABCDEF";
  byte_ids_.clear();
  for (int b = 0; b < 256; ++b) {
    const char name[] = {'<', '0', 'x', kDigits[b >> 4], kDigits[b & 15], '>'};
    byte_ids_.push_back(Find(std::string_view(name, sizeof(name))).value_or(-1));
  }
}

bool PipelineVocab::AppendBytes(std::string_view text, std::vector<int32_t>* ids) const {
  const auto id_of = [this](char c) {
    return byte_ids_.empty() ? -1 : byte_ids_[static_cast<uint8_t>(c)];
  };
  if (std::any_of(text.begin(), text.end(), [&](char c) { return id_of(c) < 0; })) return false;
  for (const char c : text) ids->push_back(id_of(c));
  return true;
}

StatusOr<std::unique_ptr<PipelineModel>> PipelineModel::Parse(const JsonPart& part,
                                                              LargeParts* large) {
  if (!part.value().is_object()) return part.Wrong("not an object");
  const std::string_view type = part.type();
  // Files of the first versions leave the type out.
  if (type == "BPE" || (type.empty() && !part["merges"].is_null())) return Make<Bpe>(part, large);
  if (type == "WordPiece") return Make<WordPieces>(part, large);
  if (type == "WordLevel") return Make<WordLevel>(part, large);
  if (type == "Unigram") return Make<UnigramPieces>(part, large);
  return part.Unsupported();
}

}  // namespace tessera::data
