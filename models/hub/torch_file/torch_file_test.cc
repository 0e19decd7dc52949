// SPDX-License-Identifier: Apache-2.0
#include "models/hub/torch_file/torch_file.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "models/hub/torch_file/stored_zip.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

constexpr const char* kData = "models/hub/torch_file/testdata/";

template <typename T>
std::string Little(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

struct ZipFile {
  std::string name;
  std::string data;
  uint16_t method = 0;
  bool in64 = false;  // its numbers stand in the zip64 field
};

// An archive with the 64-bit end of the directory if any of its files needs one.
std::string Zip(const std::vector<ZipFile>& files) {
  std::string bytes;
  std::string directory;
  bool in64 = false;
  for (const ZipFile& file : files) {
    in64 = in64 || file.in64;
    const auto size = static_cast<uint32_t>(file.data.size());
    const auto name_bytes = static_cast<uint16_t>(file.name.size());
    const auto local = static_cast<uint32_t>(bytes.size());
    const std::string sizes = Little<uint32_t>(file.in64 ? 0xffffffff : size);
    std::string extra;
    if (file.in64) {
      extra = Little<uint16_t>(1) + Little<uint16_t>(24) + Little<uint64_t>(size) +
              Little<uint64_t>(size) + Little<uint64_t>(local);
    }
    const std::string common = Little<uint16_t>(0) + Little(file.method) + std::string(8, '\0') +
                               sizes + sizes + Little(name_bytes);
    bytes +=
        "PK\x03\x04" + Little<uint16_t>(0) + common + Little<uint16_t>(0) + file.name + file.data;
    directory += "PK\x01\x02" + Little<uint32_t>(0) + common +
                 Little(static_cast<uint16_t>(extra.size())) + std::string(10, '\0') +
                 Little<uint32_t>(file.in64 ? 0xffffffff : local) + file.name + extra;
  }
  const auto at = static_cast<uint64_t>(bytes.size());
  bytes += directory;
  const auto count = static_cast<uint16_t>(files.size());
  if (in64) {
    const auto end = static_cast<uint64_t>(bytes.size());
    bytes += "PK\x06\x06" + Little<uint64_t>(44) + std::string(12, '\0') + Little<uint64_t>(count) +
             Little<uint64_t>(count) + Little<uint64_t>(directory.size()) + Little(at);
    bytes += "PK\x06\x07" + Little<uint32_t>(0) + Little(end) + Little<uint32_t>(1);
  }
  return bytes + "PK\x05\x06" + Little<uint32_t>(0) + Little<uint16_t>(in64 ? 0xffff : count) +
         Little<uint16_t>(in64 ? 0xffff : count) +
         Little(static_cast<uint32_t>(in64 ? ~0u : directory.size())) +
         Little(static_cast<uint32_t>(in64 ? ~0u : at)) + Little<uint16_t>(0);
}

// Pieces of pickles, protocol 2.
std::string Int(int64_t v) { return "\x8a\x08" + Little(v); }
std::string Text(const std::string& s) { return "X" + Little(static_cast<uint32_t>(s.size())) + s; }
std::string Tuple(const std::vector<int64_t>& values) {
  std::string bytes = "(";
  for (const int64_t v : values) bytes += Int(v);
  return bytes + "t";
}
struct TensorSpec {
  std::string type = "FloatStorage";
  std::string key = "0";
  int64_t elements = 4;
  int64_t offset = 0;
  std::vector<int64_t> shape = {2, 2};
  std::vector<int64_t> strides = {2, 1};
};
std::string TensorProgram(const TensorSpec& t) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + Text("storage") + "ctorch\n" + t.type + "\n" +
         Text(t.key) + Text("cpu") + Int(t.elements) + "tQ" + Int(t.offset) + Tuple(t.shape) +
         Tuple(t.strides) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}
// {"w": tensor}
std::string Program(const std::string& tensor) { return "\x80\x02}(" + Text("w") + tensor + "u."; }

