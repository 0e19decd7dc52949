// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/checksum.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest()
      : root_(testing::TempDir() + "file_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FileTest() override { fs::remove_all(root_); }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  // Not by the library under test.
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string Read(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  const std::string root_;
};

using Strings = std::vector<std::string>;

TEST_F(FileTest, ReadsWhatIsThere) {
  const std::string text("a\0b\n\xff", 5);
  Write(Path("f"), text);
  Write(Path("empty"), "");
  EXPECT_EQ(ReadFile(Path("f")).value(), text);
  EXPECT_EQ(ReadFile(Path("empty")).value(), "");
  // Its size is said to be 0.
  EXPECT_NE(ReadFile("/proc/self/status").value().find("Pid:"), std::string::npos);
  std::string large(3000001, 'x');
  large[2999999] = 'y';
  Write(Path("large"), large);
  EXPECT_EQ(ReadFile(Path("large")).value(), large);
}

TEST_F(FileTest, FailuresNameThePath) {
  const Status missing = ReadFile(Path("none")).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(missing), Path("none") + ": No such file or directory");
  EXPECT_EQ(Message(ReadFile(root_).status()), root_ + ": Is a directory");
  EXPECT_EQ(Message(MappedFile::Open(root_).status()), root_ + ": Is a directory");
  EXPECT_EQ(Message(MappedFile::Open("/dev/null").status()), "/dev/null: not a regular file");
  Write(Path("f"), "x");
  EXPECT_EQ(Message(WriteFileAtomically(Path("f/g"), "x")), Path("f/g") + ": Not a directory");
  EXPECT_EQ(Message(WriteFileAtomically(root_, "x")), root_ + ": Is a directory");
  EXPECT_EQ(Message(MakeDirectories(Path("f/g"))), Path("f/g") + ": Not a directory");
  EXPECT_EQ(Message(MakeDirectories(Path("f"))), Path("f") + ": Not a directory");
  EXPECT_FALSE(ListDirectory(Path("none")).ok());
}

TEST_F(FileTest, PointersOfGitLfsAreNotTheFiles) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n";
  Write(Path("p"), pointer);
  const std::string said =
      Path("p") + ": is a pointer of Git LFS in place of the file; `git lfs pull` brings the file";
  EXPECT_EQ(Message(ReadFile(Path("p")).status()), said);
  EXPECT_EQ(Message(MappedFile::Open(Path("p")).status()), said);
  Write(Path("t"), "A pointer is: " + pointer);
  EXPECT_TRUE(ReadFile(Path("t")).ok());
  Write(Path("l"), pointer + std::string(1000, 'x'));
  EXPECT_TRUE(MappedFile::Open(Path("l")).ok());
}

TEST_F(FileTest, MapsFiles) {
  Write(Path("f"), "mapped");
  Write(Path("empty"), "");
  MappedFile file = MappedFile::Open(Path("f")).value();
  MappedFile moved = std::move(file);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.data()), moved.size()), "mapped");
  EXPECT_EQ(moved.path(), Path("f"));
  moved = MappedFile::Open(Path("empty")).value();
  EXPECT_EQ(moved.size(), 0);
}

TEST_F(FileTest, AMappedFileThatShrinksEndsTheProgramByName) {
  Write(Path("f"), std::string(20000, 'x'));
  const auto read_end = [&] {
    EndWhenMappedFilesShrink();
    const MappedFile other = MappedFile::Open(Path("f")).value();
    MappedFile file = MappedFile::Open(Path("f")).value();
    const MappedFile moved = std::move(file);
    if (truncate(Path("f").c_str(), 1) != 0) _exit(3);
    volatile const std::byte* bytes = moved.data();
    _exit(bytes[19999] == std::byte('x') ? 4 : 5);
  };
  EXPECT_EXIT(read_end(), testing::ExitedWithCode(1),
              "^error: " + Path("f") + ": was cut short while it was read\n$");
  const auto elsewhere = [] {
    EndWhenMappedFilesShrink();
    raise(SIGBUS);
    raise(SIGBUS);
  };
  EXPECT_EXIT(elsewhere(), testing::KilledBySignal(SIGBUS), "");
}

