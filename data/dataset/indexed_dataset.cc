// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/indexed_dataset.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/error.h"

namespace tessera::data {
namespace {

// Of --dataset-impl lazy and cached.
constexpr std::string_view kOlderMagic = "TNTIDX";

std::string_view Bytes(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

template <typename T>
T Load(std::string_view bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void Widen(const char* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(value);
  }
}

void WidenTokens(TokenType type, const char* from, std::span<int64_t> out) {
  switch (type) {
    case TokenType::kUint8:
      return Widen<uint8_t>(from, out);
    case TokenType::kInt8:
      return Widen<int8_t>(from, out);
    case TokenType::kInt16:
      return Widen<int16_t>(from, out);
    case TokenType::kInt32:
      return Widen<int32_t>(from, out);
    case TokenType::kInt64:
      return Widen<int64_t>(from, out);
    case TokenType::kUint16:
      return Widen<uint16_t>(from, out);
    case TokenType::kUint32:
      return Widen<uint32_t>(from, out);
    case TokenType::kUint64:
      return Widen<uint64_t>(from, out);
  }
}

std::string WithoutExtension(const std::string& path) {
  if (path.ends_with(".bin") || path.ends_with(".idx")) return path.substr(0, path.size() - 4);
  return path;
}

}  // namespace

int64_t TokenBytes(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
    case TokenType::kUint32:
      return 4;
    case TokenType::kInt64:
    case TokenType::kUint64:
      return 8;
  }
  return 0;
}

std::optional<std::string> IndexedDatasetPrefix(const std::string& path) {
  const std::string prefix = WithoutExtension(path);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(prefix + ".bin", ignored)) return std::nullopt;
  if (!std::filesystem::is_regular_file(prefix + ".idx", ignored)) return std::nullopt;
  return prefix;
}

StatusOr<std::shared_ptr<const IndexedDataset>> IndexedDataset::Open(const std::string& prefix,
                                                                     const std::string& text) {
  std::shared_ptr<IndexedDataset> data(new IndexedDataset());
  data->prefix_ = WithoutExtension(prefix);
  data->text_ = text;
  TESSERA_ASSIGN_OR_RETURN(data->index_, MappedFile::Open(data->prefix_ + ".idx"));
  TESSERA_ASSIGN_OR_RETURN(data->tokens_, MappedFile::Open(data->prefix_ + ".bin"));
  TESSERA_RETURN_IF_ERROR(data->CheckHeader());
  TESSERA_RETURN_IF_ERROR(data->CheckSequences());
  TESSERA_RETURN_IF_ERROR(data->CheckDocuments());
  return std::shared_ptr<const IndexedDataset>(std::move(data));
}

Status IndexedDataset::CheckHeader() {
  const std::string path = prefix_ + ".idx";
  const std::string_view bytes = Bytes(index_);
  const auto size = static_cast<int64_t>(bytes.size());
  if (bytes.starts_with(kOlderMagic)) {
    return InvalidArgument(path,
                           ": an index of the older format (TNTIDX); preprocess_data.py "
                           "writes the one that is read with --dataset-impl mmap");
  }
  if (bytes.substr(0, kIndexMagic.size()) != kIndexMagic) {
    return InvalidArgument(path, ": not an indexed dataset (it does not begin with MMIDIDX)");
  }
  if (size < kIndexHeaderBytes) {
    return DataLoss(path, ": cut short at byte ", size, ", within the header");
  }
  const auto version = Load<uint64_t>(bytes, 9);
  if (version != 1) return InvalidArgument(path, ": version ", version, " at byte 9, not 1");
  type_ = static_cast<TokenType>(Load<uint8_t>(bytes, 17));
  token_bytes_ = TokenBytes(type_);
  if (token_bytes_ == 0) {
    return InvalidArgument(path, ": type code ", static_cast<int>(type_),
                           " at byte 17 is no integer type");
  }
  const auto sequences = Load<uint64_t>(bytes, 18);
  const auto documents = Load<uint64_t>(bytes, 26);  // one more than there are
  const auto room = static_cast<uint64_t>(size - kIndexHeaderBytes);
  if (sequences > room / 12 || documents > (room - sequences * 12) / 8) {
    return DataLoss(path, ": ", sequences, " sequences (byte 18) and ", documents,
                    " document borders (byte 26) need more than the file's ", size, " bytes");
  }
  // Multimodal files have a byte per sequence behind the documents, which is not used here.
  const uint64_t rest = room - sequences * 12 - documents * 8;
  if (rest != 0 && rest != sequences) {
    return InvalidArgument(path, ": ", rest, " bytes too many from byte ",
                           static_cast<uint64_t>(size) - rest);
  }
  num_sequences_ = static_cast<int64_t>(sequences);
  num_documents_ = static_cast<int64_t>(documents) - 1;
  return OkStatus();
}

