// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/indexed_dataset_writer.h"

#include <cstring>
#include <limits>
#include <string_view>

namespace tessera::data {
namespace {

constexpr int64_t kUint16Vocabulary = 65500;

template <typename T>
void Append(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

}  // namespace

TokenType TokenTypeFor(int64_t vocab_size) {
  return vocab_size < kUint16Vocabulary ? TokenType::kUint16 : TokenType::kInt32;
}

StatusOr<std::unique_ptr<IndexedDatasetWriter>> IndexedDatasetWriter::Create(
    const std::string& prefix, int64_t vocab_size) {
  std::unique_ptr<IndexedDatasetWriter> writer(new IndexedDatasetWriter(prefix, vocab_size));
  writer->type_ = TokenTypeFor(vocab_size);
  TESSERA_ASSIGN_OR_RETURN(AtomicFile tokens, AtomicFile::Create(prefix + ".bin"));
  writer->tokens_.emplace(std::move(tokens));
  return writer;
}

Status IndexedDatasetWriter::AddSequence(std::span<const int32_t> ids) {
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return InvalidArgument(prefix_, ": a sequence of ", ids.size(), " tokens is too long");
  }
  std::string bytes;
  bytes.reserve(ids.size() * static_cast<size_t>(TokenBytes(type_)));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size_) {
      return InvalidArgument(prefix_, ": token id ", ids[i], " at position ",
                             num_tokens_ + static_cast<int64_t>(i), " is not in [0, ", vocab_size_,
                             ")");
    }
    if (type_ == TokenType::kUint16) {
      Append(static_cast<uint16_t>(ids[i]), &bytes);
    } else {
      Append(ids[i], &bytes);
    }
  }
  TESSERA_RETURN_IF_ERROR(tokens_->Append(bytes));
  lengths_.push_back(static_cast<int32_t>(ids.size()));
  num_tokens_ += std::ssize(ids);
  return OkStatus();
}

Status WriteTokenIndex(AtomicFile* index, TokenType type, std::span<const int32_t> lengths,
                       std::span<const int64_t> documents) {
  std::string header(kIndexMagic);
  Append(uint64_t{1}, &header);
  Append(static_cast<uint8_t>(type), &header);
  Append(static_cast<uint64_t>(lengths.size()), &header);
  Append(static_cast<uint64_t>(documents.size()), &header);
  TESSERA_RETURN_IF_ERROR(index->Append(header));
  const auto bytes_of = [](const auto& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(values[0]));
  };
  TESSERA_RETURN_IF_ERROR(index->Append(bytes_of(lengths)));
  int64_t pointer = 0;
  for (const int32_t length : lengths) {
    std::string bytes;
    Append(pointer, &bytes);
    TESSERA_RETURN_IF_ERROR(index->Append(bytes));
    pointer += length * TokenBytes(type);
  }
  return index->Append(bytes_of(documents));
}

Status IndexedDatasetWriter::Finish() {
  if (documents_.back() != std::ssize(lengths_)) EndDocument();
  TESSERA_ASSIGN_OR_RETURN(AtomicFile index, AtomicFile::Create(prefix_ + ".idx"));
  TESSERA_RETURN_IF_ERROR(WriteTokenIndex(&index, type_, lengths_, documents_));
  // An old index must never be seen beside new tokens.
  TESSERA_RETURN_IF_ERROR(RemoveAll(prefix_ + ".idx"));
  TESSERA_RETURN_IF_ERROR(tokens_->Commit());
  return index.Commit();
}

}  // namespace tessera::data
