// SPDX-License-Identifier: Apache-2.0
// Folders of small models, for tests of the C library; and its calls, for tests that expect them to
// succeed.
#ifndef TESSERA_TESTS_RUNTIME_MODEL_FOLDERS_H_
#define TESSERA_TESTS_RUNTIME_MODEL_FOLDERS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/bundle.h"
#include "runtime/tessera.h"

namespace tessera {

// GPT-2 with 1024 positions, where the small one has 32.
inline constexpr char kLongGpt[] = "gpt2_long";

// The folder of a model of SmallConfig (tests/inference/small_models.h) with random weights, made
// once per program; or of kLongGpt. GPT-2's has the byte tokenizer, BERT's a WordPiece vocabulary,
// ViT's labels.
const std::string& SmallModelFolder(const std::string& model_type);

// The same as a tar file.
const std::string& SmallModelArchive(const std::string& model_type);

// TSR_OK or the code; the status is released. `message`: set to the status's.
int CodeOf(tsr_status* status, std::string* message = nullptr);

struct ReleaseHandle {
  void operator()(tsr_model* model) const;
  void operator()(tsr_context* context) const;
  void operator()(tsr_named_tensor* tensors) const;
};
using ModelHandle = std::unique_ptr<tsr_model, ReleaseHandle>;
using ContextHandle = std::unique_ptr<tsr_context, ReleaseHandle>;
using TensorsHandle = std::unique_ptr<tsr_named_tensor, ReleaseHandle>;

// nullptr, and a test failure, where it is refused.
ModelHandle LoadHandle(const std::string& path, const tsr_load_options* options = nullptr);
ContextHandle ContextOf(const ModelHandle& model, const tsr_context_options* options = nullptr);

// Tensors as the C library takes them. What they name outlives them.
struct NamedTensors {
  explicit NamedTensors(const Bundle& bundle);

  std::vector<Tensor> kept;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::string> names;
  std::vector<tsr_named_tensor> tensors;
};

// The name, shape and bits of each, a line each.
std::string TextOf(const tsr_named_tensor* tensors, size_t count);
std::string TextOf(const Bundle& bundle);

// What tsr_generate gives for token ids; "" and a test failure where it is refused. Several texts
// are there one after the other.
struct Generated {
  std::vector<int64_t> ids;
  std::string text;
  int end = TSR_END_NONE;
  std::map<int64_t, std::vector<int64_t>> sequences;
};
Generated GenerateWith(tsr_context* context, const std::vector<int64_t>& prompt,
                       const tsr_generate_options* options = nullptr);
// A tsr_token_callback whose `user` is a Generated.
int Collect(void* user, const tsr_token* token);

}  // namespace tessera

#endif  // TESSERA_TESTS_RUNTIME_MODEL_FOLDERS_H_