class TorchFileTest : public testing::Test {
 protected:
  TorchFileTest()
      : path_(testing::TempDir() + "/torch_file_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {}

  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  void WriteArchive(const std::string& program, const std::vector<ZipFile>& more = {}) const {
    std::vector<ZipFile> files = {{"archive/data.pkl", program}};
    files.insert(files.end(), more.begin(), more.end());
    Write(Zip(files));
  }
  static ZipFile Storage(int64_t floats) {
    std::string data;
    for (int64_t i = 0; i < floats; ++i) data += Little(static_cast<float>(i));
    return {"archive/data/0", data};
  }
  // The one line, without the path, with which the file is refused.
  std::string Refusal() const {
    const auto file = TorchFile::Open(path_);
    EXPECT_FALSE(file.ok());
    const std::string line = Message(file.status());
    EXPECT_EQ(line.rfind(path_ + ": ", 0), 0u) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    return line.size() > path_.size() + 2 ? line.substr(path_.size() + 2) : line;
  }
  std::string RefusalOf(const std::string& program) const {
    WriteArchive(program);
    return Refusal();
  }
  std::string TensorRefusal(const TensorSpec& tensor) const {
    WriteArchive(Program(TensorProgram(tensor)), {Storage(4)});
    return Refusal();
  }

  const std::string path_;
};

void ExpectHolds(const std::string& path) {
  const auto file = TorchFile::Open(path);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  const auto expected = SafetensorsFile::Open(Concat(kData, "expected.safetensors"));
  EXPECT_EQ(file->entries().size(), expected->entries().size());
  for (const SafetensorsFile::Entry& want : expected->entries()) {
    const TorchFile::Entry* entry = file->Find(want.name);
    ASSERT_NE(entry, nullptr) << want.name;
    EXPECT_EQ(entry->dtype, want.dtype) << want.name;
    EXPECT_EQ(entry->shape, want.shape) << want.name;
    EXPECT_EQ(entry->nbytes, want.end - want.begin) << want.name;
    std::vector<std::byte> made;
    const auto view = file->Get(want.name, &made);
    if (!ParseSafetensorsDType(want.dtype)) {
      EXPECT_EQ(Message(view.status()),
                path + ": tensor '" + want.name + "': dtype " + want.dtype + " is not supported");
      continue;
    }
    ASSERT_TRUE(view.ok()) << Message(view.status());
    const TensorView bytes = *expected->Get(want.name);
    ASSERT_EQ(view->nbytes, bytes.nbytes) << want.name;
    EXPECT_TRUE(bytes.nbytes == 0 || std::memcmp(view->data, bytes.data, bytes.nbytes) == 0)
        << path << " " << want.name;
  }
}

TEST_F(TorchFileTest, EveryFormatHoldsTheSame) {
  for (const char* name : {"archive.bin", "legacy.bin", "protocol4.bin"}) {
    ExpectHolds(Concat(kData, name));
  }
}

TEST_F(TorchFileTest, RowsAreWhereTheyLieAndSharedOnesAreOne) {
  const auto file = TorchFile::Open(Concat(kData, "archive.bin"));
  std::vector<std::byte> made;
  const std::byte* w = file->Get("w", &made)->data;
  EXPECT_EQ(file->Get("tied", &made)->data, w);
  EXPECT_EQ(file->Get("tail", &made)->data, w + 8 * sizeof(float));
  EXPECT_TRUE(made.empty());
  file->Get("transposed", &made).status().IgnoreError();
  EXPECT_EQ(made.size(), 12 * sizeof(float));
  EXPECT_EQ(Message(file->Get("absent", &made).status()),
            Concat(kData, "archive.bin: no tensor 'absent'"));
}

TEST_F(TorchFileTest, CheckpointsOfTrainings) {
  const auto file = TorchFile::Open(Concat(kData, "training.pt"));
  ASSERT_TRUE(file.ok()) << Message(file.status());
  ASSERT_EQ(file->entries().size(), 2u);
  EXPECT_EQ(file->entries()[0].name, "language_model.embedding.word.weight");
  EXPECT_EQ(file->entries()[1].name, "language_model.bias");
  const nlohmann::json scalars = file->Scalars();
  EXPECT_EQ(scalars["checkpoint_version"], 3.0);
  EXPECT_EQ(scalars["iteration"], 12);
  EXPECT_EQ(scalars["args"]["num_layers"], 2);
  EXPECT_EQ(scalars["args"]["eps"], 1e-5);
  EXPECT_EQ(scalars["args"]["name"], "small");
  EXPECT_EQ(scalars["args"]["fp16"], true);
  const auto wrapped = TorchFile::Open(Concat(kData, "wrapped.pt"));
  ASSERT_TRUE(wrapped.ok()) << Message(wrapped.status());
  EXPECT_EQ(wrapped->entries()[0].name, "a");
  EXPECT_EQ(wrapped->entries()[1].name, "b.c");
}

TEST_F(TorchFileTest, CheckpointsOfLightning) {
  const auto names = [&](const std::string& version, const std::string& name) {
    WriteArchive("\x80\x02}(" + version + Text("state_dict") + "}(" + Text("model.w") +
                     TensorProgram({}) + Text(name) + TensorProgram({}) + "u" +
                     Text("hyper_parameters") +
                     "clightning_fabric.utilities.data\nAttributeDict\n)\x81(" + Text("at") +
                     "cpathlib\nPosixPath\n(" + Text("x") + "tRuu.",
                 {Storage(4)});
    const auto file = TorchFile::Open(path_);
    EXPECT_TRUE(file.ok()) << Message(file.status());
    std::vector<std::string> found;
    if (!file.ok()) return found;
    for (const TorchFile::Entry& entry : file->entries()) found.push_back(entry.name);
    return found;
  };
  const std::string version = Text("pytorch-lightning_version") + Text("2.5.0");
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(version, "model.model.b"), (Names{"w", "model.b"}));
  EXPECT_EQ(names(version, "loss.b"), (Names{"model.w", "loss.b"}));
  EXPECT_EQ(names("", "model.model.b"), (Names{"model.w", "model.model.b"}));
}

