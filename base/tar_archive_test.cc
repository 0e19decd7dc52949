// SPDX-License-Identifier: Apache-2.0
#include "base/tar_archive.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A header, whose checksum is right, and its data.
std::string Entry(const std::string& name, const std::string& data, char type = '0',
                  const std::function<void(std::string&)>& change = nullptr) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  char size[32];
  snprintf(size, sizeof(size), "%011zo", data.size());
  block.replace(124, 11, size);
  block[156] = type;
  block.replace(257, 8,
                std::string("ustar\0"
                            "00",
                            8));
  if (change != nullptr) change(block);
  block.replace(148, 8, "        ");
  int sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  char checksum[16];
  snprintf(checksum, sizeof(checksum), "%06o", sum);
  block.replace(148, 7, std::string(checksum, 7));
  return block + data + std::string((512 - data.size() % 512) % 512, '\0');
}

const std::string kEnd(1024, '\0');

MountedFile InMemory(std::string bytes) {
  const auto owner = std::make_shared<const std::string>(std::move(bytes));
  return MountedFile::OfBytes(owner->data(), static_cast<int64_t>(owner->size()), owner);
}

std::string Refusal(const std::string& archive) {
  const auto folder = MountTar(InMemory(archive), "a.tar");
  return folder.ok() ? "" : Message(folder.status());
}

class TarArchiveTest : public testing::Test {
 protected:
  TarArchiveTest() {
    fs::remove_all(root_);
    fs::create_directories(Path("m/" + long_name_));
    EXPECT_TRUE(WriteFileAtomically(Path("m/config.json"), "{}").ok());
    EXPECT_TRUE(WriteFileAtomically(Path("m/empty"), "").ok());
    EXPECT_TRUE(WriteFileAtomically(Path("m/" + long_name_ + "/a"), weights_).ok());
  }
  ~TarArchiveTest() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  void Run(const std::string& command) const {
    ASSERT_EQ(std::system(("cd '" + root_ + "' && " + command).c_str()), 0) << command;
  }
  void ExpectAllThere(const std::string& folder) const {
    EXPECT_EQ(*ReadFile(folder + "/config.json"), "{}");
    EXPECT_EQ(*ReadFile(folder + "/empty"), "");
    EXPECT_EQ(*ReadFile(folder + "/" + long_name_ + "/a"), weights_);
    EXPECT_EQ(*ListDirectory(folder),
              (std::vector<std::string>{"config.json", "empty", std::string(80, 'n')}));
  }

  const std::string root_ = testing::TempDir() + "/tar_archive_test";
  // Too long for a header's field of 100 bytes.
  const std::string long_name_ = std::string(80, 'n') + "/" + std::string(80, 'm');
  const std::string weights_ = std::string(100000, 'w') + "end";
};

TEST_F(TarArchiveTest, EveryFormatOfTarIsRead) {
  for (const std::string format : {"ustar", "gnu", "oldgnu", "pax", "posix"}) {
    SCOPED_TRACE(format);
    Run("tar cf inside.tar --format=" + format + " -C m .");
    Run("tar cf beside.tar --format=" + format + " m");
    for (const char* name : {"inside.tar", "beside.tar"}) {
      const auto folder = MountTar(Path(name));
      ASSERT_TRUE(folder.ok()) << folder.status();
      EXPECT_EQ(folder->path(), "<" + Path(name) + ">");
      ExpectAllThere(folder->path());
    }
  }
}

TEST_F(TarArchiveTest, EverySourceIsRead) {
  Run("tar cf a.tar -C m .");
  const std::string archive = *ReadFile(Path("a.tar"));
  const auto in_memory = MountTar(InMemory(archive), "memory");
  ASSERT_TRUE(in_memory.ok()) << in_memory.status();
  ExpectAllThere("<memory>");

  const MountedFile reader = MountedFile::OfReader(
      static_cast<int64_t>(archive.size()), [&](int64_t at, void* to, int64_t size) {
        std::memcpy(to, archive.data() + at, static_cast<size_t>(size));
        return OkStatus();
      });
  const auto read = MountTar(reader, "read");
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectAllThere("<read>");

  // Inside another file, where no page begins, and of a descriptor that is closed.
  ASSERT_TRUE(WriteFileAtomically(Path("b"), std::string(4097, 'x') + archive + "rest").ok());
  const int fd = open(Path("b").c_str(), O_RDONLY);
  const auto part =
      MountedFile::OfDescriptor(fd, 4097, static_cast<int64_t>(archive.size()), "bundle");
  const auto rest = MountedFile::OfDescriptor(fd, 4097 + std::ssize(archive), -1, "bundle");
  EXPECT_EQ(Message(MountedFile::OfDescriptor(fd, 4097, std::ssize(archive) + 5, "b").status()),
            Concat("b: has ", 4101 + archive.size(), " bytes; there are no ", archive.size() + 5,
                   " from 4097 on"));
  close(fd);
  EXPECT_EQ(Message(MountedFile::OfDescriptor(fd, 0, -1, "bundle").status()),
            "bundle: Bad file descriptor");
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(rest->size(), 4);
  const auto mapped = MountTar(*part, "bundle");
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  ExpectAllThere("<bundle>");
}

TEST(TarArchive, FilesAreParts) {
  const auto bytes = std::make_shared<const std::string>(Entry("a/b", "text") + kEnd);
  const auto folder =
      MountTar(MountedFile::OfBytes(bytes->data(), std::ssize(*bytes), bytes), "memory");
  const auto file = MappedFile::Open(folder->path() + "/b");
  EXPECT_EQ(reinterpret_cast<const char*>(file->data()), bytes->data() + 512);
  EXPECT_EQ(file->size(), 4);
}

