// SPDX-License-Identifier: Apache-2.0
#include "dist/store/host_memory.h"

#include <gtest/gtest.h>

#include "core/allocator.h"
#include "core/tensor.h"

namespace tessera::dist {
namespace {

TEST(HostMemoryTest, OfMetaIsCountedApartAsOfAnyDevice) {
  EXPECT_EQ(HostMemoryOf(Device::Cpu()), Device::Host());
  EXPECT_EQ(HostMemoryOf(Device::Cuda(3)), Device::Host());
  const Device host = HostMemoryOf(Device::Meta(DeviceType::kCuda));
  EXPECT_EQ(host, HostMemoryOf(Device::Meta()));
  EXPECT_EQ(host.ToString(), "meta:host");
  EXPECT_TRUE(host.is_meta());
  for (const Device& device : {Device::Host(), host}) {
    EXPECT_EQ(HostMemoryOf(device), device);
    EXPECT_TRUE(IsHostMemory(device));
  }
  for (const DeviceType target : {DeviceType::kCpu, DeviceType::kCuda}) {
    const Device device = Device::Meta(target);
    EXPECT_FALSE(IsHostMemory(device));
    const int64_t before = Allocator::For(device).stats().current_bytes;
    const Tensor kept = CopyTo(Empty({100}, DType::kFloat32, device), host);
    EXPECT_EQ(Allocator::For(device).stats().current_bytes, before);
    EXPECT_EQ(Allocator::For(host).stats().current_bytes, 448);
  }
}

// The CPU reads the host's memory where it lies; a GPU has to copy.
TEST(HostMemoryTest, WhoCanReadIt) {
  EXPECT_TRUE(CanRead(Device::Cpu(), Device::Host()));
  EXPECT_FALSE(CanRead(Device::Cuda(0), Device::Host()));
  EXPECT_TRUE(CanRead(Device::Meta(), HostMemoryOf(Device::Meta())));
  const Device gpu = Device::Meta(DeviceType::kCuda);
  EXPECT_FALSE(CanRead(gpu, HostMemoryOf(gpu)));
}

}  // namespace
}  // namespace tessera::dist