// As PyTorch's tutorial saves a checkpoint of a training, with the last loss, a tensor.
TEST_F(TorchFileTest, TensorsBesideTheWeightsAreNoWeights) {
  const std::string weights = "}(" + Text("w") + TensorProgram({}) + "u";
  for (const char* key : {"model_state_dict", "state_dict", "model", "module"}) {
    WriteArchive("\x80\x02}(" + Text("loss") + TensorProgram({}) + Text(key) + weights +
                     Text("optimizer_state_dict") + "}(" + Text("state") + weights + "uu.",
                 {Storage(4)});
    const auto file = TorchFile::Open(path_);
    ASSERT_TRUE(file.ok()) << Message(file.status());
    ASSERT_EQ(file->entries().size(), 1u) << key;
    EXPECT_EQ(file->entries()[0].name, "w");
  }
  // A part of a model that has that name.
  WriteArchive("\x80\x02}(" + Text("w") + TensorProgram({}) + Text("model") + "}(" + Text("a") +
                   weights + "uu.",
               {Storage(4)});
  const auto file = TorchFile::Open(path_);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  EXPECT_NE(file->Find("w"), nullptr);
  EXPECT_NE(file->Find("model.a.w"), nullptr);
}

TEST_F(TorchFileTest, WhatIsMadeByHandIsRead) {
  WriteArchive(Program(TensorProgram({})), {Storage(4)});
  std::vector<std::byte> made;
  auto file = TorchFile::Open(path_);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  float last;
  std::memcpy(&last, file->Get("w", &made)->data + 12, 4);
  EXPECT_EQ(last, 3);
  // Numbers of any length, and what has no tensor.
  WriteArchive("\x80\x02}(" + Text("w") + TensorProgram({}) + Text("minus") + "\x8a\x01\xff" +
                   Text("long") + "\x8a\x02\xff" + std::string(1, '\0') + Text("none") + "N" +
                   Text("text") + Text("x") + "u.",
               {Storage(4)});
  EXPECT_EQ(TorchFile::Open(path_)->Scalars(),
            nlohmann::json({{"minus", -1}, {"long", 255}, {"text", "x"}}));
  // 64-bit numbers in the directory.
  ZipFile wide = Storage(4);
  wide.in64 = true;
  WriteArchive(Program(TensorProgram({})), {wide});
  file = TorchFile::Open(path_);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  std::memcpy(&last, file->Get("w", &made)->data + 12, 4);
  EXPECT_EQ(last, 3);
  // The other byte order.
  ZipFile big = Storage(4);
  for (size_t i = 0; i < big.data.size(); i += 4) {
    std::reverse(big.data.begin() + static_cast<std::ptrdiff_t>(i),
                 big.data.begin() + static_cast<std::ptrdiff_t>(i + 4));
  }
  WriteArchive(Program(TensorProgram({})), {big, {"archive/byteorder", "big"}});
  file = TorchFile::Open(path_);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  std::memcpy(&last, file->Get("w", &made)->data + 12, 4);
  EXPECT_EQ(last, 3);
  WriteArchive(Program(TensorProgram({})), {Storage(4), {"archive/byteorder", "middle"}});
  EXPECT_EQ(Refusal(), "byteorder 'middle' is not known");
}