TEST_F(FileTest, AFifoWithoutAnOtherEndIsRefused) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(Message(ReadFile(Path("fifo")).status()),
            Path("fifo") + ": is a FIFO that nobody writes to");
  EXPECT_EQ(Message(MappedFile::Open(Path("fifo")).status()),
            Path("fifo") + ": not a regular file");
  EXPECT_EQ(Message(WriteFileAtomically(Path("fifo"), "x")),
            Path("fifo") + ": is a FIFO that nobody reads");
  // With one, what is written arrives, however late.
  const int both = open(Path("fifo").c_str(), O_RDWR);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(write(both, "text", 4), 4);
    close(both);
  });
  EXPECT_EQ(ReadFile(Path("fifo")).value(), "text");
  writer.join();
}

// Whoever may write into a folder can foresee the names of temporary files there.
TEST_F(FileTest, DoesNotWriteThroughLinksThatStandInForTemporaryFiles) {
  Write(Path("victim"), "untouched");
  for (int i = 0; i < 200; ++i) {
    const std::string name = Concat("f.tmp-", getpid(), "-", i);
    ASSERT_EQ(symlink(Path("victim").c_str(), Path(name).c_str()), 0);
  }
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "new").ok());
  EXPECT_EQ(Read(Path("f")), "new");
  EXPECT_EQ(Read(Path("victim")), "untouched");
  EXPECT_LT(Names().size(), 202u) << "no link was met";
}

TEST_F(FileTest, ReplacesFilesWhole) {
  Write(Path("f"), "old");
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "new").ok());
  EXPECT_EQ(Read(Path("f")), "new");
  {
    AtomicFile file = AtomicFile::Create(Path("f")).value();
    ASSERT_TRUE(file.Append(std::string(1000000, 'a')).ok());
    ASSERT_TRUE(file.Append("tail").ok());
    EXPECT_EQ(Read(Path("f")), "new");
    EXPECT_EQ(Names().size(), 2u);
  }
  EXPECT_EQ(Names(), Strings{"f"});
  EXPECT_EQ(Read(Path("f")), "new");
  AtomicFile file = AtomicFile::Create(Path("f")).value();
  std::string want;
  for (int i = 0; i < 1000; ++i) {
    const std::string piece(i * 7 % 3001, static_cast<char>('a' + i % 26));
    want += piece;
    ASSERT_TRUE(file.Append(piece).ok());
  }
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(Read(Path("f")), want);
  EXPECT_FALSE(file.Append("x").ok());
  EXPECT_FALSE(file.Commit().ok());
  EXPECT_EQ(Names(), Strings{"f"});
}

TEST_F(FileTest, LinksStayLinks) {
  Write(Path("f"), "old");
  fs::create_symlink("f", Path("link"));
  ASSERT_TRUE(WriteFileAtomically(Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("f")), "new");
  // What a link points to need not exist, and may be another link.
  fs::create_directory(Path("sub"));
  fs::create_symlink("sub/later", Path("early"));
  fs::create_symlink("early", Path("earlier"));
  ASSERT_TRUE(WriteFileAtomically(Path("earlier"), "now").ok());
  EXPECT_TRUE(fs::is_symlink(Path("earlier")) && fs::is_symlink(Path("early")));
  EXPECT_EQ(Read(Path("sub/later")), "now");
  // Links to folders, too.
  fs::create_directory(Path("sub/folder"));
  fs::create_symlink(Path("sub/folder"), Path("there"));
  AtomicDirectory folder = AtomicDirectory::Create(Path("there/")).value();
  Write(folder.temporary_path() + "/a", "1");
  ASSERT_TRUE(folder.CommitReplacing().ok());
  EXPECT_TRUE(fs::is_symlink(Path("there")));
  EXPECT_EQ(Read(Path("sub/folder/a")), "1");
}

