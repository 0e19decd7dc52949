/* SPDX-License-Identifier: Apache-2.0 */
/* What src/unicode.c includes in place of src/tables/unicode_egcb_data.c. */
#include "packed_egcb.h"
#include "unpack.h"

static const int EGCB_RANGE_NUM = PACKED_EGCB_COUNT;
static EGCB_RANGE_TYPE unpacked_egcb[PACKED_EGCB_COUNT];

static void UnpackEGCB(void) {
  const unsigned char* packed = packed_EGCB;
  OnigCodePoint last = 0;
  for (int i = 0; i < EGCB_RANGE_NUM; ++i) {
    EGCB_RANGE_TYPE* const range = &unpacked_egcb[i];
    range->start = last += UnpackNumber(&packed);
    range->end = last += UnpackNumber(&packed);
    range->type = *packed++;
  }
}

static const EGCB_RANGE_TYPE* UnpackedEGCB(void) {
  static Unpacked unpacked = {PTHREAD_ONCE_INIT, 0};
  UnpackOnce(&unpacked, UnpackEGCB);
  return unpacked_egcb;
}
#define EGCB_RANGES (UnpackedEGCB())
