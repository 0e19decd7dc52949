/* SPDX-License-Identifier: Apache-2.0 */
/* What src/unicode.c includes in place of src/tables/unicode_wb_data.c. */
#include "packed_wb.h"
#include "unpack.h"

static const int WB_RANGE_NUM = PACKED_WB_COUNT;
static WB_RANGE_TYPE unpacked_wb[PACKED_WB_COUNT];

static void UnpackWB(void) {
  const unsigned char* packed = packed_WB;
  OnigCodePoint last = 0;
  for (int i = 0; i < WB_RANGE_NUM; ++i) {
    WB_RANGE_TYPE* const range = &unpacked_wb[i];
    range->start = last += UnpackNumber(&packed);
    range->end = last += UnpackNumber(&packed);
    range->type = *packed++;
  }
}

static const WB_RANGE_TYPE* UnpackedWB(void) {
  static Unpacked unpacked = {PTHREAD_ONCE_INIT, 0};
  UnpackOnce(&unpacked, UnpackWB);
  return unpacked_wb;
}
#define WB_RANGES (UnpackedWB())