TEST_F(FileTest, AFullDiskLosesNothing) {
  const Status full = WriteFileAtomically("/dev/full", "x");
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(full), "/dev/full: No space left on device");
  struct stat info;
  ASSERT_EQ(stat("/dev/full", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));

  Write(Path("f"), "old");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 100000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Status status = WriteFileAtomically(Path("f"), std::string(5000000, 'n'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(Message(status), Path("f") + ": File too large");
  EXPECT_EQ(Read(Path("f")), "old");
  EXPECT_EQ(Names(), Strings{"f"});
}

TEST_F(FileTest, DirectoriesAppearWhole) {
  const std::string target = Path("deep/checkpoint-1/");
  {
    AtomicDirectory dir = AtomicDirectory::Create(target).value();
    Write(dir.temporary_path() + "/a", "1");
    EXPECT_TRUE(PathExists(dir.temporary_path()));
    EXPECT_FALSE(PathExists(Path("deep/checkpoint-1")));
  }
  EXPECT_EQ(ListDirectory(Path("deep")).value(), Strings{});
  AtomicDirectory dir = AtomicDirectory::Create(target).value();
  Write(dir.temporary_path() + "/a", "1");
  fs::create_directories(dir.temporary_path() + "/sub/sub");
  Write(dir.temporary_path() + "/sub/sub/b", "2");
  ASSERT_TRUE(dir.Commit().ok());
  EXPECT_FALSE(dir.Commit().ok());
  EXPECT_EQ(ListDirectory(Path("deep")).value(), Strings{"checkpoint-1"});
  EXPECT_EQ(Read(Path("deep/checkpoint-1/sub/sub/b")), "2");

  AtomicDirectory again = AtomicDirectory::Create(target).value();
  Write(again.temporary_path() + "/c", "3");
  EXPECT_EQ(Message(again.Commit()), Path("deep/checkpoint-1") + ": File exists");
  EXPECT_EQ(Read(Path("deep/checkpoint-1/a")), "1");
  ASSERT_TRUE(again.CommitReplacing().ok());
  EXPECT_EQ(ListDirectory(Path("deep/checkpoint-1")).value(), Strings{"c"});
  EXPECT_EQ(ListDirectory(Path("deep")).value(), Strings{"checkpoint-1"});
}

TEST_F(FileTest, ClearsAwayWhatKilledProcessesLeft) {
  for (const char* name : {"a.tmp-12-0", "checkpoint-10.tmp-3-44"}) {
    fs::create_directories(Path(name));
    Write(Path(name) + "/x", "x");
  }
  Write(Path("f.tmp-1-1"), "x");
  for (const char* name : {"keep.tmp-", "keep.tmp-1", "keep.tmp-1-", "keep.tmp-a-1", "keep.tmp",
                           ".tmp-1-1", "keep.tmp-1-1.txt"}) {
    Write(Path(name), "x");
  }
  ASSERT_TRUE(RemoveTemporaries(root_).ok());
  EXPECT_EQ(Names(), (Strings{".tmp-1-1", "keep.tmp", "keep.tmp-", "keep.tmp-1", "keep.tmp-1-",
                              "keep.tmp-1-1.txt", "keep.tmp-a-1"}));
}

TEST_F(FileTest, Names) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  Write(Path("z"), "");
  ASSERT_TRUE(MakeDirectories(Path("b/c/")).ok());
  ASSERT_TRUE(MakeDirectories(Path("b/c")).ok());
  EXPECT_EQ(ListDirectory(root_).value(), (Strings{"b", "z"}));
  EXPECT_TRUE(IsDirectory(Path("b")));
  EXPECT_FALSE(IsDirectory(Path("z")));
  ASSERT_TRUE(RemoveAll(Path("b")).ok());
  ASSERT_TRUE(RemoveAll(Path("b")).ok());
  EXPECT_FALSE(PathExists(Path("b")));
}

TEST(Checksum, KnownAnswers) {
  // RFC 3720, appendix B.4, and the check value of the CRC catalogue.
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  const std::string zeros(32, '\0');
  const std::string ones(32, '\xff');
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(Crc32c(zeros.data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(ones.data(), 32), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(rising.data(), 32), 0x46DD794Eu);
  EXPECT_EQ(Crc32c(nullptr, 0), 0u);
}

TEST(Checksum, PiecesAndBothImplementationsAgree) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * i % 251);
  const uint32_t whole = Crc32c(bytes.data(), bytes.size());
  for (size_t cut : {0, 1, 7, 8, 9, 500, 999, 1000}) {
    uint32_t crc = Crc32c(bytes.data(), cut);
    crc = Crc32c(bytes.data() + cut, bytes.size() - cut, crc);
    EXPECT_EQ(crc, whole);
    crc = checksum_internal::Crc32cPortable(bytes.data(), cut, 0);
    crc = checksum_internal::Crc32cPortable(bytes.data() + cut, bytes.size() - cut, crc);
    EXPECT_EQ(crc, whole);
  }
}

}  // namespace
}  // namespace tessera
