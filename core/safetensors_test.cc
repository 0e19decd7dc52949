// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"

namespace tessera {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest()
      : path_(testing::TempDir() + "safetensors_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {}
  ~SafetensorsTest() override { std::filesystem::remove(path_); }

  void WriteBytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  std::string ReadBytes() const {
    std::ostringstream out;
    out << std::ifstream(path_, std::ios::binary).rdbuf();
    return out.str();
  }
  // The message of opening these bytes, without the path; "" when they are accepted.
  std::string Refusal(const std::string& bytes) const {
    WriteBytes(bytes);
    const Status status = SafetensorsFile::Open(path_).status();
    if (status.ok()) return "";
    const std::string message = Message(status);
    EXPECT_EQ(message.find(path_ + ": "), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message.substr(path_.size() + 2);
  }
  const std::string path_;
};

std::string WithLength(uint64_t length, const std::string& rest) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i));
  return bytes + rest;
}

// A file of this header and `data_bytes` bytes of data, all of them 1.
std::string File(const std::string& header, size_t data_bytes = 0) {
  return WithLength(header.size(), header + std::string(data_bytes, '\x01'));
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST_F(SafetensorsTest, ReadsAFileMadeByHand) {
  const float values[] = {1.0f, -2.5f};
  const int64_t id = 42;
  std::string data(reinterpret_cast<const char*>(values), 8);
  data.append(reinterpret_cast<const char*>(&id), 8);
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             Entry("ids", "I64", "[]", "[8,16]") + "," +
                             Entry("h.0.w", "F32", "[2,1]", "[0,8]") + "}   ";
  WriteBytes(WithLength(header.size(), header + data));
  const SafetensorsFile opened = SafetensorsFile::Open(path_).value();
  SafetensorsFile file = SafetensorsFile::Open(path_).value();
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.entries()[0].name, "h.0.w");
  EXPECT_EQ(file.entries()[1].dtype, "I64");
  EXPECT_EQ(file.metadata(), (SafetensorsFile::Metadata{{"format", "pt"}}));
  const SafetensorsFile moved = std::move(file);
  const TensorView w = moved.Get("h.0.w").value();
  EXPECT_EQ(w.dtype, DType::kFloat32);
  EXPECT_EQ(w.shape, (std::vector<int64_t>{2, 1}));
  ASSERT_EQ(w.nbytes, 8);
  EXPECT_EQ(std::memcmp(w.data, values, 8), 0);
  EXPECT_EQ(std::memcmp(moved.Get("ids").value().data, &id, 8), 0);
  EXPECT_EQ(moved.Find("x"), nullptr);
  EXPECT_EQ(Message(moved.Get("x").status()), path_ + ": no tensor 'x'");
}

TEST_F(SafetensorsTest, AcceptsTheFormatsCorners) {
  EXPECT_EQ(Refusal(File("{}")), "");
  EXPECT_EQ(Refusal(File("{}  \n")), "");
  EXPECT_EQ(Refusal(File("{\"__metadata__\":null}")), "");
  EXPECT_EQ(Refusal(File("{\"__metadata__\":{}}")), "");
  EXPECT_EQ(Refusal(File("{" + Entry("", "F32", "[1]", "[0,4]") + "}", 4)), "");
  EXPECT_EQ(Refusal(File("{" + Entry("a", "F32", "[0,9223372036854775807]", "[0,0]") + "," +
                             Entry("b", "F32", "[1]", "[0,4]") + "," +
                             Entry("c", "U8", "[3,0]", "[4,4]") + "}",
                         4)),
            "");
  EXPECT_EQ(Refusal(File("{" + Entry("a", "F4", "[2]", "[0,1]") + "}", 1)), "");
  EXPECT_EQ(Refusal(File("{" + Entry("\\u00e9\xc3\xa9", "U8", "[1]", "[0,1]") + "}", 1)), "");
}

