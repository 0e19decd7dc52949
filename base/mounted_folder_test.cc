// SPDX-License-Identifier: Apache-2.0
#include "base/mounted_folder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace tessera {
namespace {

MountedFile OfText(std::string text) {
  const auto owner = std::make_shared<const std::string>(std::move(text));
  return MountedFile::OfBytes(owner->data(), static_cast<int64_t>(owner->size()), owner);
}

MountedFile ReadFrom(std::string text) {
  const auto size = static_cast<int64_t>(text.size());
  return MountedFile::OfReader(size, [text = std::move(text)](int64_t at, void* to, int64_t n) {
    std::memcpy(to, text.data() + at, static_cast<size_t>(n));
    return OkStatus();
  });
}

std::string_view View(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

TEST(MountedFolder, IsReadAsAnyFolder) {
  const MountedFolder folder("memory", {{"a.txt", OfText("first")},
                                        {"parts/b.txt", ReadFrom("second")},
                                        {"parts/empty", OfText("")}});
  EXPECT_EQ(folder.path(), "<memory>");
  EXPECT_TRUE(IsDirectory(folder.path()));
  EXPECT_TRUE(IsDirectory("<memory>/"));
  EXPECT_TRUE(IsDirectory("<memory>/parts"));
  EXPECT_FALSE(IsDirectory("<memory>/a.txt"));
  EXPECT_TRUE(PathExists("<memory>/a.txt"));
  EXPECT_TRUE(PathExists("<memory>//./parts//b.txt"));
  EXPECT_FALSE(PathExists("<memory>/a"));
  EXPECT_FALSE(PathExists("<memory>/par"));
  EXPECT_EQ(*ListDirectory(folder.path()), (std::vector<std::string>{"a.txt", "parts"}));
  EXPECT_EQ(*ListDirectory("<memory>/parts"), (std::vector<std::string>{"b.txt", "empty"}));
  EXPECT_EQ(*ReadFile("<memory>/a.txt"), "first");
  EXPECT_EQ(*ReadFile(JoinPath(folder.path(), "parts/b.txt")), "second");
  EXPECT_EQ(*ReadFile("<memory>/parts/empty"), "");
  EXPECT_EQ(View(*MappedFile::Open("<memory>/parts/b.txt")), "second");
  EXPECT_EQ(MappedFile::Open("<memory>/parts/empty")->size(), 0);
}

TEST(MountedFolder, FailuresNameThePath) {
  const MountedFolder folder("memory", {{"a/b", OfText("x")}});
  const auto message = [](const auto& result) { return Message(result.status()); };
  EXPECT_EQ(message(ReadFile("<memory>/c")), "<memory>/c: No such file or directory");
  EXPECT_EQ(message(MappedFile::Open("<memory>/a")), "<memory>/a: Is a directory");
  EXPECT_EQ(message(ListDirectory("<memory>/a/b")), "<memory>/a/b: Not a directory");
  EXPECT_EQ(message(ListDirectory("<memory>/c")), "<memory>/c: No such file or directory");
  EXPECT_EQ(ReadFile("<memory>/c").status().code(), StatusCode::kNotFound);
  for (const Status& status :
       {WriteFileAtomically("<memory>/c", "x"), MakeDirectories("<memory>/c"),
        RemoveAll("<memory>/a/b"), AtomicDirectory::Create("<memory>/c/d").status()}) {
    EXPECT_NE(Message(status).find("Read-only file system"), std::string::npos) << status;
  }
  const MountedFolder broken("broken", {{"a", MountedFile::OfReader(1, [](int64_t, void*, int64_t) {
                                           return DataLoss("the network is gone");
                                         })}});
  EXPECT_EQ(message(ReadFile("<broken>/a")), "the network is gone");
  EXPECT_EQ(message(MappedFile::Open("<broken>/a")), "the network is gone");
}

TEST(MountedFolder, NamesAreUniqueAndFree) {
  auto first = std::make_unique<MountedFolder>("a > b/c", MountedFolder::Files{{"x", OfText("1")}});
  const MountedFolder second("a > b/c", {{"x", OfText("2")}});
  EXPECT_EQ(second.path(), "<a > b/c 2>");
  EXPECT_EQ(*ReadFile("<a > b/c>/x"), "1");
  EXPECT_EQ(*ReadFile("<a > b/c 2>/x"), "2");
  MountedFolder moved = std::move(*first);
  first.reset();
  EXPECT_EQ(*ReadFile("<a > b/c>/x"), "1");
  moved = MountedFolder("other", {});
  EXPECT_FALSE(PathExists("<a > b/c>"));
  EXPECT_TRUE(IsDirectory("<other>"));
}

TEST(MountedFolder, MappedBytesAreTheOwnersAndOutliveTheFolder) {
  auto owner = std::make_shared<const std::string>("bytes");
  const char* data = owner->data();
  MappedFile mapped, read;
  {
    const MountedFolder folder(
        "memory", {{"a", MountedFile::OfBytes(data, 5, owner)}, {"b", ReadFrom("others")}});
    mapped = *MappedFile::Open("<memory>/a");
    read = *MappedFile::Open("<memory>/b");
  }
  EXPECT_FALSE(PathExists("<memory>/a"));
  EXPECT_EQ(static_cast<const void*>(mapped.data()), data);  // not a copy
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(View(read), "others");
  mapped = MappedFile();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(MountedFolder, PathsThatAreNoneAreRefused) {
  for (const char* path : {"", "/a", "a/", "a//b", ".", "../a", "a/./b"}) {
    EXPECT_THROW(MountedFolder("memory", {{path, OfText("x")}}), Error) << path;
  }
  EXPECT_THROW(MountedFolder("memory", {{"a", OfText("x")}, {"a/b", OfText("x")}}), Error);
}

TEST(MountedFolder, ReadersAreCalledByOneThreadAtATime) {
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  const MountedFile file = MountedFile::OfReader(64, [&](int64_t at, void* to, int64_t n) {
    if (inside.fetch_add(1) != 0) overlapped = true;
    std::memset(to, static_cast<int>(at), static_cast<size_t>(n));
    std::this_thread::yield();
    inside.fetch_sub(1);
    return OkStatus();
  });
  const MountedFolder folder("memory", {{"a", file.Part(0, 8)}, {"b", file.Part(32, 8)}});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        EXPECT_EQ(*ReadFile("<memory>/b"), std::string(8, 32));
        const MountedFolder own("memory", {{"x", file}});
        EXPECT_EQ(ReadFile(own.path() + "/x")->size(), 64u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(overlapped);
}

}  // namespace
}  // namespace tessera
