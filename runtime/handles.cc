// SPDX-License-Identifier: Apache-2.0
#include "runtime/handles.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace tessera::runtime {
namespace {

struct Entry {
  HandleKind kind;
  int pins = 0;
  std::atomic<bool>* cancelled = nullptr;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<const void*, Entry> entries;
};

// Never destroyed: hosts call while they end.
Table& Handles() {
  static auto* const table = new Table;
  return *table;
}

const char* NameOf(HandleKind kind) {
  switch (kind) {
    case HandleKind::kStatus:
      return "a status";
    case HandleKind::kTensors:
      return "tensors of tsr_forward";
    case HandleKind::kModel:
      return "a model";
    case HandleKind::kContext:
      return "a context";
    case HandleKind::kTrainer:
      return "a trainer";
    case HandleKind::kBlueprint:
      return "a blueprint";
    case HandleKind::kPass:
      return "a pass";
    case HandleKind::kSettings:
      return "settings of tsr_generate_options_set";
    case HandleKind::kMaking:
      return "what is being made";
  }
  return "a handle";
}

Status NoHandle(const void* handle, HandleKind kind) {
  return InvalidArgument(handle == nullptr ? "NULL" : "the pointer", " is not ", NameOf(kind),
                         handle == nullptr ? "" : ", or was released");
}

// With the lock held.
Entry* Find(Table& table, const void* handle, HandleKind kind) {
  const auto found = table.entries.find(handle);
  return found == table.entries.end() || found->second.kind != kind ? nullptr : &found->second;
}

Status AddPin(const void* handle, HandleKind kind, bool alone) {
  Table& table = Handles();
  const std::lock_guard<std::mutex> lock(table.mutex);
  Entry* const entry = Find(table, handle, kind);
  if (entry == nullptr) return NoHandle(handle, kind);
  if (alone && entry->pins > 0) return Failure(kBusy, NameOf(kind), " runs one call at a time");
  ++entry->pins;
  return OkStatus();
}

}  // namespace

void AddHandle(const void* handle, HandleKind kind, std::atomic<bool>* cancelled) {
  Table& table = Handles();
  const std::lock_guard<std::mutex> lock(table.mutex);
  table.entries[handle] = {.kind = kind, .cancelled = cancelled};
}

Status RemoveHandle(const void* handle, HandleKind kind) {
  Table& table = Handles();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const Entry* const entry = Find(table, handle, kind);
  if (entry == nullptr) return NoHandle(handle, kind);
  if (entry->pins > 0) return Failure(kBusy, NameOf(kind), " that is in use is not released");
  table.entries.erase(handle);
  return OkStatus();
}

bool IsHandle(const void* handle, HandleKind kind) {
  Table& table = Handles();
  const std::lock_guard<std::mutex> lock(table.mutex);
  return Find(table, handle, kind) != nullptr;
}

Status CancelHandle(const void* handle, HandleKind kind) {
  Table& table = Handles();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const Entry* const entry = Find(table, handle, kind);
  if (entry == nullptr) return NoHandle(handle, kind);
  if (entry->pins > 0 && entry->cancelled != nullptr) *entry->cancelled = true;
  return OkStatus();
}

bool AnyHandles() {
  Table& table = Handles();
  const std::lock_guard<std::mutex> lock(table.mutex);
  return std::any_of(table.entries.begin(), table.entries.end(), [](const auto& entry) {
    const HandleKind kind = entry.second.kind;
    return kind != HandleKind::kStatus && kind != HandleKind::kTensors &&
           kind != HandleKind::kSettings;
  });
}

StatusOr<Pin> Pin::Share(const void* handle, HandleKind kind) {
  TESSERA_RETURN_IF_ERROR(AddPin(handle, kind, /*alone=*/false));
  return Pin(handle);
}

StatusOr<Pin> Pin::Alone(const void* handle, HandleKind kind) {
  TESSERA_RETURN_IF_ERROR(AddPin(handle, kind, /*alone=*/true));
  return Pin(handle);
}

Pin::~Pin() {
  if (handle_ == nullptr) return;
  Table& table = Handles();
  const std::lock_guard<std::mutex> lock(table.mutex);
  Entry& entry = table.entries.find(handle_)->second;
  if (--entry.pins == 0 && entry.cancelled != nullptr) *entry.cancelled = false;
}

}  // namespace tessera::runtime
