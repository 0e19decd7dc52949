// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/tokenize.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "core/thread_pool.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/indexed_dataset_writer.h"
#include "data/dataset/token_cache.h"
#include "data/tokenizer/char_tokenizer.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

// Small documents are collected up to this many bytes and encoded together; larger ones alone.
constexpr size_t kBatchBytes = 4 << 20;

// What is put around every document.
struct DocumentFrame {
  std::vector<int32_t> begin;
  std::optional<int32_t> end;
};

// Encodes documents in the order in which they come.
class DocumentEncoder {
 public:
  DocumentEncoder(const Tokenizer& tokenizer, const TokenizeOptions& options, DocumentFrame frame,
                  IndexedDatasetWriter* writer)
      : tokenizer_(tokenizer), options_(options), frame_(std::move(frame)), writer_(writer) {}

  Status Add(std::string_view text) {
    if (text.size() > kBatchBytes / 8) {
      TESSERA_RETURN_IF_ERROR(Flush());
      return Write(Encode(text));  // in parallel within the document
    }
    waiting_.emplace_back(text);
    waiting_bytes_ += text.size();
    return waiting_bytes_ < kBatchBytes ? OkStatus() : Flush();
  }

  Status Flush() {
    std::vector<std::vector<int32_t>> ids(waiting_.size());
    ParallelFor(std::ssize(waiting_), /*grain=*/1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ids[i] = Encode(waiting_[i]);
    });
    waiting_.clear();
    waiting_bytes_ = 0;
    for (const std::vector<int32_t>& document : ids) TESSERA_RETURN_IF_ERROR(Write(document));
    return OkStatus();
  }

 private:
  std::vector<int32_t> Encode(std::string_view text) const {
    std::vector<int32_t> ids = frame_.begin;
    const auto encoded = tokenizer_.Encode(text, {.parse_special = options_.parse_special});
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    if (frame_.end) ids.push_back(*frame_.end);
    return ids;
  }

  Status Write(const std::vector<int32_t>& ids) {
    TESSERA_RETURN_IF_ERROR(writer_->AddSequence(ids));
    writer_->EndDocument();
    return OkStatus();
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  const DocumentFrame frame_;
  IndexedDatasetWriter* writer_;
  std::vector<std::string> waiting_;
  size_t waiting_bytes_ = 0;
};

// BERT's tokenizers have no end of text: [SEP] ends theirs.
std::optional<int32_t> EndOfDocument(const Tokenizer& tokenizer) {
  return tokenizer.eos_id() ? tokenizer.eos_id() : tokenizer.sep_id();
}

// All files of a folder are read, except those whose names begin with a dot. A dataset in that
// folder would be read the next time, and so would the run that the dataset belongs to.
Status CheckLiesOutside(const std::string& prefix, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> named, FilesOfData(input));
    if (named.front() != input || !IsDirectory(input)) continue;
    std::error_code error;
    const fs::path way =
        fs::weakly_canonical(prefix, error).lexically_relative(fs::weakly_canonical(input, error));
    const bool outside = std::any_of(way.begin(), way.end(), [](const fs::path& part) {
      return part.string().starts_with('.');
    });
    if (error || way.empty() || outside) continue;
    return InvalidArgument(prefix, ": lies in the data ", input,
                           ", all of whose files are read; write to another folder");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& spec,
                                                   const std::vector<std::string>& inputs,
                                                   const TextInputOptions& options) {
  if (spec != "char") return LoadTokenizer(spec);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListInputFiles(inputs));
  CharTokenizer::Trainer trainer;
  TESSERA_RETURN_IF_ERROR(ForEachDocument(
      files, options,
      [&](std::string_view text, const std::string& where) { return trainer.Add(text, where); }));
  return std::unique_ptr<Tokenizer>(trainer.Finish());
}

StatusOr<TokenizeResult> TokenizeToIndexedDataset(const Tokenizer& tokenizer,
                                                  const std::vector<std::string>& inputs,
                                                  const std::string& prefix,
                                                  const TokenizeOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListInputFiles(inputs));
  TESSERA_RETURN_IF_ERROR(CheckLiesOutside(prefix, inputs));
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json made_from, DescribeFiles(files));
  made_from.update({{"layout", 2},
                    {"tokenizer", tokenizer.Fingerprint()},
                    {"append_eos", options.append_eos},
                    {"parse_special", options.parse_special},
                    {"format", static_cast<int>(options.input.format)},
                    {"json_key", ReplaceInvalidUtf8(options.input.json_key)}});
  DocumentFrame frame;
  if (options.prepend_begin) frame.begin = tokenizer.text_begin();
  if (options.append_eos) frame.end = EndOfDocument(tokenizer);
  if (!frame.begin.empty()) made_from["begin"] = frame.begin;
  if (frame.end && !tokenizer.eos_id()) made_from["end"] = *frame.end;
  const auto encode = [&](IndexedDatasetWriter* writer) -> StatusOr<nlohmann::json> {
    DocumentEncoder encoder(tokenizer, options, frame, writer);
    TESSERA_RETURN_IF_ERROR(ForEachDocument(
        files, options.input,
        [&](std::string_view text, const std::string&) { return encoder.Add(text); }));
    TESSERA_RETURN_IF_ERROR(encoder.Flush());
    if (writer->num_tokens() == 0) return InvalidArgument(inputs[0], ": no text to tokenise");
    return nlohmann::json();
  };
  TESSERA_ASSIGN_OR_RETURN(
      const CachedTokens cached,
      TokensMadeOnce(prefix, made_from,
                     {.vocab_size = tokenizer.vocab_size(), .reuse = options.reuse}, encode));
  return TokenizeResult{cached.tokens->num_documents(), cached.tokens->num_tokens(), cached.reused};
}

}  // namespace tessera::data
