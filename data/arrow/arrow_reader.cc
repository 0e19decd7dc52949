// SPDX-License-Identifier: Apache-2.0
#include "data/arrow/arrow_reader.h"

#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/thread_pool.h"
#include "data/arrow/arrow_batch.h"
#include "data/arrow/arrow_schema.h"
#include "data/arrow/flatbuffer.h"

namespace tessera::data {
namespace {

constexpr std::string_view kFileMagic = "ARROW1";
constexpr uint32_t kContinuation = 0xFFFFFFFF;

// The union MessageHeader of Message.fbs.
enum class MessageKind { kNone = 0, kSchema = 1, kDictionary = 2, kBatch = 3 };

struct Message {
  MessageKind kind = MessageKind::kNone;
  std::string_view metadata;
  std::string_view body;
};

uint32_t NumberAt(std::string_view bytes, size_t at) {
  uint32_t number = 0;
  if (at <= bytes.size() && bytes.size() - at >= sizeof(number)) {
    std::memcpy(&number, bytes.data() + at, sizeof(number));
  }
  return number;
}

Status Damaged() { return DataLoss("the metadata of a message is damaged"); }

// The message at `*at`, which moves behind it; none at the end of a stream.
StatusOr<std::optional<Message>> NextMessage(std::string_view bytes, size_t* at) {
  if (*at >= bytes.size()) return std::optional<Message>();
  const Status cut = DataLoss("the file is cut off at its byte ", bytes.size());
  if (bytes.size() - *at < 4) return cut;
  // Older streams have the size alone.
  if (NumberAt(bytes, *at) == kContinuation) *at += 4;
  if (bytes.size() - *at < 4) return cut;
  const uint32_t size = NumberAt(bytes, *at);
  *at += 4;
  if (size == 0) return std::optional<Message>();
  if (size > bytes.size() - *at) return cut;
  Message message;
  message.metadata = bytes.substr(*at, size);
  *at += size;
  FlatBuffer buffer(message.metadata);
  const FlatTable table = buffer.Root();
  const auto version = table.Int<int16_t>(0, 0);
  message.kind = static_cast<MessageKind>(table.Int<uint8_t>(1, 0));
  const auto body_size = table.Int<int64_t>(3, 0);
  if (!buffer.ok()) return Damaged();
  if (version != 3 && version != 4) {
    return InvalidArgument("version ", version + 1,
                           " of Arrow's metadata is not supported (4 and 5 are)");
  }
  if (body_size < 0) return Damaged();
  if (body_size > static_cast<int64_t>(bytes.size() - *at)) return cut;
  message.body = bytes.substr(*at, static_cast<size_t>(body_size));
  *at += static_cast<size_t>(body_size);
  return std::optional(message);
}

struct ArrowContent {
  std::vector<ArrowField> fields;
  TableMetadata metadata;
  std::vector<Message> messages;  // dictionaries and batches, in the order they are to be read
};

Status TakeSchema(const FlatTable& schema, ArrowContent* content) {
  TESSERA_ASSIGN_OR_RETURN(content->fields, ParseArrowSchema(schema));
  const FlatVector pairs = schema.Vector(2, 4);
  // Many entries of a damaged file may lead to the same bytes.
  constexpr size_t kMostBytes = size_t{64} << 20;
  size_t bytes = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const FlatTable pair = pairs.Table(i);
    bytes += pair.String(0).size() + pair.String(1).size();
    if (bytes > kMostBytes) return DataLoss("the metadata takes more than ", kMostBytes, " bytes");
    content->metadata.emplace(pair.String(0), pair.String(1));
  }
  return OkStatus();
}

StatusOr<ArrowContent> ReadStream(std::string_view bytes) {
  ArrowContent content;
  size_t at = 0;
  bool has_schema = false;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const std::optional<Message> message, NextMessage(bytes, &at));
    if (!message) break;
    if (message->kind != MessageKind::kSchema) {
      content.messages.push_back(*message);
      continue;
    }
    if (std::exchange(has_schema, true)) return DataLoss("the stream has two schemas");
    FlatBuffer buffer(message->metadata);
    TESSERA_RETURN_IF_ERROR(TakeSchema(buffer.Root().Table(2), &content));
    if (!buffer.ok()) return Damaged();
  }
  if (!has_schema) return DataLoss("the stream has no schema");
  return content;
}

