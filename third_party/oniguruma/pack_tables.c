/* SPDX-License-Identifier: Apache-2.0 */
/* pack_tables properties|egcb|wb writes the bytes of a table of src/tables/ that unpack.h reads. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef unsigned int OnigCodePoint;

/* What src/unicode.c declares for them; the types of ranges are written by their names. */
struct PoolPropertyNameCtype {
  short int name;
  short int ctype;
};

typedef struct {
  OnigCodePoint start;
  OnigCodePoint end;
  const char* type;
} Range;
#define EGCB_RANGE_TYPE Range
#define WB_RANGE_TYPE Range

#define NAME(name) static const char name[] = #name;
NAME(EGCB_CR)
NAME(EGCB_LF) NAME(EGCB_Control) NAME(EGCB_Extend) NAME(EGCB_Prepend) NAME(EGCB_Regional_Indicator)
    NAME(EGCB_SpacingMark) NAME(EGCB_ZWJ) NAME(EGCB_L) NAME(EGCB_LV) NAME(EGCB_LVT) NAME(EGCB_T)
        NAME(EGCB_V) NAME(WB_ALetter) NAME(WB_CR) NAME(WB_Double_Quote) NAME(WB_Extend)
            NAME(WB_ExtendNumLet) NAME(WB_Format) NAME(WB_Hebrew_Letter) NAME(WB_Katakana)
                NAME(WB_LF) NAME(WB_MidLetter) NAME(WB_MidNum) NAME(WB_MidNumLet) NAME(WB_Newline)
                    NAME(WB_Numeric) NAME(WB_Regional_Indicator) NAME(WB_Single_Quote)
                        NAME(WB_WSegSpace) NAME(WB_ZWJ)
#include "src/tables/unicode_egcb_data.c"
#include "src/tables/unicode_property_data.c"
#include "src/tables/unicode_wb_data.c"

    /* Seven bits in a byte, the lowest first; 128 says that more follow. */
    static void WriteNumber(unsigned int number) {
  for (; number >= 128; number >>= 7) printf("%u,", (number & 127) | 128);
  printf("%u,", number);
}

/* A range as its distance from the end of the one before, and its length less one. */
static OnigCodePoint WriteRange(OnigCodePoint before, OnigCodePoint start, OnigCodePoint end) {
  WriteNumber(start - before);
  WriteNumber(end - start);
  return end;
}

static void WriteRanges(const char* name, const Range* ranges, int count) {
  printf("#define PACKED_%s_COUNT %d\nstatic const unsigned char packed_%s[] = {", name, count,
         name);
  OnigCodePoint end = 0;
  for (int i = 0; i < count; ++i) {
    end = WriteRange(end, ranges[i].start, ranges[i].end);
    printf("%s,\n", ranges[i].type);
  }
  printf("};\n");
}

static size_t SizeOf(const OnigCodePoint* ranges) { return 1 + 2 * (size_t)ranges[0]; }

/* The first property with the ranges of `index`. */
static int FirstAlike(int index) {
  const OnigCodePoint* const ranges = CodeRanges[index];
  int first = 0;
  while (CodeRanges[first][0] != ranges[0] ||
         memcmp(CodeRanges[first], ranges, SizeOf(ranges) * sizeof(*ranges)) != 0) {
    ++first;
  }
  return first;
}

/* Of every property its count of ranges and them; 0 and the first like it where there is one. */
static void WriteProperties(void) {
  size_t numbers = 0;
  printf("static const unsigned char packed_properties[] = {");
  for (int i = 0; i < CODE_RANGES_NUM; ++i) {
    const OnigCodePoint* const ranges = CodeRanges[i];
    const int first = FirstAlike(i);
    if (first < i) {
      WriteNumber(0);
      WriteNumber((unsigned int)first);
    } else {
      numbers += SizeOf(ranges);
      WriteNumber(ranges[0]);
      OnigCodePoint end = 0;
      for (OnigCodePoint r = 0; r < ranges[0]; ++r) {
        end = WriteRange(end, ranges[1 + 2 * r], ranges[2 + 2 * r]);
      }
    }
    printf("\n");
  }
  printf("};\n#define CODE_RANGES_NUM %d\n#define UNPACKED_NUMBERS %zu\n", CODE_RANGES_NUM,
         numbers);
  printf("#define PROPERTY_NAME_MAX_SIZE %d\n", PROPERTY_NAME_MAX_SIZE);
  printf("#define PROP_INDEX_EXTENDEDPICTOGRAPHIC %d\n", PROP_INDEX_EXTENDEDPICTOGRAPHIC);
}

/* The names of properties, a zero behind each; of each what it names. */
static void WriteNames(void) {
  const char* const begin = unicode_prop_name_pool;
  const char* const end = begin + sizeof(unicode_prop_name_pool_contents);
  printf("static const char property_names[] =\n");
  for (const char* name = begin; name < end; name += strlen(name) + 1) printf("\"%s\\0\"\n", name);
  printf(";\nstatic const struct PoolPropertyNameCtype named_properties[] = {\n");
  for (const char* name = begin; name < end; name += strlen(name) + 1) {
    printf("{%d, %d},\n", (int)(name - begin),
           unicode_lookup_property_name(name, strlen(name))->ctype);
  }
  printf("};\n");
}

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  if (strcmp(argv[1], "properties") == 0) {
    WriteProperties();
    WriteNames();
  } else if (strcmp(argv[1], "egcb") == 0) {
    WriteRanges("EGCB", EGCB_RANGES, EGCB_RANGE_NUM);
  } else if (strcmp(argv[1], "wb") == 0) {
    WriteRanges("WB", WB_RANGES, WB_RANGE_NUM);
  } else {
    return 1;
  }
  return 0;
}
