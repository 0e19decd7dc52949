// SPDX-License-Identifier: Apache-2.0
#include "corpus/tokenize/tokenize.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "corpus/engine/scratch.h"
#include "data/dataset/indexed_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::corpus {
namespace {

// What is in the file of lengths for a sequence: its length, and below 0 where its document
// continues with the next one.
int32_t LengthEntry(int64_t length, bool last) {
  return static_cast<int32_t>(last ? length : -length);
}

template <typename T>
void AppendIds(std::span<const int32_t> ids, std::string* out) {
  const std::vector<T> values(ids.begin(), ids.end());
  out->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::string KeyOf(uint64_t fingerprint, const TokenizeOptions& options) {
  return absl::StrFormat("%016x-%d", fingerprint, options.seq_len.value_or(0));
}

// The index of what the passes wrote.
Status WriteIndex(const std::string& prefix, const std::string& lengths_path,
                  data::TokenType type) {
  TESSERA_ASSIGN_OR_RETURN(const RandomFile file, RandomFile::Open(lengths_path));
  TESSERA_ASSIGN_OR_RETURN(std::vector<int32_t> lengths,
                           file.ReadAll<int32_t>(0, file.size() / int64_t{sizeof(int32_t)}));
  std::vector<int64_t> documents = {0};
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= 0) documents.push_back(static_cast<int64_t>(i) + 1);
    lengths[i] = std::abs(lengths[i]);
  }
  TESSERA_ASSIGN_OR_RETURN(AtomicFile index, AtomicFile::Create(prefix + ".idx"));
  TESSERA_RETURN_IF_ERROR(data::WriteTokenIndex(&index, type, lengths, documents));
  return index.Commit();
}

}  // namespace

const OptionTable& TokenizeOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<TokenizeOptions>("Tokens")
          .Include<TokenizeOptions, StepFiles>()
          .Add("tokenizer", &TokenizeOptions::tokenizer, "a tokenizer's folder, or `byte`")
          .Add("seq_len", &TokenizeOptions::seq_len,
               "most tokens of a sequence; longer documents are several",
               {.least = 1, .most = 1 << 30, .unset = "a document is one"})
          .Add("bos", &TokenizeOptions::bos,
               "before each document what the tokenizer has before a text (Llama's <s>)")
          .Add("eos", &TokenizeOptions::eos, "the end-of-text token after each document"));
  return *table;
}

StatusOr<Counts> RunTokenize(const TokenizeOptions& options, const RunContext& context) {
  if (options.tokenizer.empty()) return InvalidArgument("tokenize: tokenizer is missing");
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<data::Tokenizer> tokenizer,
                           data::LoadTokenizer(options.tokenizer));
  const data::TokenType type = data::TokenTypeFor(tokenizer->vocab_size());
  DocumentPass pass;
  pass.name = "tokenize";
  static_cast<StepFiles&>(pass.files) = options;
  pass.made_from = {{"key", KeyOf(tokenizer->Fingerprint(), options)}, {"eos", options.eos}};
  const std::vector<int32_t> before =
      options.bos ? tokenizer->text_begin() : std::vector<int32_t>();
  if (!before.empty()) pass.made_from["begin"] = before;
  TESSERA_ASSIGN_OR_RETURN(BlockRun whole, MakeBlockRun(pass));
  std::string prefix = options.output;
  if (const size_t place = prefix.find("{key}"); place != std::string::npos) {
    prefix.replace(place, 5, KeyOf(tokenizer->Fingerprint(), options));
  }
  const std::string folder = prefix + ".work";
  BlockRun run = whole;
  run.outputs = {prefix + ".bin", JoinPath(folder, "lengths")};
  whole.outputs = {prefix + ".bin", prefix + ".idx"};
  run.work = [&](const Block& block, BlockResult* result) -> Status {
    CountDocuments(block, options.text_key, &result->counts, [&](Document& document) {
      if (document.text().empty()) return false;
      std::vector<int32_t> ids = before;
      const std::vector<int32_t> encoded = tokenizer->Encode(document.text());
      ids.insert(ids.end(), encoded.begin(), encoded.end());
      if (options.eos && tokenizer->eos_id()) ids.push_back(*tokenizer->eos_id());
      if (ids.empty()) return false;
      if (type == data::TokenType::kUint16) {
        AppendIds<uint16_t>(ids, &result->outputs[0]);
      } else {
        AppendIds<int32_t>(ids, &result->outputs[0]);
      }
      const int64_t most = options.seq_len.value_or(std::ssize(ids));
      for (int64_t begin = 0; begin < std::ssize(ids); begin += most) {
        const int64_t length = std::min(most, std::ssize(ids) - begin);
        const int32_t entry = LengthEntry(length, begin + length == std::ssize(ids));
        result->outputs[1].append(reinterpret_cast<const char*>(&entry), sizeof(entry));
      }
      result->counts["tokens"] += std::ssize(ids);
      return true;
    });
    return OkStatus();
  };
  return RunThrough(whole, {run}, folder, context,
                    [&] { return WriteIndex(prefix, JoinPath(folder, "lengths"), type); });
}

}  // namespace tessera::corpus
