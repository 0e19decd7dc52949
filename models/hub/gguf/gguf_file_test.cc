// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_file.h"

#include <cstring>
#include <limits>

#include "models/hub/gguf/gguf_test_models.h"

namespace tessera::models {
namespace {

template <typename T>
std::string Le(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
std::string Str(const std::string& text) { return Le(uint64_t{text.size()}) + text; }
std::string Info(const std::string& name, const std::vector<uint64_t>& ne, uint32_t type,
                 uint64_t offset) {
  std::string out = Str(name) + Le(static_cast<uint32_t>(ne.size()));
  for (const uint64_t size : ne) out += Le(size);
  return out + Le(type) + Le(offset);
}
std::string Head(uint64_t tensors, uint64_t values, uint32_t version = 3) {
  return "GGUF" + Le(version) + Le(tensors) + Le(values);
}
std::string Padded(std::string bytes, size_t data, size_t alignment = 32) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + data);
  return bytes;
}

TEST_F(GgufTest, WhatALittleFileHolds) {
  for (const uint32_t version : {2u, 3u}) {
    const std::string bytes =
        Padded(Head(2, 2, version) + Str("general.alignment") + Le(4u) + Le(64u) + Str("a.list") +
                   Le(9u) + Le(5u) + Le(uint64_t{2}) + Le(-1) + Le(7) + Info("x", {3, 2}, 0, 64) +
                   Info("q", {32}, 12 - 4, 0),
               64 + 24, 64);
    const GgufFile file = Opened(Write("x.gguf", bytes));
    std::vector<int32_t> list;
    ASSERT_TRUE(file.Read("a.list", &list).ok());
    EXPECT_EQ(list, (std::vector<int32_t>{-1, 7}));
    ASSERT_EQ(file.tensors().size(), 2u);
    const GgufTensor& x = **file.Get("x");
    EXPECT_EQ(x.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(x.nbytes, 24);
    EXPECT_EQ(x.begin % 64, 0);
    EXPECT_EQ(x.begin + 24, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ((*file.Get("q"))->type.name, "Q8_0");
    EXPECT_EQ((*file.Get("q"))->nbytes, 34);
  }
}

TEST_F(GgufTest, DamageIsNamed) {
  constexpr uint64_t kMany = uint64_t{1} << 62;
  const struct {
    std::string bytes;
    std::string message;
  } cases[] = {
      {"GGU", "does not begin with 'GGUF'"},
      {"GGUF\1", "the file is cut off"},
      {"GGUF" + std::string("\0\0\0\3", 4), "is big-endian, which is not supported"},
      {Head(0, 0, 1), "is GGUF version 1; 2 and 3 are supported"},
      {Head(0, 0, 4), "is GGUF version 4; 2 and 3 are supported"},
      {Head(kMany, 0), "tensors: 4611686018427387904 elements do not fit into the 8 bytes"},
      {Head(0, kMany), "metadata: 4611686018427387904 elements do not fit into the 0 bytes"},
      {Head(0, 1) + Le(kMany) + "abcdefgh", "metadata 0: the file is cut off"},
      {Head(0, 1) + Str("k") + Le(13u) + Le(0u), "key 'k': unknown type of value 13"},
      {Head(0, 1) + Str("k") + Le(7u) + "\2", "key 'k': a boolean is 2"},
      {Head(0, 1) + Str("k") + Le(8u) + Le(kMany), "key 'k': the file is cut off"},
      {Head(0, 1) + Str("k") + Le(9u) + Le(5u) + Le(kMany), "key 'k': 4611686018427387904 elem"},
      {Head(0, 1) + Str("k") + Le(9u) + Le(8u) + Le(kMany / 16), "key 'k': 288230376151711744"},
      {Head(0, 1) + Str("k") + Le(9u) + Le(9u), "key 'k': arrays of arrays are not supported"},
      {Head(0, 2) + Str("k") + Le(0u) + "\1" + Str("k") + Le(0u) + "\1", "key 'k': is there twice"},
      {Head(0, 1) + Str("a\nb") + Le(99u) + Le(0u), "key 'a?b': unknown type of value 99"},
      {Head(0, 1) + Str("general.alignment") + Le(4u) + Le(48u),
       "key 'general.alignment': is no power of two"},
      {Head(0, 1) + Str("general.alignment") + Le(4u) + Le(0u),
       "key 'general.alignment': is no power of two"},
      {Head(1, 0) + Info("x", {}, 0, 0) + Le(uint64_t{0}), "tensor 'x': has 0 dimensions"},
      {Head(1, 0) + Info("x", {1, 1, 1, 1, 1}, 0, 0), "tensor 'x': has 5 dimensions"},
      {Head(1, 0) + Info("x", {1}, 4, 0), "tensor 'x': unknown type 4"},
      {Head(1, 0) + Info("x", {uint64_t{1} << 63}, 0, 0), "tensor 'x': a dimension of 92233"},
      {Head(1, 0) + Info("x", {kMany, 4}, 0, 0), "tensor 'x': the shape overflows"},
      {Head(1, 0) + Info("x", {kMany, kMany, kMany}, 0, 0), "tensor 'x': the shape overflows"},
      {Head(1, 0) + Info("x", {33, 2}, 8, 0), "rows are no whole blocks of Q8_0"},
      {Head(1, 0) + Info("x", {1}, 0, uint64_t{1} << 63), "tensor 'x': an offset of 92233"},
      {Padded(Head(1, 0) + Info("x", {1}, 0, 4), 64), "offset 4 is no multiple of 32"},
      {Padded(Head(1, 0) + Info("x", {1}, 0, 64), 64), "4 bytes from 64 on do not lie in the"},
      {Padded(Head(1, 0) + Info("x", {20}, 0, 0), 64), "80 bytes from 0 on do not lie in the"},
      {Head(1, 0) + Info("x", {1}, 0, 0), "do not lie in the file's 0 bytes of data"},
      {Padded(Head(2, 0) + Info("x", {9}, 0, 0) + Info("y", {1}, 0, 32), 64),
       "tensors 'x' and 'y' overlap"},
      {Padded(Head(2, 0) + Info("x", {1}, 0, 0) + Info("x", {1}, 0, 32), 64),
       "tensor 'x': is there twice"},
      {Head(1, 0) + Info("a\tb", {1}, 0, 0), "tensor 'a?b': is no name"},
  };
  for (const auto& c : cases) {
    const std::string path = Write("x.gguf", c.bytes);
    const std::string message = Refusal(GgufFile::Open(path).status());
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message << "\nnot " << c.message;
  }
  // Nor does a file that is cut off anywhere read beyond its end.
  const std::string whole = Padded(
      Head(1, 1) + Str("k") + Le(9u) + Le(8u) + Le(uint64_t{1}) + Str("t") + Info("x", {2}, 0, 0),
      8);
  EXPECT_TRUE(GgufFile::Open(Write("x.gguf", whole)).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(GgufFile::Open(Write("x.gguf", whole.substr(0, size))).ok()) << size;
  }
}

TEST_F(GgufTest, WhatIsWrittenIsRead) {
  const GgufMetadata metadata = {
      {"u8", uint8_t{200}},
      {"i8", int8_t{-3}},
      {"u16", uint16_t{60000}},
      {"i16", int16_t{-300}},
      {"u32", uint32_t{4000000000}},
      {"i32", int32_t{-70000}},
      {"f32", 0.5f},
      {"yes", true},
      {"text", std::string("a\0b", 3)},
      {"u64", uint64_t{1} << 63},
      {"i64", std::numeric_limits<int64_t>::min()},
      {"f64", 0.1},
      {"texts", GgufArray(std::vector<std::string>{"", "two"})},
      {"flags", GgufArray(std::vector<bool>{true, false, true})},
      {"floats", GgufArray(std::vector<float>{1.5f})},
      {"none", GgufArray(std::vector<uint64_t>())},
  };
  auto writer = GgufWriter::Create(
      Path("x.gguf"), metadata,
      {{"a", kGgufF32, {3}}, {"nothing", kGgufF16, {0}}, {"b", kGgufF16, {2, 5}}});
  ASSERT_TRUE(writer.ok()) << Message(writer.status());
  std::string numbers;
  for (char i = 0; i < 32; ++i) numbers.push_back(i);
  for (size_t i = 0; i < 32; i += 8) ASSERT_TRUE(writer->Append(&numbers[i], 8).ok());
  EXPECT_FALSE(writer->Append("x", 1).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const GgufFile file = Opened(Path("x.gguf"));
  ASSERT_EQ(file.metadata().size(), metadata.size());
  const auto written = [](const GgufMetadata& m) {
    std::vector<GgufTensor> none;
    return FormatGgufHeader(m, &none);
  };
  EXPECT_EQ(written(file.metadata()), written(metadata));
  EXPECT_EQ(std::memcmp(file.BytesOf(**file.Get("a")), numbers.data(), 12), 0);
  EXPECT_EQ(std::memcmp(file.BytesOf(**file.Get("b")), &numbers[12], 20), 0);
  int64_t integer = 5;
  double real = 0;
  std::string text;
  bool flag = false;
  EXPECT_TRUE(file.Read("i8", &integer).ok());
  EXPECT_EQ(integer, -3);
  EXPECT_TRUE(file.Read("absent", &integer).ok());
  EXPECT_EQ(integer, -3);
  EXPECT_TRUE(file.Read("u8", &real).ok());
  EXPECT_EQ(real, 200);
  EXPECT_EQ(Refusal(file.Read("u64", &integer)), Path("x.gguf") + ": key 'u64' is not an integer");
  EXPECT_EQ(Refusal(file.Read("yes", &real)), Path("x.gguf") + ": key 'yes' is not a number");
  EXPECT_EQ(Refusal(file.Read("f32", &text)), Path("x.gguf") + ": key 'f32' is not a text");
  EXPECT_EQ(Refusal(file.Read("u8", &flag)), Path("x.gguf") + ": key 'u8' is not true or false");
  EXPECT_EQ(Refusal(file.Get("c").status()), Path("x.gguf") + ": no tensor 'c'");

  EXPECT_FALSE(GgufWriter::Create(Path("y"), {{"k", true}, {"k", true}}, {}).ok());
  EXPECT_FALSE(GgufWriter::Create(Path("y"), {}, {{"a", *FindGgufType(8), {2, 33}}}).ok());
  EXPECT_FALSE(
      GgufWriter::Create(Path("y"), {}, {{"a", kGgufF32, {2}}, {"a", kGgufF32, {2}}}).ok());
  auto unfinished = GgufWriter::Create(Path("y"), {}, {{"a", kGgufF32, {2}}});
  EXPECT_NE(Refusal(unfinished->Commit()).find("bytes of tensor 'a' are missing"),
            std::string::npos);
  EXPECT_FALSE(PathExists(Path("y")));
}

}  // namespace
}  // namespace tessera::models
