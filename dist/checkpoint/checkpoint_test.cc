// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "core/safetensors.h"
#include "core/thread_communicator.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

namespace fs = std::filesystem;
using Ranks = std::shared_ptr<Communicator>;

// A fresh directory per test.
std::string FreshOut() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string("checkpoint_") + info->name();
  std::replace(name.begin(), name.end(), '/', '_');
  const std::string out = testing::TempDir() + "/" + name;
  fs::remove_all(out);
  fs::create_directories(out);
  return out;
}

// Values that tell where they are from.
Tensor Unsharded(const Shape& shape, DType dtype, int salt) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  // Small integers: exact in every dtype.
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7 + salt) % 251);
  return CastCopy(Tensor::FromVector<float>(values, shape), dtype);
}

struct Spec {
  std::string name;
  DType dtype;
  Shape shape;
};

const std::vector<Spec>& Specs() {
  static const auto* specs = new std::vector<Spec>{
      {"column", DType::kFloat32, {3, 7}},  {"fused", DType::kFloat32, {4, 15}},
      {"row", DType::kBFloat16, {7, 5}},    {"vocab", DType::kFloat32, {11, 3}},
      {"norm", DType::kFloat32, {5}},       {"step", DType::kInt64, {}},
      {"cube", DType::kFloat64, {3, 4, 5}}, {"flags", DType::kUInt8, {9}},
      {"nothing", DType::kFloat32, {0, 4}}, {"late", DType::kFloat32, {2, 2}},
  };
  return *specs;
}

Tensor Expected(size_t i) {
  return Unsharded(Specs()[i].shape, Specs()[i].dtype, static_cast<int>(i));
}

// How the ranks of one layout hold the specs: tp ranks vary fastest, the rest are dp replicas.
struct Layout {
  const char* name;
  int ranks;
  int tp;
  bool flat;  // "cube", "fused" and "row" as ranges of their boxes, shared out over dp
};

Placement SplitEvenly(const Shape& shape, int dim, int tp, int rank, int64_t padded = 0) {
  const Share share = EvenShare(shape[dim], tp, rank);
  return Placement::Split(shape, dim, {{shape[dim], share.begin, share.count}}, padded);
}

Placement PlacementOf(size_t i, int tp, int rank) {
  const Spec& spec = Specs()[i];
  if (spec.name == "column") return SplitEvenly(spec.shape, 1, tp, rank);
  if (spec.name == "row" || spec.name == "cube") return SplitEvenly(spec.shape, 0, tp, rank);
  if (spec.name == "vocab") {
    return SplitEvenly(spec.shape, 0, tp, rank, (spec.shape[0] + tp - 1) / tp);
  }
  if (spec.name == "fused") {
    // Blocks of 7, 4 and 4 columns, each cut over the ranks.
    std::vector<Placement::Piece> pieces;
    for (const int64_t block : {7, 4, 4}) {
      const Share share = EvenShare(block, tp, rank);
      pieces.push_back({block, share.begin, share.count});
    }
    return Placement::Split(spec.shape, 1, pieces);
  }
  return Placement::Whole(spec.shape);
}

int64_t BoxElements(const Placement& placement) {
  int64_t n = 0;
  for (const BoxMapping& m : placement.boxes()) n += m.global.size.numel();
  return n;
}

// The placement's boxes, flattened one after another.
Tensor Flattened(const Placement& placement, const Tensor& global) {
  std::vector<float> values;
  for (const BoxMapping& m : placement.boxes()) {
    for (const float v : BoxView(global, m.global).ToVector<float>()) values.push_back(v);
  }
  return CastCopy(Tensor::FromVector<float>(values, {std::ssize(values)}), global.dtype());
}

struct Held {
  size_t spec;
  CheckpointTensor t;
};

