// SPDX-License-Identifier: Apache-2.0
#include "base/text_builder.h"

#include <clocale>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "base/status.h"
#include "core/tensor.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

// What a stream makes of the same part.
template <typename T>
std::string Streamed(const T& part) {
  std::ostringstream out;
  out << part;
  return out.str();
}

TEST(TextBuilderTest, NumbersReadAsInStreams) {
  for (const double x :
       {0.0, -0.0, 1.0, 1.5, 0.1, 1e-7, 123456.0, 1234567.0, 1e20, -2.5e-300,
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(Concat(x), Streamed(x));
    EXPECT_EQ(Concat(static_cast<float>(x)), Streamed(static_cast<float>(x)));
  }
  for (const int64_t n : {int64_t{0}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(Concat(n), Streamed(n));
    EXPECT_EQ(Concat(static_cast<uint64_t>(n)), Streamed(static_cast<uint64_t>(n)));
    EXPECT_EQ(Concat(static_cast<int16_t>(n)), Streamed(static_cast<int16_t>(n)));
  }
  EXPECT_EQ(Concat(true, false, 'c', uint8_t{65}, static_cast<signed char>(66)), "10cAB");
  EXPECT_EQ(Concat("a", std::string("b"), std::string_view("c")), "abc");
}

TEST(TextBuilderTest, ReadsTheSameInEveryLocale) {
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C"}) {
    if (std::setlocale(LC_NUMERIC, name) == nullptr) continue;  // not on this machine
    EXPECT_EQ(Concat(1.25, " ", 1000000), "1.25 1000000") << name;
  }
  std::setlocale(LC_NUMERIC, "C");
}

// In messages and in streams, but for tensors, whose values streams show.
TEST(TextBuilderTest, TypesSayTheirTextOnce) {
  const Shape shape = {2, 3};
  const Tensor t = Zeros(shape, DType::kFloat32);
  EXPECT_EQ(Concat(shape, " ", DType::kInt64, " ", Device::Cpu(), " ", t, " ", Tensor()),
            "[2, 3] int64 cpu float32[2, 3] undefined");
  EXPECT_EQ(Streamed(shape), "[2, 3]");
  EXPECT_EQ(Streamed(NotFound("gone")), "gone");
  EXPECT_EQ(Streamed(t), ToString(t));
}

// Streams know more types; json converts to all others, and must not.
TEST(TextBuilderTest, WhatOnlyStreamsTakeReadsAsThere) {
  const nlohmann::json json = {{"a", 1.5}};
  const std::filesystem::path path = "/a b";
  EXPECT_EQ(Concat(json, path), Streamed(json) + Streamed(path));
}

}  // namespace
}  // namespace tessera