StatusOr<ArrowContent> ReadFooter(std::string_view bytes) {
  // "ARROW1", two zeros, the messages, the footer, its size, "ARROW1".
  if (bytes.size() < 8 + 4 + kFileMagic.size() || !bytes.ends_with(kFileMagic)) {
    return DataLoss("the Arrow file is cut off: it does not end with ARROW1");
  }
  const size_t end = bytes.size() - kFileMagic.size() - 4;
  const uint32_t size = NumberAt(bytes, end);
  if (size > end - 8) return DataLoss("a footer of ", size, " bytes in a file of ", bytes.size());
  FlatBuffer buffer(bytes.substr(end - size, size));
  const FlatTable footer = buffer.Root();
  ArrowContent content;
  TESSERA_RETURN_IF_ERROR(TakeSchema(footer.Table(1), &content));
  const std::string_view messages = bytes.substr(0, end - size);
  for (const int list : {2, 3}) {
    constexpr size_t kBlockSize = 24;
    const FlatVector blocks = footer.Vector(list, kBlockSize);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto offset = blocks.Int<int64_t>(i);
      if (offset < 0 || offset >= std::ssize(messages)) {
        return DataLoss("a batch lies outside the file");
      }
      auto at = static_cast<size_t>(offset);
      TESSERA_ASSIGN_OR_RETURN(const std::optional<Message> message, NextMessage(messages, &at));
      if (!message) return Damaged();
      content.messages.push_back(*message);
    }
  }
  if (!buffer.ok()) return DataLoss("the footer is damaged");
  return content;
}

// The dictionaries of a field and of all that is in it, also in dictionaries.
void CollectDictionaries(const ArrowField& field,
                         std::map<int64_t, const ArrowDictionary*>* dictionaries) {
  for (const ArrowField& child : field.children) CollectDictionaries(child, dictionaries);
  if (field.dictionary == nullptr) return;
  dictionaries->emplace(field.dictionary->id, field.dictionary.get());
  CollectDictionaries(*field.dictionary->values, dictionaries);
}

class ArrowReader final : public TableReader {
 public:
  ArrowReader(const MappedFile& file, const char* format, ArrowContent content,
              std::vector<TablePart> parts)
      : TableReader(file.path(), format), file_(file), content_(std::move(content)) {
    std::vector<Field> fields;
    for (const ArrowField& field : content_.fields) fields.push_back({field.name, field.type});
    for (size_t m = 0; m < content_.messages.size(); ++m) {
      if (content_.messages[m].kind == MessageKind::kBatch) batches_.push_back(m);
    }
    SetTable(std::move(fields), std::move(parts), std::move(content_.metadata));
  }

 protected:
  Status ReadRows(size_t part, int64_t begin, int64_t count, Column* rows) override {
    if (part_ != part || columns_ != selected()) {
      const Status loaded = LoadPart(part);
      if (!loaded.ok()) {
        part_.reset();
        return loaded;
      }
    }
    std::vector<Status> statuses(columns_.size());
    rows->children.resize(columns_.size());
    ParallelFor(std::ssize(columns_), 1, [&](int64_t first, int64_t) {
      const auto i = static_cast<size_t>(first);
      auto column = batch_.Rows(i, begin, count, dictionaries_);
      if (column.ok()) {
        rows->children[i] = *std::move(column);
      } else {
        statuses[i] = column.status();
      }
    });
    for (const Status& status : statuses) {
      if (!status.ok()) return AtPart(part, status);
    }
    return OkStatus();
  }

 private:
  Status AtPart(size_t part, const Status& status) const {
    return Failure(status.code(), path(), ": record batch ", part, ", ", status.message());
  }

  Status LoadPart(size_t part) {
    if (columns_ != selected() || batches_[part] < next_message_) {
      next_message_ = 0;
      dictionaries_.clear();
      columns_ = selected();
    }
    part_ = part;
    std::map<int64_t, const ArrowDictionary*> wanted;
    for (const size_t c : columns_) CollectDictionaries(content_.fields[c], &wanted);
    for (; next_message_ < batches_[part]; ++next_message_) {
      const Message& message = content_.messages[next_message_];
      if (message.kind != MessageKind::kDictionary || wanted.empty()) continue;
      const Status read = ReadDictionary(message, wanted);
      if (!read.ok()) {
        return Failure(read.code(), path(), ": dictionary before record batch ", part, ", ",
                       read.message());
      }
    }
    const Message& message = content_.messages[batches_[part]];
    FlatBuffer buffer(message.metadata);
    auto batch = ArrowBatch::Load(buffer.Root().Table(2), Body(message), content_.fields, columns_);
    if (!batch.ok()) return AtPart(part, batch.status());
    if (!buffer.ok()) return AtPart(part, Damaged());
    batch_ = *std::move(batch);
    return OkStatus();
  }

