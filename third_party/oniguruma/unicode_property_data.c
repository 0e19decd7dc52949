/* SPDX-License-Identifier: Apache-2.0 */
/* What src/unicode.c includes in place of src/tables/unicode_property_data.c: the same properties and
 * names from a quarter of the bytes. */
#include "packed_properties.h"
#include "unpack.h"

static OnigCodePoint unpacked_numbers[UNPACKED_NUMBERS];
static const OnigCodePoint* unpacked_ranges[CODE_RANGES_NUM];

static void UnpackProperties(void) {
  const unsigned char* packed = packed_properties;
  OnigCodePoint* next = unpacked_numbers;
  for (int i = 0; i < CODE_RANGES_NUM; ++i) {
    const unsigned int count = UnpackNumber(&packed);
    if (count == 0) {
      unpacked_ranges[i] = unpacked_ranges[UnpackNumber(&packed)];
      continue;
    }
    unpacked_ranges[i] = next;
    *next++ = count;
    OnigCodePoint last = 0;
    for (unsigned int n = 0; n < 2 * count; ++n) *next++ = last += UnpackNumber(&packed);
  }
}

static const OnigCodePoint* const* UnpackedRanges(void) {
  static Unpacked unpacked = {PTHREAD_ONCE_INIT, 0};
  UnpackOnce(&unpacked, UnpackProperties);
  return unpacked_ranges;
}
#define CodeRanges (UnpackedRanges())

/* Case does not count. */
static const struct PoolPropertyNameCtype* unicode_lookup_property_name(const char* name,
                                                                        size_t length) {
  const size_t count = sizeof(named_properties) / sizeof(*named_properties);
  for (size_t i = 0; i < count; ++i) {
    const char* const known = property_names + named_properties[i].name;
    if (strncasecmp(known, name, length) == 0 && known[length] == 0) return &named_properties[i];
  }
  return 0;
}
