// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_decoder.h"

#include <optional>
#include <utility>

#include "base/python_text.h"
#include "base/utf8.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/pipeline_normalizer.h"

namespace tessera::data {
namespace {

using Pieces = std::vector<std::string>;

// The byte of "<0xE5>".
std::optional<char> ByteOf(const std::string& piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : {piece[3], piece[4]}) {
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

// Runs of byte pieces become the text they spell; of a run that spells none each byte is U+FFFD.
void JoinBytes(Pieces* pieces) {
  Pieces out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (FindInvalidUtf8(run) == kNoInvalidUtf8) {
      out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), "\uFFFD");
    }
    run.clear();
  };
  for (std::string& piece : *pieces) {
    if (const auto byte = ByteOf(piece)) {
      run.push_back(*byte);
    } else {
      flush();
      out.push_back(std::move(piece));
    }
  }
  flush();
  *pieces = std::move(out);
}

void ByteLevelText(Pieces* pieces) {
  std::string text;
  for (const std::string& piece : *pieces) {
    const auto bytes = BytesOfPiece(piece);
    text += bytes ? *bytes : piece;
  }
  *pieces = {std::move(text)};
}

// Blanks that stand for `content` characters of one kind at the ends of each piece.
std::string StrippedOf(std::string_view piece, std::string_view content, int64_t start,
                       int64_t stop) {
  for (; start > 0 && !content.empty() && piece.starts_with(content); --start) {
    piece.remove_prefix(content.size());
  }
  for (; stop > 0 && !content.empty() && piece.ends_with(content); --stop) {
    piece.remove_suffix(content.size());
  }
  return std::string(piece);
}

// As BERT's tokenizer glues punctuation, piece by piece.
std::string CleanedUp(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kGlued[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kGlued) text = ReplacedAll(text, from, to);
  return text;
}

}  // namespace

StatusOr<PipelineDecoder> PipelineDecoder::Parse(const JsonPart& part) {
  PipelineDecoder result;
  result.joins_by_blanks_ = part.is_null();
  if (!part.is_null()) TESSERA_RETURN_IF_ERROR(result.Add(part));
  return result;
}

Status PipelineDecoder::Add(const JsonPart& part) {
  const std::string_view type = part.type();
  if (type == "Sequence") {
    const JsonPart all = part["decoders"];
    for (size_t i = 0; i < all.size(); ++i) TESSERA_RETURN_IF_ERROR(Add(all[i]));
  } else if (type == "ByteLevel") {
    steps_.push_back(ByteLevelText);
  } else if (type == "ByteFallback") {
    steps_.push_back(JoinBytes);
  } else if (type == "Fuse") {
    steps_.push_back([](Pieces* pieces) {
      std::string all;
      for (const std::string& piece : *pieces) all += piece;
      *pieces = {std::move(all)};
    });
  } else if (type == "Replace") {
    TESSERA_ASSIGN_OR_RETURN(const TextPattern pattern, TextPattern::Parse(part["pattern"]));
    TESSERA_ASSIGN_OR_RETURN(const std::string content, part.Text("content", ""));
    steps_.push_back([pattern, content](Pieces* pieces) {
      for (std::string& piece : *pieces) {
        if (FindInvalidUtf8(piece) == kNoInvalidUtf8) {
          piece = ReplacedMatches(pattern, piece, content);
        }
      }
    });
  } else if (type == "Strip") {
    TESSERA_ASSIGN_OR_RETURN(const std::string content, part.Text("content", " "));
    TESSERA_ASSIGN_OR_RETURN(const int64_t start, part.Count("start", 0));
    TESSERA_ASSIGN_OR_RETURN(const int64_t stop, part.Count("stop", 0));
    steps_.push_back([=](Pieces* pieces) {
      for (std::string& piece : *pieces) piece = StrippedOf(piece, content, start, stop);
    });
  } else if (type == "Metaspace") {
    TESSERA_ASSIGN_OR_RETURN(const std::string replacement, part.Text("replacement", "▁"));
    TESSERA_ASSIGN_OR_RETURN(const bool old_prefix, part.Bool("add_prefix_space", true));
    TESSERA_ASSIGN_OR_RETURN(const std::string scheme,
                             part.Text("prepend_scheme", old_prefix ? "always" : "never"));
    if (replacement.empty()) return part["replacement"].Wrong("empty");
    // The replacement that stood in front of the text is dropped, wherever it occurs in the first
    // piece.
    steps_.push_back([replacement, drops = scheme != "never"](Pieces* pieces) {
      for (size_t i = 0; i < pieces->size(); ++i) {
        (*pieces)[i] = ReplacedAll((*pieces)[i], replacement, i == 0 && drops ? "" : " ");
      }
    });
  } else if (type == "BPEDecoder") {
    TESSERA_ASSIGN_OR_RETURN(const std::string suffix, part.Text("suffix", "</w>"));
    if (suffix.empty()) return part["suffix"].Wrong("empty");
    steps_.push_back([suffix](Pieces* pieces) {
      for (size_t i = 0; i < pieces->size(); ++i) {
        const bool last = i + 1 == pieces->size();
        (*pieces)[i] = ReplacedAll((*pieces)[i], suffix, last ? "" : " ");
      }
    });
  } else if (type == "WordPiece") {
    TESSERA_ASSIGN_OR_RETURN(const std::string prefix, part.Text("prefix", "##"));
    TESSERA_ASSIGN_OR_RETURN(const bool cleanup, part.Bool("cleanup", true));
    steps_.push_back([prefix, cleanup](Pieces* pieces) {
      for (size_t i = 0; i < pieces->size(); ++i) {
        std::string& piece = (*pieces)[i];
        if (i > 0) {
          piece = piece.starts_with(prefix) ? piece.substr(prefix.size()) : " " + piece;
        }
        if (cleanup) piece = CleanedUp(std::move(piece));
      }
    });
  } else {
    return part.Unsupported();
  }
  return OkStatus();
}

std::string PipelineDecoder::Decode(std::vector<std::string> pieces) const {
  for (const Step& step : steps_) step(&pieces);
  std::string text;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0 && joins_by_blanks_) text += ' ';
    text += pieces[i];
  }
  return text;
}

}  // namespace tessera::data
