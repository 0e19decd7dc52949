// SPDX-License-Identifier: Apache-2.0
// Reads what train/report/event_file.h writes, for tests: checksums are compared, fields that a
// file of scalars does not have are failures.
//
//   for (const ScalarEvent& event : ReadEvents(ReadText(path))) event.scalars.at("train/loss");
#ifndef TESSERA_TRAIN_TESTING_EVENT_READER_H_
#define TESSERA_TRAIN_TESTING_EVENT_READER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"

namespace tessera::train {

struct ScalarEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  bool starts_session = false;
  std::map<std::string, float> scalars;
};

namespace event_reader_internal {

template <typename T>
T Take(std::string_view* bytes) {
  T value = {};
  if (bytes->size() < sizeof(T)) {
    ADD_FAILURE() << "the file ends within a record";
    *bytes = {};
    return value;
  }
  std::memcpy(&value, bytes->data(), sizeof(T));
  bytes->remove_prefix(sizeof(T));
  return value;
}

inline uint64_t TakeVarint(std::string_view* bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = Take<uint8_t>(bytes);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

inline std::string_view TakeBytes(std::string_view* bytes, uint64_t size) {
  EXPECT_LE(size, bytes->size()) << "the file ends within a record";
  const std::string_view taken = bytes->substr(0, size);
  bytes->remove_prefix(taken.size());
  return taken;
}

inline uint32_t Masked(std::string_view bytes) {
  const uint32_t crc = checksum_internal::Crc32cPortable(bytes.data(), bytes.size(), 0);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

inline void ReadValue(std::string_view bytes, std::map<std::string, float>* scalars) {
  std::string tag;
  float value = 0;
  while (!bytes.empty()) {
    const uint64_t key = TakeVarint(&bytes);
    if (key == (1 << 3 | 2)) {
      tag = TakeBytes(&bytes, TakeVarint(&bytes));
    } else if (key == (2 << 3 | 5)) {
      value = Take<float>(&bytes);
    } else {
      FAIL() << "a value has key " << key;
    }
  }
  EXPECT_TRUE(scalars->emplace(tag, value).second) << tag << " is there twice";
}

inline ScalarEvent ReadEvent(std::string_view bytes) {
  ScalarEvent event;
  while (!bytes.empty()) {
    const uint64_t key = TakeVarint(&bytes);
    if (key == (1 << 3 | 1)) {
      event.wall_time = Take<double>(&bytes);
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<int64_t>(TakeVarint(&bytes));
    } else if (key == (3 << 3 | 2)) {
      event.file_version = TakeBytes(&bytes, TakeVarint(&bytes));
    } else if (key == (7 << 3 | 2)) {
      event.starts_session = TakeBytes(&bytes, TakeVarint(&bytes)) == "\x08\x01";
    } else if (key == (5 << 3 | 2)) {
      std::string_view summary = TakeBytes(&bytes, TakeVarint(&bytes));
      while (!summary.empty()) {
        EXPECT_EQ(TakeVarint(&summary), 1u << 3 | 2u) << "a summary's values";
        ReadValue(TakeBytes(&summary, TakeVarint(&summary)), &event.scalars);
      }
    } else {
      ADD_FAILURE() << "an event has key " << key;
      return event;
    }
  }
  return event;
}

}  // namespace event_reader_internal

inline std::vector<ScalarEvent> ReadEvents(std::string_view file) {
  using namespace event_reader_internal;
  std::vector<ScalarEvent> events;
  while (!file.empty()) {
    const std::string_view length = file.substr(0, 8);
    const auto size = Take<uint64_t>(&file);
    EXPECT_EQ(Take<uint32_t>(&file), Masked(length));
    const std::string_view data = TakeBytes(&file, size);
    EXPECT_EQ(Take<uint32_t>(&file), Masked(data));
    events.push_back(ReadEvent(data));
  }
  return events;
}

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TESTING_EVENT_READER_H_
