// SPDX-License-Identifier: Apache-2.0
// The type of a Parquet leaf: physical type and annotation (LogicalTypes.md of parquet-format), and
// its values in the form that a Column of that type has.
#ifndef TESSERA_DATA_PARQUET_PARQUET_LEAF_TYPE_H_
#define TESSERA_DATA_PARQUET_PARQUET_LEAF_TYPE_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/columns/column_type.h"
#include "data/parquet/parquet_metadata.h"

namespace tessera::data {

// Annotations that the format does not allow on their physical type are left out, as unknown ones
// are. INT96 is a timestamp in nanoseconds. Enumerations are strings, intervals and BSON bytes.
StatusOr<ColumnType> LeafType(const SchemaElement& element);

// Bytes of a value of a physical type of fixed width (truth values: 1); 0 of kByteArray.
int PhysicalWidth(PhysicalType physical, int type_length);

// Values of a physical type of fixed width as `type` has them: integers in their width, decimals
// little-endian, INT96 as nanoseconds. DataLoss for a time that no int64_t holds.
StatusOr<std::vector<std::byte>> ConvertValues(PhysicalType physical, int type_length,
                                               const ColumnType& type,
                                               std::vector<std::byte> values);
// Decimals that are byte arrays. DataLoss for one that is too long.
StatusOr<std::vector<std::byte>> DecimalsOf(const std::vector<std::string_view>& values,
                                            const ColumnType& type);

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_PARQUET_LEAF_TYPE_H_
