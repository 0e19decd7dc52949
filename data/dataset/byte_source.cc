// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/open_file.h"

namespace tessera::data {
namespace {

constexpr size_t kInputBytes = size_t{1} << 18;
constexpr int kGzipLevel = 6;
constexpr int kZstdLevel = 3;
constexpr int kGzipWindow = 15 + 16;  // zlib's way to ask for gzip

class PlainFile : public ByteSource {
 public:
  PlainFile(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  ~PlainFile() override { close(fd_); }

  StatusOr<size_t> Read(char* to, size_t size) override {
    size_t done = 0;
    while (done < size) {
      const ssize_t n = pread(fd_, to + done, size - done, position_);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemFailure(errno, path_, ": cannot read");
      if (n == 0 && position_ < size_) {
        return DataLoss(path_, ": was cut short while it was read");
      }
      if (n == 0) break;
      done += static_cast<size_t>(n);
      position_ += n;
    }
    return done;
  }
  Status Skip(int64_t size) override {
    position_ += size;
    return OkStatus();
  }
  int64_t file_position() const override { return position_; }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const int fd_;
  const int64_t size_;  // when it was opened
  int64_t position_ = 0;
};

// What the decoders share: input that is fetched as they use it up.
class CompressedFile : public ByteSource {
 public:
  explicit CompressedFile(std::unique_ptr<PlainFile> file)
      : file_(std::move(file)), input_(kInputBytes) {}
  int64_t file_position() const override { return file_->file_position(); }

 protected:
  // False: the file is at its end.
  StatusOr<bool> Fetch() {
    TESSERA_ASSIGN_OR_RETURN(filled_, file_->Read(input_.data(), input_.size()));
    return filled_ > 0;
  }
  // What was read before it goes first; the damage is the next answer.
  StatusOr<size_t> Damaged(std::string_view what, size_t done) {
    failed_ = DataLoss(file_->path(), ": ", what, " after ", produced_, " bytes");
    if (done > 0) return done;
    return failed_;
  }

  const std::unique_ptr<PlainFile> file_;
  std::vector<char> input_;
  size_t filled_ = 0;
  int64_t produced_ = 0;
  Status failed_;
};

class GzipFile : public CompressedFile {
 public:
  explicit GzipFile(std::unique_ptr<PlainFile> file) : CompressedFile(std::move(file)) {
    TESSERA_CHECK(inflateInit2(&stream_, kGzipWindow) == Z_OK, "gzip", "zlib does not start");
  }
  ~GzipFile() override { inflateEnd(&stream_); }

  StatusOr<size_t> Read(char* to, size_t size) override {
    TESSERA_RETURN_IF_ERROR(failed_);
    size_t done = 0;
    while (done < size) {
      if (stream_.avail_in == 0) {
        TESSERA_ASSIGN_OR_RETURN(const bool more, Fetch());
        if (!more && inside_) return Damaged("gzip data ends early", done);
        if (!more) break;
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(filled_);
      }
      if (!inside_ && !BeginMember()) {
        if (stream_.avail_in == 0) continue;
        return Damaged("what follows gzip data is none", done);
      }
      const size_t piece = std::min(size - done, size_t{1} << 30);
      stream_.next_out = reinterpret_cast<Bytef*>(to + done);
      stream_.avail_out = static_cast<uInt>(piece);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      const size_t got = piece - stream_.avail_out;
      done += got;
      produced_ += static_cast<int64_t>(got);
      if (result == Z_STREAM_END) {
        inside_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Damaged("damaged gzip data", done);
      }
    }
    return done;
  }

 private:
  // Zeros may pad what is between members and behind the last one.
  bool BeginMember() {
    while (produced_ > 0 && stream_.avail_in > 0 && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    if (stream_.avail_in == 0 || *stream_.next_in != 0x1F) return false;
    inside_ = true;
    return inflateReset(&stream_) == Z_OK;
  }

  z_stream stream_ = {};
  bool inside_ = false;  // a member
};

class ZstdFile : public CompressedFile {
 public:
  explicit ZstdFile(std::unique_ptr<PlainFile> file)
      : CompressedFile(std::move(file)), stream_(ZSTD_createDStream()) {
    TESSERA_CHECK(stream_ != nullptr, "zstd", "libzstd does not start");
    ZSTD_initDStream(stream_);
  }
  ~ZstdFile() override { ZSTD_freeDStream(stream_); }

