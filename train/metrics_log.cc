#include "train/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "core/file.h"

namespace tessera::train {

MetricsLog::MetricsLog(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) close(descriptor_);
}

StatusOr<MetricsLog> MetricsLog::Open(const std::string& path, int64_t last_step) {
  std::string kept;
  if (PathExists(path)) {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) continue;
      if (row["step"].get<int64_t>() <= last_step) kept += line + "\n";
    }
  }
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor < 0) return SystemFailure(errno, path);
  return MetricsLog(path, descriptor);
}

Status MetricsLog::Append(const nlohmann::ordered_json& row) {
  const std::string line = row.dump() + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = write(descriptor_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemFailure(errno, path_);
    done += static_cast<size_t>(written);
  }
  return OkStatus();
}

}  // namespace tessera::train
