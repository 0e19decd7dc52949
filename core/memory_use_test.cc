// SPDX-License-Identifier: Apache-2.0
#include "core/memory_use.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "core/allocator.h"
#include "core/kernel_table.h"
#include "core/tensor.h"

namespace tessera {
namespace {

const Device kMeta = Device::Meta();

Tensor Bytes(int64_t bytes) { return Empty({bytes}, DType::kUInt8, kMeta); }

Tensor Bucket(int64_t bytes) {
  const MemoryUseScope use(MemoryUse::kBucket);
  return Bytes(bytes);
}

int64_t Current() { return Allocator::For(kMeta).stats().current_bytes; }

TEST(MemoryUseTest, AStorageKeepsTheUseItWasMadeFor) {
  const int64_t before = Current();
  Tensor bucket = Bucket(640);
  const Tensor other = Bytes(128);
  EXPECT_EQ(MetaBytesOf(kMeta).current, (UseBytes{.buckets = 640, .workspaces = 0}));
  EXPECT_EQ(Current() - before, 640 + 128);
  // Given back and obtained again outside of the scope.
  bucket.storage()->ReleaseBytes();
  EXPECT_EQ(MetaBytesOf(kMeta).current.buckets, 0);
  bucket.storage()->ObtainBytes();
  EXPECT_EQ(MetaBytesOf(kMeta).current.buckets, 640);
  {
    const MemoryUseScope use(MemoryUse::kWorkspace);
    bucket = Tensor();  // within another scope
  }
  EXPECT_EQ(MetaBytesOf(kMeta).current, UseBytes{});
  EXPECT_EQ(Current() - before, 128);
}

TEST(MemoryUseTest, ThePeakRemembersWhatWasThere) {
  Allocator& allocator = Allocator::For(kMeta);
  allocator.ResetPeak();
  {
    const Tensor bucket = Bucket(64);
    const Tensor large = Bytes(4096);
  }
  const Tensor later = Bucket(1024);
  EXPECT_EQ(MetaBytesOf(kMeta).at_peak.buckets, 64);
  EXPECT_EQ(MetaBytesOf(kMeta).current.buckets, 1024);
  allocator.ResetPeak();
  EXPECT_EQ(MetaBytesOf(kMeta).at_peak.buckets, 1024);
}

struct ScratchArgs {
  size_t bytes;
};
size_t Scratch(const ScratchArgs& args) { return args.bytes; }

TEST(MemoryUseTest, AKernelsScratchIsAWorkspace) {
  KernelTable<ScratchArgs> table("scratch");
  table.RegisterWorkspace(DeviceType::kCpu, Scratch);
  Allocator::For(kMeta).ResetPeak();
  table.Launch(kMeta, {320});
  EXPECT_EQ(MetaBytesOf(kMeta).at_peak, (UseBytes{.buckets = 0, .workspaces = 320}));
  EXPECT_EQ(MetaBytesOf(kMeta).current, UseBytes{});
}

TEST(MemoryUseTest, ShapesAreNotCounted) {
  const int64_t before = Current();
  Tensor shape;
  {
    const MemoryUseScope use(MemoryUse::kShape);
    shape = Bytes(int64_t{1} << 20);
  }
  EXPECT_EQ(Current(), before);
  shape = Tensor();
  EXPECT_EQ(Current(), before);
}

TEST(MemoryUseTest, OtherDevicesDoNotTellUsesApart) {
  const MemoryUseScope use(MemoryUse::kShape);
  const int64_t before = Allocator::For(Device::Cpu()).stats().current_bytes;
  const Tensor t = Empty({64}, DType::kUInt8);
  EXPECT_EQ(Allocator::For(Device::Cpu()).stats().current_bytes - before, 64);
  EXPECT_THROW(MetaBytesOf(Device::Cpu()), Error);
}

}  // namespace
}  // namespace tessera
