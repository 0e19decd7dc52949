// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/utf8.h"
#include "data/tokenizer/bpe_merges.h"
#include "data/tokenizer/unigram.h"
#include "data/tokenizer/word_piece_vocab.h"

namespace tessera::data {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = 1 << 22;

size_t CharacterLength(std::string_view text, size_t at) {
  return static_cast<size_t>(DecodeUtf8(text, at).length);
}

// {"piece": id, ...}
Status ReadVocab(const JsonPart& part, PipelineVocab* vocab) {
  if (!part.value().is_object() || part.value().empty()) {
    return part.Wrong("not a JSON object of pieces");
  }
  for (const auto& [piece, id] : part.value().items()) {
    if (!id.is_number_integer()) return part.Wrong(Concat("the id of ", piece, " is no number"));
    TESSERA_RETURN_IF_ERROR(vocab->Add(piece, id.get<int64_t>(), part));
  }
  return OkStatus();
}

StatusOr<std::optional<int32_t>> ReadUnknown(const JsonPart& part, const PipelineVocab& vocab) {
  TESSERA_ASSIGN_OR_RETURN(const std::string unk, part.Text("unk_token", ""));
  if (unk.empty()) return std::optional<int32_t>();
  const auto id = vocab.Find(unk);
  if (!id) return part["unk_token"].Wrong(unk + " is not in the vocabulary");
  return id;
}

class Bpe : public PipelineModel {
 public:
  Status Read(const JsonPart& part) {
    const JsonPart dropout = part["dropout"];
    if (!dropout.is_null() && dropout.value() != 0) return dropout.Unsupported();
    TESSERA_RETURN_IF_ERROR(ReadVocab(part["vocab"], &vocab_));
    TESSERA_ASSIGN_OR_RETURN(unk_id_, ReadUnknown(part, vocab_));
    TESSERA_ASSIGN_OR_RETURN(prefix_, part.Text("continuing_subword_prefix", ""));
    TESSERA_ASSIGN_OR_RETURN(suffix_, part.Text("end_of_word_suffix", ""));
    TESSERA_ASSIGN_OR_RETURN(fuse_unk_, part.Bool("fuse_unk", false));
    TESSERA_ASSIGN_OR_RETURN(byte_fallback_, part.Bool("byte_fallback", false));
    TESSERA_ASSIGN_OR_RETURN(ignore_merges_, part.Bool("ignore_merges", false));
    if (byte_fallback_) vocab_.FindBytes();
    return ReadMerges(part["merges"]);
  }

  void Encode(std::string_view word, std::vector<int32_t>* ids) const override {
    if (ignore_merges_) {
      if (const auto id = vocab_.Find(word)) {
        ids->push_back(*id);
        return;
      }
    }
    std::vector<int32_t> parts;
    bool after_unknown = false;
    std::string symbol;
    for (size_t i = 0; i < word.size();) {
      const size_t length = CharacterLength(word, i);
      const std::string_view character = word.substr(i, length);
      symbol = (i > 0 ? prefix_ : "") + std::string(character);
      i += length;
      if (i == word.size()) symbol += suffix_;
      if (const auto id = vocab_.Find(symbol)) {
        parts.push_back(*id);
        after_unknown = false;
      } else if (byte_fallback_ && vocab_.AppendBytes(symbol, &parts)) {
        after_unknown = false;
      } else if (unk_id_) {
        if (!after_unknown || !fuse_unk_) parts.push_back(*unk_id_);
        after_unknown = true;
      }
    }
    merges_.Apply(&parts);
    ids->insert(ids->end(), parts.begin(), parts.end());
  }

 private:
  Status ReadMerges(const JsonPart& part) {
    if (!part.value().is_array()) return part.Wrong("not an array");
    merges_ = BpeMerges(part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      const json& merge = part.value()[i];
      std::string left;
      std::string right;
      if (merge.is_string()) {
        const auto& line = merge.get_ref<const std::string&>();
        const size_t space = line.find(' ');
        if (space != std::string::npos) {
          left = line.substr(0, space);
          right = line.substr(space + 1);
        }
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      }
      if (left.empty() || right.empty()) return part[i].Wrong("not two pieces");
      const auto left_id = vocab_.Find(left);
      const auto right_id = vocab_.Find(right);
      if (!left_id || !right_id) {
        return part[i].Wrong((left_id ? right : left) + " is not in the vocabulary");
      }
      const bool continues = !prefix_.empty() && right.starts_with(prefix_);
      const auto result = vocab_.Find(left + right.substr(continues ? prefix_.size() : 0));
      if (!result) return part[i].Wrong(left + right + " is not in the vocabulary");
      merges_.Add(*left_id, *right_id, static_cast<int32_t>(i), *result);
    }
    return OkStatus();
  }