TEST_F(TorchFileTest, NothingIsExecuted) {
  const std::string part = "' is no part of a checkpoint; nothing was executed; ";
  const std::string end = part + "torch.save(model.state_dict(), FILE) writes the weights alone";
  const std::string mark = testing::TempDir() + "/executed";
  std::filesystem::remove(mark);
  const std::string run = Text("touch " + mark) + "\x85R.";
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "cos\nsystem\n" +
                      run),
            "'os.system" + end);
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "cposix\nsystem\n" +
                      run),
            "'posix.system" + end);
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "cbuiltins\neval\n" +
                      run),
            "'builtins.eval" + end);
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "c__builtin__\ngetattr\n(ctorch\nload\ntR."),
            "'__builtin__.getattr" + end);
  EXPECT_EQ(RefusalOf("\x80\x04" + Text("os") + Text("system") + "\x93."), "'os.system" + end);
  EXPECT_EQ(RefusalOf("\x80\x04" + Text("collections") + Text("OrderedDict.__reduce__") + "\x93."),
            "'collections.OrderedDict.__reduce__" + end);
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "ctorch.storage\n_load_from_bytes\n."),
            "'torch.storage._load_from_bytes" + end);
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "ctorch.storage\nUntypedStorage\n."),
            "'torch.storage.UntypedStorage" + part +
                "it holds a tensor of a dtype (float8, uint16, ...) that is not read; save it as "
                "float32, bfloat16 or float16");
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "ctorch\nComplexFloatStorage\n."),
            "'torch.ComplexFloatStorage" + part + "weights are real numbers here");
  for (const auto& [module, name, advice] :
       {std::array{"torch._utils", "_rebuild_sparse_tensor", "save tensor.to_dense()"},
        std::array{"torch._utils", "_rebuild_qtensor", "save tensor.dequantize()"},
        std::array{"torch", "QInt8Storage", "save tensor.dequantize()"},
        std::array{"torch._utils", "_rebuild_wrapper_subclass", "save tensor.full_tensor()"},
        std::array{"torch.distributed.tensor", "DTensor", "gather the state_dict first"},
        std::array{"__torch__", "Net", "the file is a program of TorchScript"}}) {
    const std::string refusal = RefusalOf(Concat("\x80\x02", "c", module, "\n", name, "\n."));
    EXPECT_TRUE(refusal.starts_with(Concat("'", module, ".", name, part))) << refusal;
    EXPECT_NE(refusal.find(advice), std::string::npos) << refusal;
  }
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "c\x1b[2J\nx\n."),
            "'\\x1b[2J.x" + end);
  // Also without an archive around it, and where only a state names it.
  Write(
      "\x80\x02"
      "cos\nsystem\n" +
      run);
  EXPECT_EQ(Refusal(), "'os.system" + end);
  EXPECT_EQ(RefusalOf("\x80\x02"
                      "cargparse\nNamespace\n)\x81}" +
                      Text("f") + "cos\nsystem\nsb."),
            "'os.system" + end);
  // Operations that find their function in another way.
  for (const char* op : {"i", "o", "P", "\x82", "\x83", "\x84", "\x97", "\x98", "~"}) {
    EXPECT_NE(RefusalOf(std::string("\x80\x02(") + op).find("is no part of a checkpoint"),
              std::string::npos)
        << op;
  }
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_F(TorchFileTest, PersistentIdsNameStoragesAndNothingElse) {
  const std::string line = " names no storage of numbers";
  for (const std::string& id :
       {Text("x"), Tuple({1, 2, 3, 4, 5}), "(" + Text("module") + std::string("tu"),
        "(" + Text("storage") + "ctorch.device\n)RtQ"}) {
    EXPECT_NE(RefusalOf("\x80\x02" + id + "Q."), "") << id;
  }
  EXPECT_EQ(RefusalOf("\x80\x02" + Text("x") + "Q."), "a persistent id before byte 9" + line);
  EXPECT_NE(RefusalOf("\x80\x02(" + Text("module") + "ctorch\nFloatStorage\n" + Text("0") +
                      Text("cpu") + Int(4) + "tQ.")
                .find(line),
            std::string::npos);
  // One within another.
  const std::string inner =
      "(" + Text("storage") + "ctorch\nFloatStorage\n" + Text("0") + Text("cpu") + Int(4) + "tQ";
  EXPECT_NE(
      RefusalOf("\x80\x02(" + Text("storage") + inner + Text("0") + Text("cpu") + Int(4) + "tQ.")
          .find(line),
      std::string::npos);
  EXPECT_NE(RefusalOf("\x80\x02(" + Text("storage") + "ctorch\nFloatStorage\n" + inner +
                      Text("cpu") + Int(4) + "tQ.")
                .find(line),
            std::string::npos);
}