// Tensors of one rank, filled with the expected values or with a value that none of them has.
std::vector<Held> Hold(const Layout& layout, int rank, bool fill) {
  const int tp_rank = rank % layout.tp;
  const int dp = layout.ranks / layout.tp;
  const int dp_rank = rank / layout.tp;
  std::vector<Held> held;
  for (size_t i = 0; i < Specs().size(); ++i) {
    const Spec& spec = Specs()[i];
    // A stage's own: only the last rank has it.
    if (spec.name == "late" && rank != layout.ranks - 1) continue;
    const Placement placement = PlacementOf(i, layout.tp, tp_rank);
    const bool flat =
        layout.flat && (spec.name == "cube" || spec.name == "fused" || spec.name == "row");
    if (!flat) {
      const Tensor local = Full(placement.local_shape(), 255, spec.dtype);
      if (fill) CopyGlobalToLocal(placement, Expected(i), local);
      held.push_back({i, {spec.name, local, placement}});
      continue;
    }
    const Share share = EvenShare(BoxElements(placement), dp, dp_rank);
    // Two elements of padding, as where shards are made equally long.
    const Tensor local = Full({share.count + 2}, 255, spec.dtype);
    if (fill && share.count > 0) {
      const Tensor all = Flattened(placement, Expected(i));
      CopyInto(BoxView(local, {{0}, {share.count}}), BoxView(all, {{share.begin}, {share.count}}));
    }
    held.push_back(
        {i, {spec.name, local, placement, ElementRange{share.begin, share.begin + share.count}}});
  }
  return held;
}

std::vector<CheckpointTensor> TensorsOf(const std::vector<Held>& held) {
  std::vector<CheckpointTensor> tensors;
  for (const Held& one : held) tensors.push_back(one.t);
  return tensors;
}

void ExpectFilled(const Layout& layout, int rank, const std::vector<Held>& loaded) {
  const std::vector<Held> expected = Hold(layout, rank, /*fill=*/true);
  ASSERT_EQ(loaded.size(), expected.size());
  for (size_t i = 0; i < loaded.size(); ++i) {
    EXPECT_EQ(loaded[i].t.tensor.ToVector<double>(), expected[i].t.tensor.ToVector<double>())
        << loaded[i].t.name << " on rank " << rank << " of " << layout.name;
  }
}

Status SaveLayout(const Layout& layout, const std::string& path, int64_t step) {
  Status first;
  RunRanks(layout.ranks, [&](Ranks world) {
    const Status status = SaveCheckpoint(path, step, TensorsOf(Hold(layout, world->rank(), true)),
                                         {{"note", world->rank()}}, *world);
    if (world->rank() == 0) first = status;
  });
  return first;
}

constexpr Layout kLayouts[] = {
    {"one process", 1, 1, false}, {"tp 2", 2, 2, false},           {"tp 3", 3, 3, false},
    {"tp 4", 4, 4, false},        {"dp 2", 2, 1, false},           {"tp 2 dp 2", 4, 2, false},
    {"flat, dp 3", 3, 1, true},   {"flat, tp 2 dp 2", 4, 2, true}, {"tp 8", 8, 8, false},
};

TEST(CheckpointTest, EveryLayoutLoadsWhatEveryOtherSaved) {
  const std::string out = FreshOut();
  int64_t step = 0;
  for (const Layout& saved : kLayouts) {
    const std::string path = CheckpointPath(out, ++step);
    ASSERT_TRUE(SaveLayout(saved, path, step).ok()) << saved.name;
    for (const Layout& loaded : kLayouts) {
      SCOPED_TRACE(std::string(saved.name) + " into " + loaded.name);
      RunRanks(loaded.ranks, [&](Ranks world) {
        auto checkpoint = Checkpoint::Open(path, *world);
        ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
        EXPECT_EQ(checkpoint->step(), step);
        EXPECT_EQ(checkpoint->trainer()["note"], 0);
        const std::vector<Held> held = Hold(loaded, world->rank(), /*fill=*/false);
        const Status status = checkpoint->Load(TensorsOf(held), *world);
        ASSERT_TRUE(status.ok()) << status;
        ExpectFilled(loaded, world->rank(), held);
      });
    }
  }
}