Status IndexedDataset::CheckSequences() {
  const auto token_file_bytes = static_cast<int64_t>(Bytes(tokens_).size());
  bool in_order = true;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const int64_t length = Length(i);
    const int64_t pointer = Pointer(i);
    if (length < 0) {
      return InvalidArgument(prefix_, ".idx: sequence ", i, " has length ", length, " at byte ",
                             kIndexHeaderBytes + 4 * i);
    }
    if (pointer < 0 || pointer > token_file_bytes ||
        length > (token_file_bytes - pointer) / token_bytes_) {
      return DataLoss(prefix_, ".idx: sequence ", i, " (", length, " tokens at byte ", pointer,
                      ", says byte ", kIndexHeaderBytes + 4 * num_sequences_ + 8 * i,
                      ") lies outside ", prefix_, ".bin, which has ", token_file_bytes, " bytes");
    }
    in_order = in_order && pointer == num_tokens_ * token_bytes_;
    if (num_tokens_ > std::numeric_limits<int64_t>::max() - length) {
      return InvalidArgument(prefix_, ".idx: more than 2^63 tokens up to sequence ", i);
    }
    num_tokens_ += length;
  }
  if (in_order) return OkStatus();
  begins_.resize(static_cast<size_t>(num_sequences_));
  int64_t position = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    begins_[i] = position;
    position += Length(i);
  }
  return OkStatus();
}

Status IndexedDataset::CheckDocuments() {
  const int64_t base = kIndexHeaderBytes + 12 * num_sequences_;
  if (num_documents_ < 0) {
    return InvalidArgument(prefix_, ".idx: no document borders (count 0 at byte 26)");
  }
  int64_t previous = 0;
  for (int64_t d = 0; d <= num_documents_; ++d) {
    const int64_t first = FirstSequence(d);
    const bool good = d == 0 ? first == 0 : first >= previous && first <= num_sequences_;
    if (!good) {
      return InvalidArgument(prefix_, ".idx: document border ", d, " at byte ", base + 8 * d,
                             " is ", first, ", out of order or beyond ", num_sequences_,
                             " sequences");
    }
    previous = first;
  }
  if (previous != num_sequences_) {
    return InvalidArgument(prefix_, ".idx: the last document border at byte ",
                           base + 8 * num_documents_, " is ", previous, ", not ", num_sequences_,
                           ", the number of sequences");
  }
  return OkStatus();
}

int32_t IndexedDataset::Length(int64_t sequence) const {
  return Load<int32_t>(Bytes(index_), kIndexHeaderBytes + 4 * sequence);
}

int64_t IndexedDataset::Pointer(int64_t sequence) const {
  return Load<int64_t>(Bytes(index_), kIndexHeaderBytes + 4 * num_sequences_ + 8 * sequence);
}

int64_t IndexedDataset::FirstSequence(int64_t document) const {
  return Load<int64_t>(Bytes(index_), kIndexHeaderBytes + 12 * num_sequences_ + 8 * document);
}

int64_t IndexedDataset::SequenceBegin(int64_t sequence) const {
  if (sequence == num_sequences_) return num_tokens_;
  return begins_.empty() ? Pointer(sequence) / token_bytes_ : begins_[sequence];
}

int64_t IndexedDataset::SequenceAt(int64_t position) const {
  int64_t low = 0;  // SequenceBegin(low) <= position < SequenceBegin(high)
  int64_t high = num_sequences_;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (SequenceBegin(middle) <= position ? low : high) = middle;
  }
  return low;
}

int64_t IndexedDataset::document_begin(int64_t document) const {
  TESSERA_CHECK(document >= 0 && document <= num_documents_, "IndexedDataset::document_begin",
                "document ", document, " of ", num_documents_);
  return SequenceBegin(FirstSequence(document));
}

int64_t IndexedDataset::DocumentAt(int64_t position) const {
  TESSERA_CHECK(position >= 0 && position < num_tokens_, "IndexedDataset::DocumentAt", "position ",
                position, " of ", num_tokens_);
  int64_t low = 0;
  int64_t high = num_documents_;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (document_begin(middle) <= position ? low : high) = middle;
  }
  return low;
}

int64_t IndexedDataset::ByteOffset(int64_t position) const {
  if (begins_.empty()) return position * token_bytes_;
  const int64_t sequence = SequenceAt(position);
  return Pointer(sequence) + (position - SequenceBegin(sequence)) * token_bytes_;
}

void IndexedDataset::Read(int64_t position, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  TESSERA_CHECK(position >= 0 && count <= num_tokens_ && position <= num_tokens_ - count,
                "IndexedDataset::Read", count, " tokens at ", position, " of ", num_tokens_);
  const char* const base = Bytes(tokens_).data();
  if (begins_.empty()) {
    WidenTokens(type_, base + position * token_bytes_, out);
    return;
  }
  for (int64_t i = SequenceAt(position); !out.empty(); ++i) {
    const int64_t inside = position - SequenceBegin(i);
    const auto part = std::min<size_t>(out.size(), static_cast<size_t>(Length(i) - inside));
    WidenTokens(type_, base + Pointer(i) + inside * token_bytes_, out.first(part));
    position += static_cast<int64_t>(part);
    out = out.subspan(part);
  }
}

}  // namespace tessera::data
