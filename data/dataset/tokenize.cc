#include "data/dataset/tokenize.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/file.h"
#include "core/thread_pool.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/indexed_dataset_writer.h"
#include "data/tokenizer/char_tokenizer.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/utf8.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Small documents are collected up to this many bytes and encoded together; larger ones alone.
constexpr size_t kBatchBytes = 4 << 20;

// Holds <prefix>.lock from its making to its destruction.
class PrefixLock {
 public:
  static absl::StatusOr<std::unique_ptr<PrefixLock>> Take(const std::string& prefix) {
    const std::string path = prefix + ".lock";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return absl::ErrnoToStatus(errno, ToAbsl(Concat(path, ": cannot write")));
    while (flock(fd, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      close(fd);
      return absl::ErrnoToStatus(error, ToAbsl(Concat(path, ": cannot lock")));
    }
    return std::unique_ptr<PrefixLock>(new PrefixLock(fd));
  }
  ~PrefixLock() { close(fd_); }

 private:
  explicit PrefixLock(int fd) : fd_(fd) {}
  int fd_;
};

absl::StatusOr<json> DescribeInputs(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& files,
                                    const TokenizeOptions& options) {
  json inputs = json::array();
  for (const std::string& file : files) {
    std::error_code error;
    const uintmax_t size = fs::file_size(file, error);
    if (error) return NotFound(file, ": ", error.message());
    const fs::file_time_type time = fs::last_write_time(file, error);
    if (error) return NotFound(file, ": ", error.message());
    inputs.push_back({{"path", ReplaceInvalidUtf8(fs::absolute(file, error).string())},
                      {"size", size},
                      {"time", time.time_since_epoch().count()}});
  }
  return json{{"layout", 1},
              {"tokenizer", tokenizer.Fingerprint()},
              {"append_eos", options.append_eos},
              {"parse_special", options.parse_special},
              {"format", static_cast<int>(options.input.format)},
              {"json_key", ReplaceInvalidUtf8(options.input.json_key)},
              {"inputs", std::move(inputs)}};
}

// What is on the disk, if it was made from `description`.
std::optional<TokenizeResult> FindReusable(const std::string& prefix, const json& description) {
  const absl::StatusOr<json> made = ReadJsonFile(prefix + ".json");
  if (!made.ok() || !made->is_object() || made->value("made_from", json()) != description) {
    return std::nullopt;
  }
  const auto data = IndexedDataset::Open(prefix);
  if (!data.ok() || made->value("tokens", json()) != (*data)->num_tokens()) return std::nullopt;
  return TokenizeResult{(*data)->num_documents(), (*data)->num_tokens(), true};
}

// Encodes documents in the order in which they come.
class DocumentEncoder {
 public:
  DocumentEncoder(const Tokenizer& tokenizer, const TokenizeOptions& options,
                  IndexedDatasetWriter* writer)
      : tokenizer_(tokenizer), options_(options), writer_(writer) {}

  absl::Status Add(std::string_view text) {
    if (text.size() > kBatchBytes / 8) {
      TESSERA_RETURN_IF_ERROR(Flush());
      return Write(Encode(text));  // in parallel within the document
    }
    waiting_.emplace_back(text);
    waiting_bytes_ += text.size();
    return waiting_bytes_ < kBatchBytes ? absl::OkStatus() : Flush();
  }

  absl::Status Flush() {
    std::vector<std::vector<int32_t>> ids(waiting_.size());
    ParallelFor(std::ssize(waiting_), /*grain=*/1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ids[i] = Encode(waiting_[i]);
    });
    waiting_.clear();
    waiting_bytes_ = 0;
    for (const std::vector<int32_t>& document : ids) TESSERA_RETURN_IF_ERROR(Write(document));
    return absl::OkStatus();
  }

 private:
  std::vector<int32_t> Encode(std::string_view text) const {
    std::vector<int32_t> ids = tokenizer_.Encode(text, {.parse_special = options_.parse_special});
    if (options_.append_eos && tokenizer_.eos_id()) ids.push_back(*tokenizer_.eos_id());
    return ids;
  }

  absl::Status Write(const std::vector<int32_t>& ids) {
    TESSERA_RETURN_IF_ERROR(writer_->AddSequence(ids));
    writer_->EndDocument();
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  IndexedDatasetWriter* writer_;
  std::vector<std::string> waiting_;
  size_t waiting_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& spec,
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

absl::StatusOr<TokenizeResult> TokenizeToIndexedDataset(const Tokenizer& tokenizer,
                                                        const std::vector<std::string>& inputs,
                                                        const std::string& prefix,
                                                        const TokenizeOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListInputFiles(inputs));
  TESSERA_ASSIGN_OR_RETURN(const json description, DescribeInputs(tokenizer, files, options));
  const fs::path directory = fs::path(prefix).parent_path();
  if (!directory.empty()) TESSERA_RETURN_IF_ERROR(MakeDirectories(directory.string()));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<PrefixLock> lock, PrefixLock::Take(prefix));
  if (options.reuse) {
    if (auto found = FindReusable(prefix, description)) return *found;
  }

  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<IndexedDatasetWriter> writer,
                           IndexedDatasetWriter::Create(prefix, tokenizer.vocab_size()));
  DocumentEncoder encoder(tokenizer, options, writer.get());
  TESSERA_RETURN_IF_ERROR(ForEachDocument(
      files, options.input,
      [&](std::string_view text, const std::string&) { return encoder.Add(text); }));
  TESSERA_RETURN_IF_ERROR(encoder.Flush());
  if (writer->num_tokens() == 0) {
    return InvalidArgument(inputs[0], ": no text to tokenise");
  }
  // Until the new description is there, nothing on the disk claims to be up to date.
  TESSERA_RETURN_IF_ERROR(RemoveAll(prefix + ".json"));
  const TokenizeResult result{writer->num_documents(), writer->num_tokens(), false};
  TESSERA_RETURN_IF_ERROR(writer->Finish());
  const json made = {{"made_from", description},
                     {"documents", result.num_documents},
                     {"tokens", result.num_tokens}};
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(prefix + ".json", made.dump(2) + "\n"));
  return result;
}

}  // namespace tessera::data