std::map<std::string, int64_t> TensorBytes(const std::string& path) {
  std::map<std::string, int64_t> bytes;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = SafetensorsFile::Open(entry.path().string());
    EXPECT_TRUE(file.ok()) << file.status();
    int64_t sum = 0;
    for (const auto& e : file->entries()) sum += e.end - e.begin;
    bytes[entry.path().filename().string()] = sum;
  }
  return bytes;
}

TEST(CheckpointTest, ReplicasAreWrittenOnceAndSharedOut) {
  const std::string out = FreshOut();
  RunRanks(4, [&](Ranks world) {
    std::vector<CheckpointTensor> tensors;
    for (int i = 0; i < 40; ++i) {
      const Shape shape = {100 + i};
      tensors.push_back({"t" + std::to_string(i), Full(shape, i), Placement::Whole(shape)});
    }
    ASSERT_TRUE(SaveCheckpoint(out + "/c", 1, tensors, {}, *world).ok());
  });
  const auto bytes = TensorBytes(out + "/c");
  ASSERT_EQ(bytes.size(), 4u);
  int64_t total = 0;
  for (const auto& [file, size] : bytes) total += size;
  const int64_t elements = 40 * 100 + 39 * 40 / 2;
  EXPECT_EQ(total, elements * 4);
  for (const auto& [file, size] : bytes) {
    EXPECT_NEAR(static_cast<double>(size), static_cast<double>(elements), 600) << file;
  }
  EXPECT_EQ(bytes.count("tensors-00002-of-00004.safetensors"), 1u);
}

TEST(CheckpointTest, EveryLayoutWritesEachElementOnce) {
  const std::string out = FreshOut();
  int64_t expected = 0;
  for (const Spec& spec : Specs()) {
    expected += spec.shape.numel() * static_cast<int64_t>(DTypeSize(spec.dtype));
  }
  for (const Layout& layout : kLayouts) {
    ASSERT_TRUE(SaveLayout(layout, out + "/c", 1).ok());
    int64_t total = 0;
    for (const auto& [file, size] : TensorBytes(out + "/c")) total += size;
    EXPECT_EQ(total, expected) << layout.name;
  }
}

TEST(CheckpointTest, RanksThatHoldNothingTakePart) {
  const std::string out = FreshOut();
  RunRanks(3, [&](Ranks world) {
    const Tensor data = Unsharded({6}, DType::kFloat32, 1);
    std::vector<CheckpointTensor> tensors;
    if (world->rank() == 1) tensors.push_back({"w", data, Placement::Whole({6})});
    ASSERT_TRUE(SaveCheckpoint(out + "/c", 4, tensors, {}, *world).ok());
    auto checkpoint = Checkpoint::Open(out + "/c", *world);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    std::vector<CheckpointTensor> targets;
    const Tensor target = Zeros({6});
    if (world->rank() == 2) targets.push_back({"w", target, Placement::Whole({6})});
    ASSERT_TRUE(checkpoint->Load(targets, *world).ok());
    if (world->rank() != 2) return;
    EXPECT_EQ(target.ToVector<float>(), data.ToVector<float>());
  });
  EXPECT_EQ(TensorBytes(out + "/c").size(), 1u);
  // No tensors at all.
  ASSERT_TRUE(SaveCheckpoint(out + "/empty", 4, {}, {}).ok());
  const auto empty = Checkpoint::Open(out + "/empty");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->Load({}).ok());
}

// Uneven grouped heads: ranks hold overlapping boxes that are not the same.
TEST(CheckpointTest, OverlappingBoxesCountOnce) {
  const std::string out = FreshOut();
  const Tensor global = Unsharded({6, 2}, DType::kFloat32, 3);
  RunRanks(2, [&](Ranks world) {
    const int64_t first = world->rank() == 0 ? 0 : 2;
    const Placement placement = Placement::Split({6, 2}, 0, {{6, first, 4}});
    const Tensor local = Empty(placement.local_shape());
    CopyGlobalToLocal(placement, global, local);
    ASSERT_TRUE(SaveCheckpoint(out + "/c", 1, {{"kv", local, placement}}, {}, *world).ok());
  });
  const Tensor whole = Zeros({6, 2});
  auto checkpoint = Checkpoint::Open(out + "/c");
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_TRUE(checkpoint->Load({{"kv", whole, Placement::Whole({6, 2})}}).ok());
  EXPECT_EQ(whole.ToVector<float>(), global.ToVector<float>());
}