TEST_F(SafetensorsTest, RefusesDamagedFiles) {
  EXPECT_EQ(Refusal(""), "0 bytes are too few for a safetensors file");
  EXPECT_EQ(Refusal("1234567"), "7 bytes are too few for a safetensors file");
  EXPECT_EQ(Refusal(WithLength(3, "{}")), "header of 3 bytes is longer than the file of 10");
  EXPECT_EQ(Refusal(WithLength(100000001, "{}")),
            "header of 100000001 bytes; the safetensors format allows 100000000");
  EXPECT_EQ(Refusal(WithLength(~uint64_t{0}, "{}")),
            "header of 18446744073709551615 bytes; the safetensors format allows 100000000");
  const std::string good = File("{" + Entry("a", "F32", "[2]", "[0,8]") + "}", 8);
  EXPECT_EQ(Refusal(good), "");
  EXPECT_EQ(Refusal(good + "x"), "the tensors take 8 bytes, but 9 follow the header");
  // Cut short anywhere, it is refused.
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(Refusal(good.substr(0, size)), "") << size << " bytes";
  }
}

TEST_F(SafetensorsTest, RefusesWrongHeaders) {
  const auto expect = [&](const std::string& header, const std::string& want, size_t data = 0) {
    EXPECT_EQ(Refusal(File(header, data)), want) << header;
  };
  const std::string no_brace = "not a safetensors file (the header does not start with '{')";
  expect("", no_brace);
  expect("[]", no_brace);
  expect(" {}", no_brace);
  expect("{", "the header is not valid JSON at byte 10");
  expect("{}x", "the header is not valid JSON at byte 11");
  expect(std::string("{}\0x", 4), "the header is not valid JSON at byte 11");
  expect("{\"a\":1}", "tensor 'a': unexpected a number");
  expect("{\"a\":null}", "tensor 'a': unexpected null");
  expect("{\"a\":\"b\"}", "tensor 'a': unexpected a string");
  expect("{\"a\":[]}", "tensor 'a': unexpected an array");
  expect("{\"a\":{}}", "tensor 'a': needs dtype, shape and data_offsets");
  expect("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",
         "tensor 'a': needs dtype, shape and data_offsets");
  expect("{\"a\":{\"dtype\":7}}", "tensor 'a': unexpected a number");
  expect("{\"a\":{\"dtype\":[]}}", "tensor 'a': unexpected an array");
  expect("{\"a\":{\"shape\":{}}}", "tensor 'a': unexpected an object");
  expect("{\"a\":{\"color\":1}}", "tensor 'a': unknown key 'color'");
  expect("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "tensor 'a': duplicate key 'dtype'");
  expect("{\"__metadata__\":{\"a\":1}}", "tensor '__metadata__': unexpected a number");
  expect("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}",
         "tensor '__metadata__': duplicate key in __metadata__");
  expect("{\"__metadata__\":{},\"__metadata__\":{}}", "tensor '__metadata__': duplicate entry");
  expect("{" + Entry("a", "F32", "[1]", "[0,4]") + "," + Entry("a", "F32", "[1]", "[4,8]") + "}",
         "tensor 'a': duplicate entry", 8);
  expect("{" + Entry("\xff\xfe", "F32", "[1]", "[0,4]") + "}",
         "the header is not valid JSON at byte 11", 4);
  expect("{" + Entry("a\\nb", "F77", "[1]", "[0,4]") + "}", "tensor 'a?b': unknown dtype 'F77'", 4);
}

TEST_F(SafetensorsTest, RefusesWrongNumbers) {
  const auto expect = [&](const std::string& shape, const std::string& offsets,
                          const std::string& want, size_t data = 8) {
    EXPECT_EQ(Refusal(File("{" + Entry("a", "F32", shape, offsets) + "}", data)),
              "tensor 'a': " + want);
  };
  expect("[-2]", "[0,8]", "negative number -2");
  expect("[2.0]", "[0,8]", "number 2.0 is not an integer that fits");
  expect("[1e2]", "[0,8]", "number 1e2 is not an integer that fits");
  expect("[9223372036854775808]", "[0,8]", "number 9223372036854775808 is too large");
  expect("[99999999999999999999999]", "[0,8]",
         "number 99999999999999999999999 is not an integer that fits");
  expect("[[2]]", "[0,8]", "unexpected an array");
  expect("[\"2\"]", "[0,8]", "unexpected a string");
  expect("[2]", "[0,8,8]", "data_offsets must be two numbers");
  expect("[2]", "[8]", "data_offsets must be two numbers");
  expect("[2]", "[8,0]", "data_offsets [8, 0] do not lie in the file's 8 bytes of data");
  expect("[3]", "[0,12]", "data_offsets [0, 12] do not lie in the file's 8 bytes of data");
  expect("[2]", "[-8,0]", "negative number -8");
  expect("[3]", "[0,8]", "dtype and shape take 12 bytes, data_offsets [0, 8] give 8");
  const std::string overflow = "the shape's number of bytes overflows or is no whole number";
  expect("[4611686018427387904,4]", "[0,8]", overflow);
  expect("[4611686018427387904]", "[0,8]", overflow);
  expect("[4294967296,4294967296]", "[0,0]", overflow, 0);
  EXPECT_EQ(Refusal(File("{" + Entry("a", "F4", "[3]", "[0,1]") + "}", 1)),
            "tensor 'a': " + overflow);
}

TEST_F(SafetensorsTest, RefusesHolesAndOverlaps) {
  const auto two = [](const std::string& a, const std::string& b, size_t data) {
    return File("{" + Entry("a", "U8", "[4]", a) + "," + Entry("b", "U8", "[4]", b) + "}", data);
  };
  EXPECT_EQ(Refusal(two("[0,4]", "[4,8]", 8)), "");
  EXPECT_EQ(Refusal(two("[4,8]", "[0,4]", 8)), "");
  EXPECT_EQ(Refusal(two("[0,4]", "[3,7]", 7)),
            "tensor 'b': its data starts at 3, inside the data before it, which ends at 4");
  EXPECT_EQ(Refusal(two("[0,4]", "[0,4]", 4)),
            "tensor 'b': its data starts at 0, inside the data before it, which ends at 4");
  EXPECT_EQ(Refusal(two("[0,4]", "[5,9]", 9)),
            "tensor 'b': its data starts at 5, leaving a hole after 4");
  EXPECT_EQ(Refusal(two("[1,5]", "[5,9]", 9)),
            "tensor 'a': its data starts at 1, leaving a hole after 0");
}

TEST_F(SafetensorsTest, DeepAndLongHeadersDoNoHarm) {
  std::string deep = "{\"a\":{\"shape\":";
  deep += std::string(2000000, '[');
  EXPECT_EQ(Refusal(File(deep)), "tensor 'a': unexpected an array");
  std::string objects;
  for (int i = 0; i < 200000; ++i) objects += "{\"a\":";
  EXPECT_EQ(Refusal(File(objects)), "tensor 'a': unknown key 'a'");
  const std::string message =
      Refusal(File("{\"" + std::string(1000000, 'n') + "\":{\"dtype\":1}}"));
  EXPECT_LT(message.size(), 400u);
}

TEST_F(SafetensorsTest, ListsButDoesNotReadOtherTypes) {
  WriteBytes(File("{" + Entry("a", "I16", "[2]", "[0,4]") + "," +
                      Entry("b", "F8_E4M3", "[4]", "[4,8]") + "," +
                      Entry("c", "U8", "[1]", "[8,9]") + "}",
                  9));
  const SafetensorsFile file = SafetensorsFile::Open(path_).value();
  EXPECT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(Message(file.Get("a").status()), path_ + ": tensor 'a': dtype I16 is not supported");
  EXPECT_EQ(Message(file.Get("b").status()),
            path_ + ": tensor 'b': dtype F8_E4M3 is not supported");
  EXPECT_TRUE(file.Get("c").ok());
}

TEST_F(SafetensorsTest, BooleansAreZeroOrOne) {
  const std::string header = "{" + Entry("m", "BOOL", "[3]", "[0,3]") + "}";
  WriteBytes(WithLength(header.size(), header + std::string("\x00\x01\x01", 3)));
  EXPECT_TRUE(SafetensorsFile::Open(path_).value().Get("m").ok());
  WriteBytes(WithLength(header.size(), header + std::string("\x00\x01\x02", 3)));
  EXPECT_EQ(Message(SafetensorsFile::Open(path_).value().Get("m").status()),
            path_ + ": tensor 'm': element 2 is 2, not a boolean");
}

TEST_F(SafetensorsTest, WritesTheFormatByteForByte) {
  const float w[] = {1.0f, 2.0f};
  SafetensorsWriter writer = SafetensorsWriter::Create(path_,
                                                       {{"w\"\n\xc3\xa9", DType::kFloat32, {1, 2}},
                                                        {"e", DType::kInt64, {0}},
                                                        {"s", DType::kBFloat16, {}}},
                                                       {{"format", "pt"}, {"a", "b\\"}})
                                 .value();
  ASSERT_TRUE(writer.Append(w, 3).ok());
  ASSERT_TRUE(writer.Append(reinterpret_cast<const char*>(w) + 3, 5).ok());
  EXPECT_EQ(Message(writer.Commit()), path_ + ": 2 bytes of tensors are missing");
  EXPECT_EQ(Message(writer.Append(w, 3)), path_ + ": 1 bytes more than the tensors' shapes say");
  ASSERT_TRUE(writer.Append("\x80\x3f", 2).ok());
  ASSERT_TRUE(writer.Commit().ok());
  std::string header =
      "{\"__metadata__\":{\"a\":\"b\\\\\",\"format\":\"pt\"},"
      "\"w\\\"\\u000a\xc3\xa9\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
      "\"e\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[8,8]},"
      "\"s\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[8,10]}}";
  while (header.size() % 8 != 0) header += ' ';
  const std::string want = WithLength(
      header.size(), header + std::string(reinterpret_cast<const char*>(w), 8) + "\x80\x3f");
  EXPECT_EQ(ReadBytes(), want);
  EXPECT_EQ(writer.crc32c(), Crc32c(want.data(), want.size()));
  EXPECT_EQ(SafetensorsFile::Open(path_).value().Find("w\"\n\xc3\xa9")->end, 8);
}

TEST_F(SafetensorsTest, EveryDTypeComesBack) {
  std::vector<std::byte> data(64, std::byte{1});
  std::vector<NamedTensorView> tensors;
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    tensors.push_back({std::string(DTypeName(dtype)),
                       {dtype, {2, 3}, data.data(), 6 * static_cast<int64_t>(DTypeSize(dtype))}});
  }
  ASSERT_TRUE(WriteSafetensors(path_, tensors).ok());
  const std::string once = ReadBytes();
  const SafetensorsFile file = SafetensorsFile::Open(path_).value();
  for (const NamedTensorView& want : tensors) {
    const TensorView got = file.Get(want.name).value();
    EXPECT_EQ(got.dtype, want.tensor.dtype);
    EXPECT_EQ(got.shape, want.tensor.shape);
    EXPECT_EQ(got.nbytes, want.tensor.nbytes);
    EXPECT_EQ(ParseSafetensorsDType(SafetensorsDTypeName(got.dtype)), got.dtype);
  }
  ASSERT_TRUE(WriteSafetensors(path_, tensors).ok());
  EXPECT_EQ(ReadBytes(), once);
}

TEST_F(SafetensorsTest, TheWriterRefusesWhatTheReaderWould) {
  const auto create = [&](const std::vector<SafetensorsEntry>& entries,
                          const SafetensorsFile::Metadata& metadata) {
    return Message(SafetensorsWriter::Create(path_, entries, metadata).status())
        .substr(path_.size());
  };
  EXPECT_EQ(create({{"a", DType::kBool, {}}, {"a", DType::kBool, {}}}, {}),
            ": tensor 'a': duplicate entry");
  EXPECT_EQ(create({{"__metadata__", DType::kBool, {}}}, {}),
            ": a tensor cannot be named __metadata__");
  EXPECT_EQ(create({{"a", DType::kBool, {-1}}}, {}), ": tensor 'a' has an impossible shape");
  EXPECT_NE(create({{"\xff", DType::kBool, {}}}, {}), "");
  EXPECT_NE(create({}, {{"k", "\xc3"}}), "");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace tessera
