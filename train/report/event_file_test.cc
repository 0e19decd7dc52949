// SPDX-License-Identifier: Apache-2.0
#include "train/report/event_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "train/testing/event_reader.h"

namespace tessera::train {
namespace {

using nlohmann::ordered_json;

template <size_t kSize>
std::string Bytes(const char (&text)[kSize]) {
  return std::string(text, kSize - 1);
}

// As TensorBoard 2.21's RecordWriter writes the same events.
TEST(EventFileTest, RecordsAreThoseOfTensorBoard) {
  EXPECT_EQ(event_file_internal::FirstRecords(1.5),
            Bytes("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22"
                  "\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
                  "brain.Event:2\x2a\x28\x64\x6c"
                  "\x0d\0\0\0\0\0\0\0\x3c\x37\xb8\x34"
                  "\x09\0\0\0\0\0\0\xf8\x3f\x3a\x02\x08\x01\xb7\x18\x82\x5c"));
  EXPECT_EQ(event_file_internal::RowRecord({{"step", 300}, {"loss", 2.25}, {"val_f1", 0.5}}, 1.5),
            Bytes("\x31\0\0\0\0\0\0\0\x9d\x83\x83\xe9"
                  "\x09\0\0\0\0\0\0\xf8\x3f\x10\xac\x02\x2a\x23"
                  "\x0a\x11\x0a\x0a"
                  "train/loss\x15\0\0\x10\x40"
                  "\x0a\x0e\x0a\x07"
                  "eval/f1\x15\0\0\0\x3f\xb4\x51\x70\x95"));
}

// CRC-32C of 32 zero bytes is 0x8A9136AA (RFC 3720, B.4).
TEST(EventFileTest, ChecksumsAreMasked) {
  const std::string record = event_file_internal::Record(std::string(32, '\0'));
  ASSERT_EQ(record.size(), 8 + 4 + 32 + 4u);
  uint32_t masked = 0;
  std::memcpy(&masked, record.data() + record.size() - 4, 4);
  const uint32_t rotated = masked - 0xa282ead8u;
  EXPECT_EQ(rotated >> 17 | rotated << 15, 0x8a9136aau);
}

TEST(EventFileTest, RowsAreEventsOfTheirNumbers) {
  const std::string folder = testing::TempDir() + "/event_file_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/tensorboard");
  for (const char* name : {"events.out.tfevents.1.host.1", "notes"}) {
    ASSERT_TRUE(WriteFileAtomically(folder + "/tensorboard/" + name, "earlier").ok());
  }
  auto file = EventFile::Open(folder);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  const double infinity = std::numeric_limits<double>::infinity();
  const ordered_json rows[] = {
      {{"step", 1}, {"loss", 0.1}, {"peak_bytes", int64_t{3} << 40}, {"name", "a"}},
      {{"step", 1}, {"val_loss", nullptr}, {"val_accuracy", infinity}},
      {{"loss", 3}},
      {{"step", int64_t{1} << 40}, {"loss", -2}}};
  for (const ordered_json& row : rows) ASSERT_TRUE((*file)->Append(row).ok());

  const auto names = *ListDirectory(folder + "/tensorboard");
  ASSERT_EQ(names.size(), 2u) << "the file before is gone, others stay";
  EXPECT_EQ(names[0].rfind("events.out.tfevents.1", 0), 0u) << names[0];
  const auto events = ReadEvents(*ReadFile(folder + "/tensorboard/" + names[0]));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(events[1].starts_session);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].scalars,
            (std::map<std::string, float>{{"train/loss", 0.1f}, {"train/peak_bytes", 0x3p40f}}));
  EXPECT_EQ(events[3].scalars.size(), 2u);
  EXPECT_TRUE(std::isnan(events[3].scalars.at("eval/loss")));
  EXPECT_TRUE(std::isnan(events[3].scalars.at("eval/accuracy")));
  EXPECT_EQ(events[4].step, int64_t{1} << 40);
  EXPECT_EQ(events[4].scalars.at("train/loss"), -2);
  EXPECT_GT(events[4].wall_time, 1.7e9);

  ASSERT_TRUE(EventFile::Remove(folder).ok());
  EXPECT_EQ(*ListDirectory(folder + "/tensorboard"), std::vector<std::string>{"notes"});
}

}  // namespace
}  // namespace tessera::train