  Status ReadDictionary(const Message& message,
                        const std::map<int64_t, const ArrowDictionary*>& wanted) {
    FlatBuffer buffer(message.metadata);
    const FlatTable table = buffer.Root().Table(2);
    const auto id = table.Int<int64_t>(0, 0);
    const bool grows = table.Int<uint8_t>(2, 0) != 0;
    const auto dictionary = wanted.find(id);
    if (!buffer.ok()) return Damaged();
    if (dictionary == wanted.end()) return OkStatus();
    // The nodes of a loaded batch point to the fields.
    const std::vector<ArrowField> fields = {*dictionary->second->values};
    TESSERA_ASSIGN_OR_RETURN(const ArrowBatch batch,
                             ArrowBatch::Load(table.Table(1), Body(message), fields, {0}));
    TESSERA_ASSIGN_OR_RETURN(Column values, batch.Rows(0, 0, batch.num_rows(), dictionaries_));
    if (!buffer.ok()) return Damaged();
    const auto before = dictionaries_.find(id);
    if (grows && before != dictionaries_.end()) {
      TESSERA_ASSIGN_OR_RETURN(values, Concatenated(before->second, values));
    }
    dictionaries_[id] = std::move(values);
    return OkStatus();
  }

  ByteBuffer Body(const Message& message) const { return {message.body, file_.owner()}; }

  MappedFile file_;
  ArrowContent content_;
  std::vector<size_t> batches_;  // the messages that are record batches
  // What has been read: dictionaries of the messages before next_message_, and a batch.
  ArrowDictionaries dictionaries_;
  size_t next_message_ = 0;
  std::optional<size_t> part_;
  std::vector<size_t> columns_;
  ArrowBatch batch_;
};

StatusOr<std::vector<TablePart>> PartsOf(const ArrowContent& content) {
  std::vector<TablePart> parts;
  int64_t num_rows = 0;
  for (const Message& message : content.messages) {
    if (message.kind != MessageKind::kBatch) continue;
    FlatBuffer buffer(message.metadata);
    const FlatTable batch = buffer.Root().Table(2);
    TablePart part = {.num_rows = batch.Int<int64_t>(0, 0),
                      .bytes = std::ssize(message.body),
                      .compression = "none"};
    TESSERA_ASSIGN_OR_RETURN(const std::optional<Codec> codec, ArrowCodec(batch));
    if (codec) part.compression = *codec == Codec::kZstd ? "zstd" : "lz4";
    if (!codec) part.uncompressed_bytes = part.bytes;
    if (!buffer.ok() || part.num_rows < 0 ||
        __builtin_add_overflow(num_rows, part.num_rows, &num_rows)) {
      return DataLoss("record batch ", parts.size(), " is damaged");
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

bool IsArrow(std::string_view begin) {
  if (begin.starts_with(kFileMagic)) return true;
  if (begin.size() < 8) return false;
  if (NumberAt(begin, 0) == kContinuation) return true;
  // An older stream begins with its schema's size, and that with where its table is.
  const uint32_t size = NumberAt(begin, 0);
  return size % 8 == 4 && size < (1U << 24) && NumberAt(begin, 4) % 4 == 0 &&
         NumberAt(begin, 4) >= 4 && NumberAt(begin, 4) < size;
}

StatusOr<std::unique_ptr<TableReader>> OpenArrow(const MappedFile& file) {
  const auto at = [&](const Status& status) {
    return Failure(status.code(), file.path(), ": ", status.message());
  };
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()),
                               static_cast<size_t>(file.size()));
  const bool is_file = bytes.starts_with(kFileMagic);
  auto content = is_file ? ReadFooter(bytes) : ReadStream(bytes);
  if (!content.ok()) return at(content.status());
  auto parts = PartsOf(*content);
  if (!parts.ok()) return at(parts.status());
  return std::unique_ptr<TableReader>(std::make_unique<ArrowReader>(
      file, is_file ? "Arrow file" : "Arrow stream", *std::move(content), *std::move(parts)));
}

}  // namespace tessera::data