TEST(CheckpointTest, AnElementThatNobodyHoldsIsRefused) {
  const std::string out = FreshOut();
  RunRanks(2, [&](Ranks world) {
    const Placement placement = Placement::Split({6, 2}, 0, {{6, world->rank() * 3, 2}});
    const Status status =
        SaveCheckpoint(out + "/c", 1, {{"w", Zeros({2, 2}), placement}}, {}, *world);
    EXPECT_NE(Message(status).find("tensor 'w': no rank holds 4 of its 12 elements"),
              std::string::npos)
        << status;
  });
  EXPECT_TRUE(fs::is_empty(out));
}

TEST(CheckpointTest, RanksThatDisagreeAboutATensorAreRefused) {
  const std::string out = FreshOut();
  RunRanks(2, [&](Ranks world) {
    const Shape shape = {4 + world->rank()};
    const Status status =
        SaveCheckpoint(out + "/c", 1, {{"w", Zeros(shape), Placement::Whole(shape)}}, {}, *world);
    EXPECT_NE(Message(status).find("'w' is float32[4] on one rank and float32[5] on another"),
              std::string::npos)
        << status;
  });
  EXPECT_TRUE(fs::is_empty(out));
}

TEST(CheckpointTest, NamesShapesAndDTypesMustFit) {
  const std::string out = FreshOut();
  const Placement whole = Placement::Whole({4});
  ASSERT_TRUE(
      SaveCheckpoint(out + "/c", 1, {{"a", Zeros({4}), whole}, {"b", Zeros({4}), whole}}, {}).ok());
  const auto load = [&](const std::vector<CheckpointTensor>& tensors) {
    return Message(Checkpoint::Open(out + "/c")->Load(tensors));
  };
  EXPECT_EQ(load({{"a", Zeros({4}), whole}}), out + "/c: tensor 'b' is not part of this run");
  EXPECT_EQ(load({{"a", Zeros({4}), whole}, {"c", Zeros({4}), whole}}),
            out + "/c: tensor 'c' is missing");
  EXPECT_EQ(load({{"a", Zeros({4}, DType::kInt64), whole}}),
            out + "/c: tensor 'a' is float32[4], expected int64[4]");
  EXPECT_EQ(load({{"a", Zeros({5}), Placement::Whole({5})}}),
            out + "/c: tensor 'a' is float32[4], expected float32[5]");
  EXPECT_EQ(load({{"a", Zeros({4}), whole}, {"b", Zeros({4}), whole}}), "");
  EXPECT_THROW(load({{"a", Zeros({3}), whole, ElementRange{0, 4}}, {"b", Zeros({4}), whole}}),
               Error);
  EXPECT_THROW(load({{"a", Zeros({9}), whole, ElementRange{0, 5}}, {"b", Zeros({4}), whole}}),
               Error);
}

// --- Damage --------------------------------------------------------------------------------------

struct Damage {
  const char* name;
  std::function<void(const std::string& path)> apply;
  const char* message;
};

std::string RankFileOf(const std::string& path, int rank) {
  return path + "/tensors-0000" + std::to_string(rank) + "-of-00003.safetensors";
}

void FlipLastByte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char c = static_cast<char>(file.get() ^ 1);
  file.seekp(-1, std::ios::end);
  file.put(c);
}

