// SPDX-License-Identifier: Apache-2.0
// Token ids in two memory-mapped files, in Megatron's indexed layout.
//
//   TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<const IndexedDataset> data,
//                            IndexedDataset::Open("corpus"));   // corpus.bin, corpus.idx
//   std::vector<int64_t> ids(128);
//   data->Read(/*position=*/0, ids);
//
// <prefix>.bin holds the ids one after the other in one integer type. <prefix>.idx, little-endian,
// without padding:
//
//   byte 0   "MMIDIDX\0\0"            17  uint8 type code         34        int32 length[sequences]
//        9   uint64 version = 1       18  uint64 sequences        34 + 4 S  int64
//        pointer[sequences]
//                                     26  uint64 documents + 1    34 + 12 S int64 document[...]
//
// A pointer is the byte offset of a sequence in .bin; document d is the sequences
// document[d] ... document[d+1] - 1. Type codes: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64,
// 8 uint16 (6 and 7, floating point, are refused). NVIDIA/Megatron-LM,
// megatron/core/datasets/indexed_dataset.py. GPT-NeoX and Megatron-DeepSpeed also have 9 uint32 and
// 10 uint64.
//
// The dataset is seen as one stream: all sequences in order. Its pages are shared by all processes
// that map the files. Reading is const and safe from several threads.
#ifndef TESSERA_DATA_DATASET_INDEXED_DATASET_H_
#define TESSERA_DATA_DATASET_INDEXED_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tessera::data {

inline constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
inline constexpr int64_t kIndexHeaderBytes = 34;

// How wide a token is on the disk; the numbers are Megatron-LM's and Megatron-DeepSpeed's.
enum class TokenType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
  kUint32 = 9,
  kUint64 = 10,
};

// Bytes of one token; 0 for a code that is no integer type.
int64_t TokenBytes(TokenType type);

class IndexedDataset {
 public:
  // `prefix` with or without .bin or .idx. Everything in the index is checked here, so that reading
  // cannot fail: lengths, pointers inside .bin, documents in order. A status names the file and
  // offset. `text` is the file or folder that was tokenised into this dataset, if it is known.
  static StatusOr<std::shared_ptr<const IndexedDataset>> Open(const std::string& prefix,
                                                              const std::string& text = "");

  const std::string& prefix() const { return prefix_; }
  // For messages about the tokens: what the user named, the text or else <prefix>.bin.
  std::string name() const { return text_.empty() ? prefix_ + ".bin" : text_; }
  bool is_named_by_text() const { return !text_.empty(); }
  TokenType type() const { return type_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return num_tokens_; }

  // Fills `out` with the tokens from stream position `position` on. Throws Error unless
  // 0 <= position and position + out.size() <= num_tokens().
  void Read(int64_t position, std::span<int64_t> out) const;

  // Stream position at which document d begins; 0 <= d <= num_documents(), the last being the end.
  int64_t document_begin(int64_t document) const;

  // The document that holds stream position `position` of [0, num_tokens()).
  int64_t DocumentAt(int64_t position) const;

  // The byte in <prefix>.bin at which stream position `position` lies; for messages.
  int64_t ByteOffset(int64_t position) const;

 private:
  IndexedDataset() = default;
  Status CheckHeader();
  Status CheckSequences();
  Status CheckDocuments();

  int32_t Length(int64_t sequence) const;
  int64_t Pointer(int64_t sequence) const;
  int64_t FirstSequence(int64_t document) const;
  int64_t SequenceBegin(int64_t sequence) const;
  int64_t SequenceAt(int64_t position) const;

  std::string prefix_;
  std::string text_;
  MappedFile index_;
  MappedFile tokens_;
  TokenType type_ = TokenType::kInt32;
  int64_t token_bytes_ = 0;
  int64_t num_sequences_ = 0;
  int64_t num_documents_ = 0;
  int64_t num_tokens_ = 0;
  // Stream positions of the sequences; empty where the sequences lie in .bin without gaps and in
  // order, so that the pointers say the same.
  std::vector<int64_t> begins_;
};

// The prefix if `path` names an indexed dataset (with or without .bin or .idx, both files exist).
std::optional<std::string> IndexedDatasetPrefix(const std::string& path);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_INDEXED_DATASET_H_