  StatusOr<size_t> Read(char* to, size_t size) override {
    TESSERA_RETURN_IF_ERROR(failed_);
    ZSTD_outBuffer out = {to, size, 0};
    while (out.pos < size) {
      if (in_.pos == in_.size) {
        TESSERA_ASSIGN_OR_RETURN(const bool more, Fetch());
        if (!more && inside_) return Damaged("zstd data ends early", out.pos);
        if (!more) break;
        in_ = {input_.data(), filled_, 0};
      }
      const size_t before = out.pos;
      const size_t result = ZSTD_decompressStream(stream_, &out, &in_);
      produced_ += static_cast<int64_t>(out.pos - before);
      if (ZSTD_isError(result)) {
        return Damaged(Concat("damaged zstd data (", ZSTD_getErrorName(result), ")"), out.pos);
      }
      inside_ = result != 0;
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* const stream_;
  ZSTD_inBuffer in_ = {};
  bool inside_ = false;  // a frame
};

}  // namespace

StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(const std::string& path) {
  const int fd = OpenFile(path, O_RDONLY);
  if (fd < 0) return SystemFailure(errno, path, ": cannot read");
  struct stat status;
  if (fstat(fd, &status) != 0) {
    const int error = errno;
    close(fd);
    return SystemFailure(error, path, ": cannot read");
  }
  auto file = std::make_unique<PlainFile>(path, fd, status.st_size);
  if (!S_ISREG(status.st_mode)) return InvalidArgument(path, ": not a regular file");
  char magic[4] = {};
  TESSERA_ASSIGN_OR_RETURN(const size_t size, file->Read(magic, sizeof(magic)));
  TESSERA_RETURN_IF_ERROR(file->Skip(-static_cast<int64_t>(size)));
  const Compression compression = CompressionOfBytes({magic, sizeof(magic)});
  if (compression == Compression::kGzip) return std::make_unique<GzipFile>(std::move(file));
  if (compression == Compression::kZstd) return std::make_unique<ZstdFile>(std::move(file));
  return file;
}

Compression CompressionOfBytes(std::string_view begin) {
  if (begin.starts_with("\x1F\x8B")) return Compression::kGzip;
  if (begin.starts_with("\x28\xB5\x2F\xFD")) return Compression::kZstd;
  return Compression::kNone;
}

Status ByteSource::Skip(int64_t size) {
  std::vector<char> buffer(kInputBytes);
  while (size > 0) {
    const size_t piece = std::min(buffer.size(), static_cast<size_t>(size));
    TESSERA_ASSIGN_OR_RETURN(const size_t n, Read(buffer.data(), piece));
    if (n == 0) return DataLoss("the end comes ", size, " bytes too early");
    size -= static_cast<int64_t>(n);
  }
  return OkStatus();
}

Compression CompressionOfName(std::string_view path) {
  if (path.ends_with(".gz")) return Compression::kGzip;
  if (path.ends_with(".zst")) return Compression::kZstd;
  return Compression::kNone;
}

std::string_view WithoutCompression(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  if (path.ends_with(".zst")) path.remove_suffix(4);
  return path;
}

std::string Compressed(std::string_view bytes, Compression compression) {
  std::string out;
  if (compression == Compression::kZstd) {
    out.resize(ZSTD_compressBound(bytes.size()));
    const size_t size =
        ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kZstdLevel);
    TESSERA_CHECK(!ZSTD_isError(size), "zstd", ZSTD_getErrorName(size));
    out.resize(size);
    return out;
  }
  if (compression == Compression::kNone) return std::string(bytes);
  z_stream stream = {};
  TESSERA_CHECK(deflateInit2(&stream, kGzipLevel, Z_DEFLATED, kGzipWindow, /*memLevel=*/8,
                             Z_DEFAULT_STRATEGY) == Z_OK,
                "gzip", "zlib does not start");
  out.resize(deflateBound(&stream, bytes.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  TESSERA_CHECK(result == Z_STREAM_END, "gzip", "zlib does not end");
  return out;
}

StatusOr<std::string> Inflated(std::string_view bytes, size_t most) {
  // gzip and zlib say what they are; what is neither is deflate without a frame.
  const bool framed = bytes.starts_with("\x1F\x8B") || bytes.starts_with("\x78");
  z_stream stream = {};
  if (inflateInit2(&stream, framed ? 15 + 32 : -15) != Z_OK) return Internal("zlib does not start");
  std::string out;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  int result = Z_OK;
  while (result == Z_OK && out.size() < most) {
    const size_t begin = out.size();
    out.resize(std::min(most, begin + std::max(begin, kInputBytes)));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + begin);
    stream.avail_out = static_cast<uInt>(out.size() - begin);
    result = inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (result == Z_STREAM_END) return out;
  if (out.size() >= most) return DataLoss("more than ", most, " bytes when inflated");
  return DataLoss("damaged deflate data");
}

}  // namespace tessera::data