TEST(CheckpointTest, DamageIsFoundByNameOnEveryRankAndPassedOver) {
  const Damage kDamages[] = {
      {"byte", [](const std::string& p) { FlipLastByte(RankFileOf(p, 1)); },
       "tensors-00001-of-00003.safetensors: tensor"},
      {"short", [](const std::string& p) { fs::resize_file(RankFileOf(p, 2), 200); },
       "tensors-00002-of-00003.safetensors"},
      {"gone", [](const std::string& p) { fs::remove(RankFileOf(p, 2)); },
       "tensors-00002-of-00003.safetensors: No such file"},
      {"other",
       [](const std::string& p) {
         fs::copy_file(RankFileOf(p, 0), RankFileOf(p, 1), fs::copy_options::overwrite_existing);
       },
       "tensors-00001-of-00003.safetensors"},
      {"index",
       [](const std::string& p) {
         auto text = *ReadFile(p + "/checkpoint.json");
         text.replace(text.find("[\n"), 1, "(");
         ASSERT_TRUE(WriteFileAtomically(p + "/checkpoint.json", text).ok());
       },
       "checkpoint.json: the index is damaged"},
      {"value",
       [](const std::string& p) {
         auto text = *ReadFile(p + "/checkpoint.json");
         const size_t at = text.find("\"step\": 2");
         ASSERT_NE(at, std::string::npos);
         text[at + 8] = '3';
         ASSERT_TRUE(WriteFileAtomically(p + "/checkpoint.json", text).ok());
       },
       "checkpoint.json: the checksum does not fit; the index is damaged"},
      {"deep",
       [](const std::string& p) {
         ASSERT_TRUE(WriteFileAtomically(p + "/checkpoint.json", std::string(1 << 20, '[')).ok());
       },
       "checkpoint.json: the index is damaged"},
      {"no index", [](const std::string& p) { fs::remove(p + "/checkpoint.json"); },
       "checkpoint.json: No such file"},
  };
  const Layout layout = {"tp 3", 3, 3, false};
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    const std::string out = FreshOut();
    ASSERT_TRUE(SaveLayout(layout, CheckpointPath(out, 1), 1).ok());
    ASSERT_TRUE(SaveLayout(layout, CheckpointPath(out, 2), 2).ok());
    damage.apply(CheckpointPath(out, 2));
    for (const int ranks : {1, 2, 3, 5}) {
      int warnings = 0;
      RunRanks(ranks, [&](Ranks world) {
        const auto opened = Checkpoint::Open(CheckpointPath(out, 2), *world);
        ASSERT_FALSE(opened.ok());
        EXPECT_NE(Message(opened.status()).find(damage.message), std::string::npos)
            << opened.status();
        const auto newest = *FindNewestCheckpoint(out, *world, [&](const std::string& warning) {
          ++warnings;
          EXPECT_NE(warning.find(damage.message), std::string::npos) << warning;
        });
        ASSERT_TRUE(newest.has_value());
        EXPECT_EQ(newest->step(), 1);
      });
      EXPECT_EQ(warnings, 1);
    }
  }
}

// An index whose checksum is right, written by someone who is not a friend.
TEST(CheckpointTest, AnIndexThatLiesIsRefused) {
  const std::string out = FreshOut();
  const auto open = [&](const nlohmann::json& piece, const nlohmann::json& shape = {4}) {
    const nlohmann::json body = {
        {"format", "tessera-checkpoint"},
        {"version", 2},
        {"step", 1},
        {"trainer", {}},
        {"tensors", {{"w", {{"dtype", "float32"}, {"shape", shape}, {"pieces", {piece}}}}}}};
    const std::string text = body.dump();
    const nlohmann::json whole = {{"body", body}, {"crc32c", Crc32c(text.data(), text.size())}};
    EXPECT_TRUE(WriteFileAtomically(out + "/c/checkpoint.json", whole.dump()).ok());
    return Message(Checkpoint::Open(out + "/c").status());
  };
  ASSERT_TRUE(SaveCheckpoint(out + "/c", 1, {{"w", Zeros({4}), Placement::Whole({4})}}, {}).ok());
  const float zeros[4] = {};
  const nlohmann::json good = {{"file", "tensors-00000-of-00001.safetensors"},
                               {"key", "w"},
                               {"begin", {0}},
                               {"size", {4}},
                               {"crc32c", Crc32c(zeros, sizeof(zeros))}};
  EXPECT_EQ(open(good), "");
  const std::string damaged = out + "/c/checkpoint.json: the entry of tensor 'w' is damaged";
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[key] = value;
    return bad;
  };
  EXPECT_EQ(open(with("file", "../c/tensors-00000-of-00001.safetensors")), damaged);
  EXPECT_EQ(open(with("file", "")), damaged);
  EXPECT_EQ(open(with("begin", {1})), damaged);
  EXPECT_EQ(open(with("begin", {-1})), damaged);
  EXPECT_EQ(open(with("size", {5})), damaged);
  EXPECT_EQ(open(with("size", {4, 1})), damaged);
  EXPECT_EQ(open(with("range", {0, 5})), damaged);
  EXPECT_EQ(open(with("range", {3, 2})), damaged);
  EXPECT_EQ(open(with("crc32c", -1)), damaged);
  EXPECT_EQ(open(with("crc32c", "x")), damaged);
  EXPECT_EQ(open(good, {int64_t{1} << 40, int64_t{1} << 40}), damaged);
  EXPECT_EQ(open(good, {"x"}), damaged);
  EXPECT_NE(open(with("key", "v")), "");
  EXPECT_NE(open(with("range", {0, 2})).find("dtype or shape are not those of the index"),
            std::string::npos);
  // A tensor that lacks elements opens, and does not load.
  EXPECT_EQ(open(good, {8}), "");
  EXPECT_EQ(Message(Checkpoint::Open(out + "/c")->Load({{"w", Zeros({8}), Placement::Whole({8})}})),
            out + "/c: tensor 'w' lacks 4 elements");
}

