// SPDX-License-Identifier: Apache-2.0
// Writes the files that indexed_dataset.h describes.
//
//   TESSERA_ASSIGN_OR_RETURN(auto writer, IndexedDatasetWriter::Create("corpus", vocab_size));
//   TESSERA_RETURN_IF_ERROR(writer->AddSequence(ids));
//   writer->EndDocument();
//   TESSERA_RETURN_IF_ERROR(writer->Finish());
//
// Who writes PREFIX.bin by himself adds the index with WriteTokenIndex.
//
// Tokens stream to the disk; four bytes per sequence and eight per document stay in memory. The
// files get their names in Finish, when all has been written and synced; a writer that is destroyed
// before leaves nothing behind.
#ifndef TESSERA_DATA_DATASET_INDEXED_DATASET_WRITER_H_
#define TESSERA_DATA_DATASET_INDEXED_DATASET_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/dataset/indexed_dataset.h"

namespace tessera::data {

// Tokens are uint16 where vocab_size < 65500, else int32, as in Megatron.
TokenType TokenTypeFor(int64_t vocab_size);

// PREFIX.idx of sequences that lie in PREFIX.bin one behind the other. Document d has the sequences
// documents[d] to documents[d + 1]; the first entry is 0, the last the number of sequences.
Status WriteTokenIndex(AtomicFile* index, TokenType type, std::span<const int32_t> lengths,
                       std::span<const int64_t> documents);

class IndexedDatasetWriter {
 public:
  static StatusOr<std::unique_ptr<IndexedDatasetWriter>> Create(const std::string& prefix,
                                                                int64_t vocab_size);

  // InvalidArgument if an id is not in [0, vocab_size) or a sequence has 2^31 tokens or more.
  Status AddSequence(std::span<const int32_t> ids);
  // The sequences since the last call are one document.
  void EndDocument() { documents_.push_back(std::ssize(lengths_)); }

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return std::ssize(documents_) - 1; }

  // Ends an open document, then publishes both files, .idx last. Existing ones are replaced.
  Status Finish();

 private:
  IndexedDatasetWriter(std::string prefix, int64_t vocab_size)
      : prefix_(std::move(prefix)), vocab_size_(vocab_size) {}

  std::string prefix_;
  int64_t vocab_size_;
  TokenType type_ = TokenType::kInt32;
  std::optional<AtomicFile> tokens_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> documents_ = {0};
  int64_t num_tokens_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_INDEXED_DATASET_WRITER_H_
