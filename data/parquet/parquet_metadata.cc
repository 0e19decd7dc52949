// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/parquet_metadata.h"

#include <array>
#include <limits>

#include "data/parquet/thrift_reader.h"

namespace tessera::data {
namespace {

// A number that is an int in the format; others become -1, which no field allows.
int Small(ThriftReader& in) {
  const int64_t value = in.Int();
  return value < 0 || value > std::numeric_limits<int32_t>::max() ? -1 : static_cast<int>(value);
}

void ReadUnit(ThriftReader& in, LogicalType* type) {
  in.Struct([&](int id) {
    type->unit = id;
    in.Skip();
  });
}

void ReadLogicalMembers(ThriftReader& in, LogicalType* type) {
  in.Struct([&](int id) {
    switch (type->kind) {
      case LogicalKind::kDecimal:
        if (id == 1) return type->scale = Small(in), void();
        if (id == 2) return type->precision = Small(in), void();
        break;
      case LogicalKind::kTime:
      case LogicalKind::kTimestamp:
        if (id == 1) return type->utc = in.Bool(), void();
        if (id == 2) return ReadUnit(in, type);
        break;
      case LogicalKind::kInteger:
        if (id == 1) return type->bit_width = Small(in), void();
        if (id == 2) return type->is_signed = in.Bool(), void();
        break;
      default:
        break;
    }
    in.Skip();
  });
}

void ReadSchemaElement(ThriftReader& in, SchemaElement* element) {
  in.Struct([&](int id) {
    switch (id) {
      case 1:
        element->type = static_cast<PhysicalType>(Small(in));
        return;
      case 2:
        element->type_length = Small(in);
        return;
      case 3:
        element->repetition = static_cast<Repetition>(Small(in));
        return;
      case 4:
        element->name = in.Binary();
        return;
      case 5:
        element->num_children = Small(in);
        return;
      case 6:
        element->converted = static_cast<ConvertedType>(Small(in));
        return;
      case 7:
        element->scale = Small(in);
        return;
      case 8:
        element->precision = Small(in);
        return;
      case 10:
        in.Struct([&](int kind) {
          element->logical.kind = static_cast<LogicalKind>(kind);
          ReadLogicalMembers(in, &element->logical);
        });
        return;
      default:
        in.Skip();
    }
  });
}

void ReadColumnMetadata(ThriftReader& in, ColumnChunk* chunk) {
  chunk->has_metadata = true;
  in.Struct([&](int id) {
    switch (id) {
      case 1:
        chunk->type = Small(in);
        return;
      case 4:
        chunk->codec = Small(in);
        return;
      case 5:
        chunk->num_values = in.Int();
        return;
      case 6:
        chunk->uncompressed_size = in.Int();
        return;
      case 7:
        chunk->compressed_size = in.Int();
        return;
      case 9:
        chunk->data_page_offset = in.Int();
        return;
      case 11:
        chunk->dictionary_page_offset = in.Int();
        return;
      default:
        in.Skip();
    }
  });
}

void ReadColumnChunk(ThriftReader& in, ColumnChunk* chunk) {
  in.Struct([&](int id) {
    if (id == 1) return chunk->file_path = in.Binary(), void();
    if (id == 3) return ReadColumnMetadata(in, chunk);
    if (id == 8 || id == 9) chunk->encrypted = true;
    in.Skip();
  });
}

void ReadRowGroup(ThriftReader& in, RowGroup* group) {
  in.Struct([&](int id) {
    if (id == 1) {
      return in.List([&] { ReadColumnChunk(in, &group->columns.emplace_back()); });
    }
    if (id == 3) return group->num_rows = in.Int(), void();
    in.Skip();
  });
}

void ReadKeyValue(ThriftReader& in, std::map<std::string, std::string>* pairs) {
  std::string key;
  std::string value;
  in.Struct([&](int id) {
    if (id == 1) return key = in.Binary(), void();
    if (id == 2) return value = in.Binary(), void();
    in.Skip();
  });
  pairs->emplace(std::move(key), std::move(value));
}

void ReadDataPageHeader(ThriftReader& in, PageHeader* header) {
  in.Struct([&](int id) {
    if (id == 1) return header->num_values = Small(in), void();
    if (id == 2) return header->encoding = static_cast<Encoding>(Small(in)), void();
    if (id == 3) {
      return header->definition_level_encoding = static_cast<Encoding>(Small(in)), void();
    }
    if (id == 4) {
      return header->repetition_level_encoding = static_cast<Encoding>(Small(in)), void();
    }
    in.Skip();
  });
}

void ReadDictionaryPageHeader(ThriftReader& in, PageHeader* header) {
  in.Struct([&](int id) {
    if (id == 1) return header->num_values = Small(in), void();
    if (id == 2) return header->encoding = static_cast<Encoding>(Small(in)), void();
    in.Skip();
  });
}

void ReadDataPageHeaderV2(ThriftReader& in, PageHeader* header) {
  in.Struct([&](int id) {
    if (id == 1) return header->num_values = Small(in), void();
    if (id == 4) return header->encoding = static_cast<Encoding>(Small(in)), void();
    if (id == 5) return header->definition_levels_size = Small(in), void();
    if (id == 6) return header->repetition_levels_size = Small(in), void();
    if (id == 7) return header->is_compressed = in.Bool(), void();
    in.Skip();
  });
}

}  // namespace

StatusOr<FileMetadata> ParseFileMetadata(std::string_view bytes) {
  FileMetadata metadata;
  bool encrypted = false;
  ThriftReader in(bytes);
  in.Struct([&](int id) {
    if (id == 2) {
      return in.List([&] { ReadSchemaElement(in, &metadata.schema.emplace_back()); });
    }
    if (id == 4) {
      return in.List([&] { ReadRowGroup(in, &metadata.row_groups.emplace_back()); });
    }
    if (id == 5) return in.List([&] { ReadKeyValue(in, &metadata.key_values); });
    if (id == 8) encrypted = true;
    in.Skip();
  });
  if (!in.ok()) return DataLoss("the footer is damaged at its byte ", in.position());
  if (encrypted) return InvalidArgument("the file is encrypted, which is not supported");
  return metadata;
}

StatusOr<PageHeader> ParsePageHeader(std::string_view bytes, size_t* header_size) {
  PageHeader header;
  ThriftReader in(bytes);
  in.Struct([&](int id) {
    switch (id) {
      case 1:
        header.type = static_cast<PageType>(Small(in));
        return;
      case 2:
        header.uncompressed_size = Small(in);
        return;
      case 3:
        header.compressed_size = Small(in);
        return;
      case 4:
        header.crc = static_cast<uint32_t>(in.Int());
        return;
      case 5:
        return ReadDataPageHeader(in, &header);
      case 7:
        return ReadDictionaryPageHeader(in, &header);
      case 8:
        return ReadDataPageHeaderV2(in, &header);
      default:
        in.Skip();
    }
  });
  *header_size = in.position();
  if (!in.ok() || header.uncompressed_size < 0 || header.compressed_size < 0 ||
      header.num_values < 0 || header.definition_levels_size < 0 ||
      header.repetition_levels_size < 0) {
    return DataLoss("a page's header is damaged");
  }
  return header;
}

std::string CodecName(int codec) {
  constexpr std::array<const char*, 8> kNames = {"none",   "snappy", "gzip", "lzo",
                                                 "brotli", "lz4",    "zstd", "lz4_raw"};
  if (codec < 0 || codec >= std::ssize(kNames)) return Concat("codec ", codec);
  return kNames[static_cast<size_t>(codec)];
}

}  // namespace tessera::data