// What version 1 wrote: one file, whole boxes.
TEST(CheckpointTest, LoadsVersionOne) {
  const std::string out = FreshOut();
  const Tensor left = Unsharded({3, 2}, DType::kFloat32, 1);
  const Tensor right = Unsharded({3, 3}, DType::kFloat32, 2);
  const auto view = [](const Tensor& t) {
    return TensorView{t.dtype(),
                      {t.shape().begin(), t.shape().end()},
                      static_cast<const std::byte*>(t.raw_data()),
                      t.nbytes()};
  };
  const auto box = [](const char* key, std::vector<int64_t> begin, const Tensor& t) {
    return nlohmann::json{{"file", "tensors.safetensors"},
                          {"key", key},
                          {"begin", begin},
                          {"size", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
                          {"crc32c", Crc32c(t.raw_data(), static_cast<size_t>(t.nbytes()))}};
  };
  const std::string path = CheckpointPath(out, 7);
  fs::create_directories(path);
  ASSERT_TRUE(
      WriteSafetensors(path + "/tensors.safetensors", {{"w#0", view(left)}, {"w#1", view(right)}})
          .ok());
  const nlohmann::json body = {
      {"format", "tessera-checkpoint"},
      {"version", 1},
      {"step", 7},
      {"trainer", {{"loss_sum", 0.5}}},
      {"tensors",
       {{"w",
         {{"dtype", "float32"},
          {"shape", {3, 5}},
          {"boxes", {box("w#0", {0, 0}, left), box("w#1", {0, 2}, right)}}}}}}};
  const std::string text = body.dump();
  const nlohmann::json whole = {{"body", body}, {"crc32c", Crc32c(text.data(), text.size())}};
  ASSERT_TRUE(WriteFileAtomically(path + "/checkpoint.json", whole.dump(1)).ok());
  RunRanks(2, [&](Ranks world) {
    auto checkpoint =
        *FindNewestCheckpoint(out, *world, [](const std::string& w) { ADD_FAILURE() << w; });
    ASSERT_TRUE(checkpoint.has_value());
    EXPECT_EQ(checkpoint->step(), 7);
    EXPECT_EQ(checkpoint->trainer()["loss_sum"], 0.5);
    const Tensor target = Zeros({3, 5});
    ASSERT_TRUE(checkpoint->Load({{"w", target, Placement::Whole({3, 5})}}, *world).ok());
    EXPECT_EQ(BoxView(target, {{0, 0}, {3, 2}}).ToVector<float>(), left.ToVector<float>());
    EXPECT_EQ(BoxView(target, {{0, 2}, {3, 3}}).ToVector<float>(), right.ToVector<float>());
  });
}

// --- Failures while writing ----------------------------------------------------------------------

// While it lives, no file of this process grows beyond the limit; a write says so instead.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_;
  void (*handler_)(int);
};

