// SPDX-License-Identifier: Apache-2.0
#include "train/report/event_file.h"

#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/checksum.h"
#include "base/file.h"
#include "nlohmann/json.hpp"
#include "train/report/run_log.h"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPrefix[] = "events.out.tfevents.";

std::string FolderIn(const std::string& folder) { return JoinPath(folder, "tensorboard"); }

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// --- Protocol buffers ----------------------------------------------------------------------------

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>((value & 0x7f) | 0x80);
  return text + static_cast<char>(value);
}

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string Key(int field, WireType type) {
  return Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}

std::string Integer(int field, int64_t value) {
  return Key(field, kVarint) + Varint(static_cast<uint64_t>(value));
}

std::string Double(int field, double value) {
  return Key(field, kFixed64) + LittleEndian(std::bit_cast<uint64_t>(value), 8);
}

std::string Float(int field, float value) {
  return Key(field, kFixed32) + LittleEndian(std::bit_cast<uint32_t>(value), 4);
}

std::string Bytes(int field, std::string_view value) {
  return Key(field, kBytes) + Varint(value.size()) + std::string(value);
}

// The fields of event.proto and summary.proto that a file of scalars has.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr int kEventSessionLog = 7, kSessionLogStatus = 1, kSessionStart = 1;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;

// --- Rows ----------------------------------------------------------------------------------------

std::string TagOf(const std::string& name) {
  const bool evaluated = name.rfind("val_", 0) == 0;
  return evaluated ? "eval/" + name.substr(4) : "train/" + name;
}

std::string SummaryOf(const Json& row) {
  std::string summary;
  for (const auto& [name, value] : row.items()) {
    if (name == "step" || !(value.is_number() || value.is_null())) continue;
    float scalar = value.is_null() ? std::numeric_limits<float>::quiet_NaN() : value.get<float>();
    if (!std::isfinite(scalar)) scalar = std::numeric_limits<float>::quiet_NaN();
    summary += Bytes(kSummaryValue, Bytes(kValueTag, TagOf(name)) + Float(kValueSimple, scalar));
  }
  return summary;
}

// A checksum of data that contain checksums would be a weak one without the mask.
uint32_t Masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8u; }

std::string Checksum(std::string_view data) {
  return LittleEndian(Masked(Crc32c(data.data(), data.size())), 4);
}

}  // namespace

namespace event_file_internal {

std::string Record(std::string_view data) {
  const std::string length = LittleEndian(data.size(), 8);
  return length + Checksum(length) + std::string(data) + Checksum(data);
}

// The start of a session drops what a TensorBoard has read of files before.
std::string FirstRecords(double wall_time) {
  const std::string time = Double(kEventWallTime, wall_time);
  return Record(time + Bytes(kEventFileVersion, "brain.Event:2")) +
         Record(time + Bytes(kEventSessionLog, Integer(kSessionLogStatus, kSessionStart)));
}

std::string RowRecord(const Json& row, double wall_time) {
  return Record(Double(kEventWallTime, wall_time) +
                Integer(kEventStep, row["step"].get<int64_t>()) +
                Bytes(kEventSummary, SummaryOf(row)));
}

}  // namespace event_file_internal

StatusOr<std::unique_ptr<MetricsWriter>> EventFile::Open(const std::string& folder) {
  TESSERA_RETURN_IF_ERROR(Remove(folder));
  TESSERA_RETURN_IF_ERROR(MakeDirectories(FolderIn(folder)));
  const double now = Now();
  const std::string name =
      Concat(kPrefix, static_cast<int64_t>(now), ".", HostName(), ".", getpid());
  TESSERA_ASSIGN_OR_RETURN(AppendedFile file,
                           AppendedFile::Create(JoinPath(FolderIn(folder), name),
                                                event_file_internal::FirstRecords(now)));
  return std::unique_ptr<MetricsWriter>(new EventFile(std::move(file)));
}

Status EventFile::Remove(const std::string& folder) {
  if (!PathExists(FolderIn(folder))) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const auto names, ListDirectory(FolderIn(folder)));
  for (const std::string& name : names) {
    if (name.rfind(kPrefix, 0) != 0) continue;
    TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(FolderIn(folder), name)));
  }
  return OkStatus();
}

Status EventFile::Append(const Json& row) {
  if (!row.contains("step") || !row["step"].is_number_integer()) return OkStatus();
  return file_.Append(event_file_internal::RowRecord(row, Now()));
}

}  // namespace tessera::train