  BpeMerges merges_;
  std::optional<int32_t> unk_id_;
  std::string prefix_;
  std::string suffix_;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

class WordPieces : public PipelineModel {
 public:
  Status Read(const JsonPart& part) {
    TESSERA_RETURN_IF_ERROR(ReadVocab(part["vocab"], &vocab_));
    TESSERA_ASSIGN_OR_RETURN(const auto unk_id, ReadUnknown(part, vocab_));
    if (!unk_id) return part["unk_token"].Wrong("missing");
    TESSERA_ASSIGN_OR_RETURN(const std::string prefix,
                             part.Text("continuing_subword_prefix", "##"));
    TESSERA_ASSIGN_OR_RETURN(const int64_t most, part.Count("max_input_chars_per_word", 100));
    pieces_ = WordPieceVocab(prefix, *unk_id, most);
    const std::vector<std::string>& pieces = vocab_.pieces();
    for (size_t id = 0; id < pieces.size(); ++id) {
      if (!pieces[id].empty()) pieces_.Add(pieces[id], static_cast<int32_t>(id));
    }
    return OkStatus();
  }

  void Encode(std::string_view word, std::vector<int32_t>* ids) const override {
    pieces_.Encode(word, ids);
  }

 private:
  WordPieceVocab pieces_;
};

class UnigramPieces : public PipelineModel {
 public:
  Status Read(const JsonPart& part) {
    constexpr double kUnknownPenalty = 10;
    const JsonPart vocab = part["vocab"];
    if (vocab.size() == 0) return vocab.Wrong("not an array of pieces and scores");
    if (std::ssize(vocab.value()) > kMaxId) return vocab.Wrong("too many pieces");
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
      TESSERA_RETURN_IF_ERROR(vocab_.Add(piece, static_cast<int64_t>(i), vocab));
      scores.push_back(score);
      lowest = std::min(lowest, score);
      entries.emplace_back(piece, static_cast<int32_t>(i));
    }
    const auto count = std::ssize(scores);
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
  std::optional<int32_t> unk_id_;
  bool byte_fallback_ = false;
};

template <typename Model>
StatusOr<std::unique_ptr<PipelineModel>> Make(const JsonPart& part) {
  auto model = std::make_unique<Model>();
  TESSERA_RETURN_IF_ERROR(model->Read(part));
  return std::unique_ptr<PipelineModel>(std::move(model));
}

}  // namespace

Status PipelineVocab::Add(std::string piece, int64_t id, const JsonPart& place) {
  if (id < 0 || id >= kMaxId) {
    return place.Wrong(Concat("the id of ", piece, " is ", id, ", not in [0, ", kMaxId, ")"));
  }
  const auto index = static_cast<size_t>(id);
  if (index >= pieces_.size()) pieces_.resize(index + 1);
  if (!pieces_[index].empty()) {
    return place.Wrong(Concat("id ", id, " is that of ", pieces_[index], " and of ", piece));
  }
  pieces_[index] = piece;
  ids_.insert_or_assign(std::move(piece), static_cast<int32_t>(id));
  return OkStatus();
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

StatusOr<std::unique_ptr<PipelineModel>> PipelineModel::Parse(const JsonPart& part) {
  if (!part.value().is_object()) return part.Wrong("not an object");
  const std::string_view type = part.type();
  // Files of the first versions leave the type out.
  if (type == "BPE" || (type.empty() && !part["merges"].is_null())) return Make<Bpe>(part);
  if (type == "WordPiece") return Make<WordPieces>(part);
  if (type == "Unigram") return Make<UnigramPieces>(part);
  return part.Unsupported();
}

}  // namespace tessera::data