// Only rank 1 has more to write than there is room for.
std::vector<CheckpointTensor> LargeOnRankOne(int rank) {
  const Shape shape = {rank == 1 ? 100000 : 10};
  return {{"w" + std::to_string(rank), Full(shape, 1), Placement::Whole(shape)}};
}

TEST(CheckpointTest, AFullDiskOnOneRankIsNamedOnAll) {
  const std::string out = FreshOut();
  {
    const FileSizeLimit limit(64 << 10);
    RunRanks(3, [&](Ranks world) {
      const Status status =
          SaveCheckpoint(CheckpointPath(out, 1), 1, LargeOnRankOne(world->rank()), {}, *world);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(Message(status).find("rank 1: "), 0u) << status;
      EXPECT_NE(Message(status).find("tensors-00001-of-00003.safetensors: File too large"),
                std::string::npos)
          << status;
      EXPECT_EQ(Message(status).find('\n'), std::string::npos);
      EXPECT_TRUE(fs::is_empty(out)) << "something is left when a rank returns";
    });
  }
  // With room, the same save succeeds.
  RunRanks(3, [&](Ranks world) {
    EXPECT_TRUE(
        SaveCheckpoint(CheckpointPath(out, 1), 1, LargeOnRankOne(world->rank()), {}, *world).ok());
  });
  EXPECT_EQ(ListCheckpoints(out), std::vector<int64_t>({1}));
}

TEST(CheckpointTest, ADirectoryThatCannotBeMadeIsNamedOnAll) {
  const std::string out = FreshOut();
  std::ofstream(out + "/file") << "in the way";
  RunRanks(2, [&](Ranks world) {
    const Status status =
        SaveCheckpoint(out + "/file/checkpoint-1", 1, LargeOnRankOne(0), {}, *world);
    EXPECT_EQ(Message(status).find("rank 0: " + out + "/file"), 0u) << status;
  });
}

TEST(CheckpointTest, ReplacesAndPrunes) {
  const std::string out = FreshOut();
  for (const int64_t step : {10, 9, 100, 9}) {
    ASSERT_TRUE(SaveCheckpoint(CheckpointPath(out, step), step,
                               {{"w", Full({2}, static_cast<double>(step)), Placement::Whole({2})}},
                               {})
                    .ok());
  }
  EXPECT_EQ(ListCheckpoints(out), std::vector<int64_t>({9, 10, 100}));
  const auto prune = [&](const KeepRules& rules) {
    RunRanks(2, [&](Ranks world) { ASSERT_TRUE(PruneCheckpoints(out, rules, *world).ok()); });
  };
  const KeepRules any = {.newest = 2, .is_sound = [](const nlohmann::json&) { return true; }};
  prune(any);
  EXPECT_EQ(ListCheckpoints(out), std::vector<int64_t>({10, 100}));
  EXPECT_EQ((*FindNewestCheckpoint(out, [](const std::string&) {}))->step(), 100);
  EXPECT_FALSE(FindNewestCheckpoint(out + "/nowhere", [](const std::string&) {})->has_value());
  // Those that are not sound push no sound one out.
  for (const int64_t step : {200, 201, 202}) {
    ASSERT_TRUE(SaveCheckpoint(CheckpointPath(out, step), step,
                               {{"w", Zeros({2}), Placement::Whole({2})}}, {{"bad", true}})
                    .ok());
  }
  prune({.newest = 2,
         .is_sound = [](const nlohmann::json& trainer) { return !trainer.contains("bad"); }});
  EXPECT_EQ(ListCheckpoints(out), std::vector<int64_t>({10, 100, 201, 202}));
  prune(any);
  EXPECT_EQ(ListCheckpoints(out), std::vector<int64_t>({201, 202}));
}