TEST(TarArchive, NumbersInBase256AndPaxSizes) {
  const auto base256 = [](std::string& block) {
    block.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\4", 12));
  };
  EXPECT_EQ(Refusal(Entry("a", "text", '0', base256) + kEnd), "");
  const auto none = [](std::string& block) { block.replace(124, 11, "00000000000"); };
  EXPECT_EQ(Refusal(Entry("x", "10 size=4\n", 'x') + Entry("a", "text", '0', none) + kEnd), "");
}

TEST(TarArchive, HostileArchivesAreRefusedInOneLine) {
  const auto with = [](size_t at, const std::string& bytes) {
    return [at, bytes](std::string& block) { block.replace(at, bytes.size(), bytes); };
  };
  const std::string good = Entry("a", "text");
  const std::pair<std::string, std::string> kCases[] = {
      {"", "a.tar: 0 bytes are no tar archive"},
      {"no archive", "a.tar: 10 bytes are no tar archive"},
      {std::string(600, 'x'), "a.tar: is no tar archive"},
      {"\x1f\x8b" + std::string(600, 'x'), "a.tar: is compressed (gzip); unpack it first"},
      {"\x28\xb5\x2f\xfd" + std::string(9, 'x'), "a.tar: is compressed (zstd); unpack it first"},
      {"PK\x03\x04" + std::string(9, 'x'), "a.tar: is compressed (zip); unpack it first"},
      {good, "a.tar: has no end; it is cut off (1024 bytes)"},
      {good.substr(0, 515),
       "a.tar: the entry at byte 0 has 4 bytes, which reach beyond its end "
       "(515 bytes)"},
      {good + std::string(511, '\0'), "a.tar: has no end; it is cut off (1535 bytes)"},
      {Entry("a", "text", '0', with(124, "77777777777")) + kEnd,
       "a.tar: the entry at byte 0 has 8589934591 bytes, which reach beyond its end (2048 bytes)"},
      {Entry("a", "text", '0', with(124, "\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")) +
           kEnd,
       "a.tar: entry at byte 0: its size is no number"},
      {Entry("a", "text", '0', with(124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")) +
           kEnd,
       "a.tar: entry at byte 0: its size is no number"},
      {Entry("a", "text", '0', with(124, "99999999999")) + kEnd,
       "a.tar: entry at byte 0: its size is no number"},
      {good + good + kEnd, "a.tar: holds 'a' twice"},
      {good + Entry("./a", "x") + kEnd, "a.tar: holds 'a' twice"},
      {good + Entry("a/b", "x") + kEnd, "a.tar: holds 'a' twice"},
      {good + Entry("a/", "", '5') + kEnd, "a.tar: holds 'a' twice"},
      {Entry("../a", "x") + kEnd, "a.tar: entry at byte 0: the name '../a' has a part '..'"},
      {Entry("a/../b", "x") + kEnd, "a.tar: entry at byte 0: the name 'a/../b' has a part '..'"},
      {Entry("/etc/a", "x") + kEnd, "a.tar: entry at byte 0: the name '/etc/a' is absolute"},
      {Entry("", "x") + kEnd, "a.tar: entry at byte 0: the name '' is empty"},
      {Entry("a\nb", "x") + kEnd, "a.tar: entry at byte 0: the name 'a?b' has control characters"},
      {Entry("l", "", '2', with(157, "/etc/passwd")) + kEnd,
       "a.tar: 'l' is a link (tar's --dereference follows it)"},
      {Entry("l", "", '1') + kEnd, "a.tar: 'l' is a link (tar's --dereference follows it)"},
      {Entry("s", "", 'S') + kEnd, "a.tar: 's' is a sparse file"},
      {Entry("x", "22 GNU.sparse.major=1\n", 'x') + good + kEnd, "a.tar: 'a' is a sparse file"},
      {Entry("d", "", '3') + kEnd, "a.tar: 'd' is a device or a pipe"},
      {Entry("q", "", 'Q') + kEnd, "a.tar: 'q' is of a type that is not known"},
      {good + std::string(512, 'x') + kEnd, "a.tar: entry at byte 1024: the header is damaged"},
      {Entry("x", "99 path=b\n", 'x') + good + kEnd,
       "a.tar: entry at byte 0: the extended header is damaged"},
      {Entry("x", "10 path:b\n", 'x') + good + kEnd,
       "a.tar: entry at byte 0: the extended header is damaged"},
      {Entry("x", "11 size=-4\n", 'x') + good + kEnd,
       "a.tar: entry at byte 0: the extended header is damaged"},
      {Entry("x", "28 size=9223372036854775807\n", 'x') + good + kEnd,
       "a.tar: the entry at byte 1024 has 9223372036854775807 bytes, which reach beyond its end "
       "(3072 bytes)"},
      {Entry("x", "13 path=/a/b\n", 'x') + good + kEnd,
       "a.tar: entry at byte 1024: the name '/a/b' is absolute"},
  };
  for (const auto& [archive, message] : kCases) EXPECT_EQ(Refusal(archive), message);
}

TEST(TarArchive, AnArchiveWithoutFilesIsAnEmptyFolder) {
  const auto folder = MountTar(InMemory(Entry("./", "", '5') + kEnd), "a.tar");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(*ListDirectory(folder->path()), std::vector<std::string>());
}

}  // namespace
}  // namespace tessera
