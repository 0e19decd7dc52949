// SPDX-License-Identifier: Apache-2.0
#include "tools/tensor_file.h"

#include "core/safetensors.h"

namespace tessera::tools {
namespace {

constexpr char kMark[] = "written_by";  // in the metadata

}  // namespace

Status WriteTensorFile(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       std::string_view command) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, t] : tensors) {
    entries.push_back({name, t.dtype(), {t.shape().begin(), t.shape().end()}});
  }
  TESSERA_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(path, entries, {{"format", "pt"}, {kMark, std::string(command)}}));
  for (const auto& [name, t] : tensors) {
    const Tensor host = CopyTo(t, Device::Cpu()).ContiguousCopy();
    if (host.numel() > 0) TESSERA_RETURN_IF_ERROR(writer.Append(host.raw_data(), host.nbytes()));
  }
  return writer.Commit();
}

bool IsTensorFileOf(std::string_view command, const std::string& path) {
  const StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return false;
  const auto found = file->metadata().find(kMark);
  return found != file->metadata().end() && found->second == command;
}

}  // namespace tessera::tools