// As Megatron-LM marks its parameters.
TEST_F(TorchFileTest, TensorsMayHaveAttributes) {
  const std::string state = "}" + Text("shared") + "\x88s";
  std::string tensor = TensorProgram({});
  const size_t arguments = tensor.find("((");  // behind the function's name
  tensor.pop_back();                           // the call
  for (const std::string& program :
       {std::string("ctorch._utils\n_rebuild_parameter_with_state\n(") + TensorProgram({}) +
            "\x88}" + state + "tR",
        std::string("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n") +
            "ctorch\nTensor\n" + tensor.substr(arguments) + state + "tR"}) {
    WriteArchive(Program(program), {Storage(4)});
    const auto file = TorchFile::Open(path_);
    ASSERT_TRUE(file.ok()) << Message(file.status());
    EXPECT_EQ(file->Find("w")->shape, (std::vector<int64_t>{2, 2}));
  }
  // Any other function, itself among them.
  for (const char* function : {"ctorch._tensor\n_rebuild_from_type_v2\n", "ctorch\nSize\n", "N"}) {
    EXPECT_NE(RefusalOf(Concat("\x80\x02", "ctorch._tensor\n_rebuild_from_type_v2\n(", function,
                               "ctorch\nTensor\n)}tR."))
                  .find("is made of something else"),
              std::string::npos);
  }
}

TEST_F(TorchFileTest, ProgramsOfTorchScriptAreNamed) {
  Write(Zip({{"m/data.pkl", "\x80\x02N."}, {"m/code/__torch__/net.py", "x", /*method=*/8}}));
  EXPECT_EQ(Refusal(),
            "is a program of TorchScript; torch.save(model.state_dict(), FILE) writes its weights");
  Write("");
  EXPECT_EQ(Refusal(), "is empty");
}

// The imaginary part of a conjugated tensor is a view of numbers with the other sign.
TEST_F(TorchFileTest, NegatedViewsAreRefused) {
  std::string tensor = TensorProgram({});
  tensor.resize(tensor.size() - 2);
  WriteArchive(Program(tensor + "}tR"), {Storage(4)});
  EXPECT_TRUE(TorchFile::Open(path_).ok());
  WriteArchive(Program(tensor + "}" + Text("neg") + "\x88stR"), {Storage(4)});
  EXPECT_NE(Refusal().find(" is a negated view; save tensor.resolve_neg()"), std::string::npos);
}