TEST(CheckpointTest, WhatAKeptOneNeedsIsKept) {
  const std::string out = FreshOut();
  const auto world = SingleProcessCommunicator();
  // Each needs the one two steps before it, but for the newest, which needs the first.
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) {
    ASSERT_TRUE(SaveCheckpoint(CheckpointPath(out, step), step,
                               {{"w", Zeros({2}), Placement::Whole({2})}},
                               {{"needs", step == 6 ? 1 : step - 2}})
                    .ok());
  }
  const KeepRules rules = {
      .newest = 2,
      .is_sound = [](const nlohmann::json&) { return true; },
      .needs = [](const nlohmann::json& trainer) { return trainer["needs"].get<int64_t>(); }};
  ASSERT_TRUE(PruneCheckpoints(out, rules, *world).ok());
  EXPECT_EQ(ListCheckpoints(out), std::vector<int64_t>({1, 3, 5, 6}));
}

// A directory is the step that its index says.
TEST(CheckpointTest, ACopyUnderAnotherNameIsNoCheckpoint) {
  const std::string out = FreshOut();
  for (const int64_t step : {1, 2, 3}) {
    ASSERT_TRUE(SaveCheckpoint(CheckpointPath(out, step), step,
                               {{"w", Zeros({2}), Placement::Whole({2})}}, {})
                    .ok());
  }
  fs::copy(CheckpointPath(out, 2), CheckpointPath(out, 10), fs::copy_options::recursive);
  std::string warning;
  const auto newest = *FindNewestCheckpoint(out, [&](const std::string& w) { warning = w; });
  EXPECT_EQ(newest->step(), 3);
  EXPECT_EQ(warning, "not used: " + CheckpointPath(out, 10) + ": its index is that of step 2");
  const auto world = SingleProcessCommunicator();
  const KeepRules rules = {.newest = 2, .is_sound = [](const nlohmann::json&) { return true; }};
  ASSERT_TRUE(PruneCheckpoints(out, rules, *world).ok());
  EXPECT_EQ(ListCheckpoints(out), std::vector<int64_t>({2, 3, 10}));
}

// Of what says it has nine dims, the file is refused and the one before taken.
TEST(CheckpointTest, AFileOfOtherShapesIsPassedOver) {
  const std::string out = FreshOut();
  for (const int64_t step : {1, 2}) {
    ASSERT_TRUE(SaveCheckpoint(CheckpointPath(out, step), step,
                               {{"w", Zeros({2}), Placement::Whole({2})}}, {})
                    .ok());
  }
  const std::string file = JoinPath(CheckpointPath(out, 2), "tensors-00000-of-00001.safetensors");
  std::string bytes = *ReadFile(file);
  const size_t at = bytes.find("\"shape\":[2]");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 11, "\"shape\":[1,1,1,1,1,1,1,1,2]");
  const uint64_t length = *reinterpret_cast<const uint64_t*>(bytes.data()) + 16;
  bytes.replace(0, 8, std::string(reinterpret_cast<const char*>(&length), 8));
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_EQ((*FindNewestCheckpoint(out, [](const std::string&) {}))->step(), 1);
}

// A run that passed it over would continue from an older one, and remove one that may be whole.
TEST(CheckpointTest, ACheckpointThatCannotBeReadNowIsAnError) {
  const std::string out = FreshOut();
  for (const int64_t step : {1, 2}) {
    ASSERT_TRUE(SaveCheckpoint(CheckpointPath(out, step), step,
                               {{"w", Zeros({2}), Placement::Whole({2})}}, {})
                    .ok());
  }
  rlimit old;
  getrlimit(RLIMIT_NOFILE, &old);
  // From each number of open files that is not enough to one that is.
  int failures = 0;
  for (rlim_t most = 0; most < 64; ++most) {
    const rlimit limit = {most, old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
    int warnings = 0;
    const auto newest = FindNewestCheckpoint(out, [&](const std::string&) { ++warnings; });
    setrlimit(RLIMIT_NOFILE, &old);
    EXPECT_EQ(warnings, 0);
    if (newest.ok()) {
      EXPECT_EQ((*newest)->step(), 2);
      break;
    }
    ++failures;
    EXPECT_EQ(newest.status().code(), StatusCode::kResourceExhausted) << newest.status();
  }
  EXPECT_GT(failures, 0);
}

}  // namespace
}  // namespace tessera::dist
