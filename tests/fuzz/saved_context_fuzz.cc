// SPDX-License-Identifier: Apache-2.0
// tsr_context_restore (runtime/tessera.h)
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "core/safetensors.h"
#include "core/safetensors_header.h"
#include "models/family.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "runtime/tessera.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/inference/small_models.h"

namespace tessera::fuzz {
namespace {

bool Succeeds(tsr_status* status) {
  const bool ok = status == nullptr;
  tsr_status_release(status);
  return ok;
}

// A model that stays, and contexts of it that keep two texts.
const tsr_model* SmallModel() {
  static const tsr_model* const model = [] {
    const FuzzFolder folder;
    const auto built = models::BuildModel(SmallConfig("gpt2"), {.seed = 3});
    models::SaveModel(**built, folder.path(), nullptr).IgnoreError();
    tsr_load_options options = {};
    options.size = sizeof(options);
    options.copy_weights = 1;
    tsr_model* loaded = nullptr;
    TESSERA_CHECK(Succeeds(tsr_model_load(folder.path().c_str(), &options, &loaded)),
                  "saved_context", "the model does not load");
    return loaded;
  }();
  return model;
}

class KeepingContext {
 public:
  KeepingContext() {
    tsr_context_options options = {};
    options.size = sizeof(options);
    options.kept_texts = 2;
    options.threads = 1;
    TESSERA_CHECK(Succeeds(tsr_context_create(SmallModel(), &options, &context_)), "saved_context",
                  "there is no context");
  }
  ~KeepingContext() { tsr_status_release(tsr_context_release(context_)); }
  KeepingContext(const KeepingContext&) = delete;
  KeepingContext& operator=(const KeepingContext&) = delete;

  bool Generate(const std::vector<int64_t>& ids) {
    tsr_generate_options options = {};
    options.size = sizeof(options);
    options.max_new_tokens = 2;
    options.sampling = TSR_SAMPLING_OFF;
    const tsr_token_callback pass = [](void*, const tsr_token*) { return 0; };
    return Succeeds(tsr_generate(context_, ids.data(), ids.size(), &options, pass, nullptr));
  }
  std::string Saved() {
    size_t size = 0;
    tsr_status_release(tsr_context_save_memory(context_, nullptr, 0, &size));
    std::string bytes(size, '\0');
    tsr_status_release(tsr_context_save_memory(context_, bytes.data(), bytes.size(), &size));
    return bytes;
  }
  bool Restore(const std::string& bytes) {
    return Succeeds(tsr_context_restore_memory(context_, bytes.data(), bytes.size()));
  }

 private:
  tsr_context* context_ = nullptr;
};

// With the checksum that the file needs: behind a wrong one nothing would be read.
std::string Mended(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("input.safetensors", bytes);
  const auto file = SafetensorsFile::Open(folder.Path("input.safetensors"));
  if (!file.ok()) return std::string(bytes);
  std::string data;
  for (const SafetensorsFile::Entry& entry : file->entries()) {
    const auto view = file->Get(entry.name);
    if (!view.ok()) return std::string(bytes);
    data.append(reinterpret_cast<const char*>(view->data), static_cast<size_t>(view->nbytes));
  }
  SafetensorsFile::Metadata metadata = file->metadata();
  metadata["crc32c"] = Concat(Crc32c(data.data(), data.size()));
  const std::string header = safetensors_internal::FormatHeader(file->entries(), metadata);
  const uint64_t length = header.size();
  std::string mended(sizeof(length), '\0');
  std::memcpy(mended.data(), &length, sizeof(length));
  return mended + header + data;
}

// A restored context can generate further.
bool Run(std::string_view bytes) {
  KeepingContext context;
  if (!context.Restore(Mended(bytes))) return false;
  context.Generate({1, 2, 3, 4});
  return true;
}

std::vector<std::string> Seeds() {
  KeepingContext context;
  std::vector<std::string> seeds = {context.Saved()};
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{1, 2, 3}, {7, 8}}) {
    TESSERA_CHECK(context.Generate(ids), "saved_context", "no text is written");
    seeds.push_back(context.Saved());
  }
  return seeds;
}

const FuzzTargetRegistration registration({.name = "saved_context",
                                           .run = Run,
                                           .seeds = Seeds,
                                           .words = {"__metadata__", "texts", "begin_size", "ids",
                                                     "model", "I64", "F32", "shape",
                                                     "9223372036854775807"}});

}  // namespace
}  // namespace tessera::fuzz