TEST_F(TorchFileTest, TensorsStayWithinTheirStorages) {
  const std::string beyond = "tensor 'w' reaches beyond its storage";
  EXPECT_EQ(TensorRefusal({.offset = 1}), beyond);
  EXPECT_EQ(TensorRefusal({.strides = {3, 1}}), beyond);
  EXPECT_EQ(TensorRefusal({.offset = INT64_MAX}), beyond);
  EXPECT_EQ(TensorRefusal({.strides = {INT64_MAX, INT64_MAX}}), beyond);
  EXPECT_EQ(TensorRefusal({.strides = {-1, 1}}), beyond);
  EXPECT_EQ(TensorRefusal({.shape = {int64_t{1} << 40, 1}, .strides = {0, 1}}),
            "tensor 'w' repeats the elements of its storage");
  EXPECT_EQ(TensorRefusal({.offset = -1}), "tensor 'w' has an impossible shape");
  EXPECT_EQ(TensorRefusal({.shape = {-2, -2}}), "tensor 'w' has an impossible shape");
  EXPECT_EQ(TensorRefusal({.shape = {INT64_MAX, INT64_MAX}}), "tensor 'w' has an impossible shape");
  EXPECT_EQ(TensorRefusal({.shape = {4}}), "tensor 'w' has an impossible shape");
  EXPECT_EQ(TensorRefusal({.elements = int64_t{1} << 60}),
            "tensor 'w': its storage '0' is cut off");
  EXPECT_EQ(TensorRefusal({.type = "DoubleStorage"}), "tensor 'w': its storage '0' is cut off");
  EXPECT_EQ(TensorRefusal({.key = "../0"}), "tensor 'w': its storage '../0' is missing");
}

TEST_F(TorchFileTest, BombsAreSmallWhenTheyAreRefused) {
  // A list of ten of the list before, ten times over.
  std::string nested = "]q" + std::string(1, '\0');
  for (char i = 1; i < 100; ++i) {
    nested += "](";
    for (int j = 0; j < 10; ++j) nested += std::string("h") + static_cast<char>(i - 1);
    nested += std::string("eq") + i;
  }
  EXPECT_EQ(RefusalOf("\x80\x02" + nested + "."), "holds no dictionary of tensors");
  // The same of dictionaries, each with the one before under two keys.
  nested = "}q" + std::string(1, '\0');
  for (char i = 1; i < 100; ++i) {
    const std::string before = std::string("h") + static_cast<char>(i - 1);
    nested += "}(" + Text("a") + before + Text("b") + before + "uq" + i;
  }
  EXPECT_EQ(RefusalOf("\x80\x02" + nested + "."),
            "its dictionaries are too deep, or too many, for a checkpoint");
  // Not as deep, but wide.
  nested = "}q" + std::string(1, '\0');
  for (char i = 1; i < 14; ++i) {
    nested += "}(";
    for (char key = 'a'; key < 'k'; ++key) {
      nested += Text(std::string(1, key)) + "h" + static_cast<char>(i - 1);
    }
    nested += std::string("uq") + i;
  }
  EXPECT_EQ(RefusalOf("\x80\x02" + nested + "."),
            "its dictionaries are too deep, or too many, for a checkpoint");
  // A dictionary within itself.
  EXPECT_EQ(RefusalOf(std::string("\x80\x02}q\x00", 5) + Text("a") + std::string("h\0s.", 4)),
            "its dictionaries are too deep, or too many, for a checkpoint");
  // Deep nesting takes no stack.
  EXPECT_EQ(RefusalOf("\x80\x02" + std::string(1000000, '(') + std::string(1000000, 't') + "."),
            "holds no dictionary of tensors");
  EXPECT_EQ(RefusalOf("\x80\x02" + std::string(3000000, ']') + "."),
            "the pickle has more than 2097152 objects");
  // Arguments that are used again and again.
  std::string again =
      "\x80\x02"
      "ctorch\nSize\nq" +
      std::string(1, '\0') + "(" + std::string(500000, 'N') +
      "tq\x01"
      "0";
  for (int i = 0; i < 100000; ++i) again += std::string("h\0h\1R0", 6);
  EXPECT_EQ(RefusalOf(again + "N."), "the pickle has more than 16777216 items");
  EXPECT_EQ(RefusalOf("\x80\x02N" + std::string(3000000, '\x94') + "."),
            "the pickle remembers more than 2097152 objects");
  EXPECT_EQ(RefusalOf("\x80\x02N" + std::string(17000000, '2') + "."),
            "the pickle has more than 16777216 items");
  EXPECT_EQ(RefusalOf("\x80\x02" + std::string(17000000, '(') + "."),
            "the pickle has more than 16777216 items");
  // Lengths beyond the file's end.
  for (const std::string& op :
       {std::string("X\xff\xff\xff\x7f"), std::string("\x8b\xff\xff\xff\xff"),
        "\x8d" + Little(UINT64_MAX), "\x8e" + Little(UINT64_MAX - 3)}) {
    EXPECT_NE(RefusalOf("\x80\x02" + op + "abc").find("ends within an operation"),
              std::string::npos);
  }
}

TEST_F(TorchFileTest, BadOperationsAreRefused) {
  for (const char* program : {"",
                              ".",
                              "\x80\x09",
                              "t.",
                              "0.",
                              "R.",
                              "NNR.",
                              "u.",
                              "](NNu.",
                              "}(Nu.",
                              "Na.",
                              "h\x05.",
                              "g99999999999\n.",
                              "gx\n.",
                              "Ix\n.",
                              "Fx\n.",
                              "Sx\n.",
                              "S'\\x41'\n.",
                              "Nb.",
                              "2.",
                              "ctorch._utils\n_rebuild_tensor_v2\n(tR.",
                              "ctorch._utils\n_rebuild_parameter\n(NtR.",
                              "ccollections\nOrderedDict\n(](NeetR.",
                              "Q.",
                              "\x93.",
                              "\x81.",
                              "c\n",
                              "cos"}) {
    WriteArchive(program);
    EXPECT_NE(Refusal(), "") << program;
  }
}

TEST_F(TorchFileTest, ArchivesThatAreNoneOfTorchs) {
  Write(Zip({{"archive/other", "x"}}));
  EXPECT_EQ(Refusal(), "the zip archive has no data.pkl of torch's");
  Write(Zip({{"archive/data.pkl", "N.", 8}}));
  EXPECT_EQ(Refusal(),
            "'archive/data.pkl' of the zip archive is compressed, which torch does not do");
  std::string bytes = Zip({{"archive/data.pkl", "N."}});
  std::string broken = bytes;
  broken[bytes.find("PK\x01\x02") + 42] = 9;  // where the entry's own header is
  Write(broken);
  EXPECT_EQ(Refusal(), "'archive/data.pkl' of the zip archive is not where the directory says");
  broken = bytes;
  broken[bytes.find("PK\x01\x02") + 8] = 1;
  Write(broken);
  EXPECT_EQ(Refusal(), "'archive/data.pkl' of the zip archive is encrypted");
  broken = bytes;
  broken.replace(bytes.find("PK\x05\x06") + 10, 2, "\xff\xff");
  Write(broken);
  EXPECT_EQ(Refusal(), "the zip archive's directory lies beyond its end");
  Write("no pickle");
  EXPECT_NE(Refusal(), "");
  Write("");
  EXPECT_NE(Refusal(), "");
  Write("\x80\x02}.");
  EXPECT_EQ(Refusal(), "a pickle, but no checkpoint that torch.save wrote");
}

// Every prefix, and every byte changed: refused in one line, or read, never worse.
TEST_F(TorchFileTest, TruncatedAtEveryLengthAndDamagedInEveryByte) {
  for (const char* name : {"archive.bin", "legacy.bin", "wrapped.pt"}) {
    const std::string whole = *ReadFile(Concat(kData, name));
    for (size_t size = 0; size < whole.size(); ++size) {
      Write(whole.substr(0, size));
      EXPECT_NE(Refusal(), "") << name << " " << size;
    }
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 + at % 255));
      Write(damaged);
      const auto file = TorchFile::Open(path_);
      if (!file.ok()) continue;
      for (const TorchFile::Entry& entry : file->entries()) {
        std::vector<std::byte> made;
        file->Get(entry.name, &made).status().IgnoreError();
      }
    }
  }
}

}  // namespace
}  // namespace tessera::models
