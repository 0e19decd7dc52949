// SPDX-License-Identifier: Apache-2.0
#include "runtime/family.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "core/batch_keys.h"
#include "core/execution_context.h"
#include "models/config_reader.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "models/transformer_stack.h"
#include "nlohmann/json.hpp"
#include "nn/key_value_cache.h"
#include "nn/weight.h"
#include "ops/attention/attention.h"
#include "ops/view/view.h"
#include "runtime/border.h"
#include "runtime/handles.h"
#include "runtime/tessera.h"

namespace tessera::runtime {
namespace {

using models::RunOptions;
using nlohmann::json;

// B rows, T tokens, P tokens of a row whose logits are wanted, V vocabulary, H query heads, G
// key/value heads, D head size.

struct Registered : models::Family {
  tsr_family calls = {};  // its texts are not the host's

  std::string name() const { return Concat("family '", model_type, "'"); }
  Status Failed(const Status& status) const {
    return Failure(status.code(), name(), ": ", Message(status));
  }
};

// "a N b M c": messages of one type are one function.
Status Refuse(const char* a, int64_t n, const char* b, int64_t m, const char* c = "") {
  return InvalidArgument(a, n, b, m, c);
}

tsr_status* RunLent(const void* handle, HandleKind kind, Status (*run)(const void* body),
                    const void* body) {
  return AtBorder([&]() -> Status {
    TESSERA_ASSIGN_OR_RETURN(const Pin pin, Pin::Alone(handle, kind));
    return run(body);
  });
}
// Runs `body` on what a callback was lent, which its functions alone change.
template <typename Mine, typename Given, typename Body>
tsr_status* WithLent(const Given* given, HandleKind kind, const Body& body) {
  const auto bound = [&] { return body(*const_cast<Mine*>(static_cast<const Mine*>(given))); };
  using Bound = decltype(bound);
  return RunLent(
      given, kind, [](const void* run) { return (*static_cast<Bound*>(run))(); }, &bound);
}

// ---- Blueprints ---------------------------------------------------------------------------------

struct Declared {
  std::string name;
  Shape shape;
};

struct Blueprint : tsr_blueprint {
  explicit Blueprint(const json& config)
      : tsr_blueprint(),
        json_config(config),
        text(config.dump(-1, ' ', false, json::error_handler_t::replace)) {
    size = sizeof(tsr_blueprint);
    tsr_blueprint::config = text.c_str();
  }

  const json& json_config;
  const std::string text;
  std::vector<Declared> parameters;
};

// Calls `take` with the value of a key, where there is one.
tsr_status* ReadKey(const tsr_blueprint* blueprint, const char* key, Option::Kind kind, void* out,
                    void (*take)(const json& value, void* out)) {
  return WithLent<Blueprint>(blueprint, HandleKind::kBlueprint, [&](Blueprint& mine) -> Status {
    TESSERA_RETURN_IF_ERROR(CheckGiven(key, "key"));
    TESSERA_RETURN_IF_ERROR(CheckGiven(out, "value"));
    const auto found = mine.json_config.find(key);
    if (found == mine.json_config.end() || found->is_null()) return OkStatus();
    const std::string where = Concat("config.json: '", key, "'");
    TESSERA_ASSIGN_OR_RETURN(const json value,
                             Option::Convert(kind, options_internal::NoNotes(), *found, where));
    take(kind == Option::Kind::kText ? *found : value, out);
    return OkStatus();
  });
}

Status Declare(Blueprint& blueprint, const char* name, const int64_t* sizes, size_t rank,
               int64_t* parameter) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(name, "name"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(sizes, "shape"));
  bool fits = *name != '\0' && rank > 0 && rank <= static_cast<size_t>(kMaxDims);
  Shape shape;
  int64_t bytes = sizeof(float);
  for (size_t d = 0; d < rank && fits; ++d) {
    fits = sizes[d] > 0 && !__builtin_mul_overflow(bytes, sizes[d], &bytes);
    shape.push_back(sizes[d]);
  }
  if (!fits) {
    return InvalidArgument("parameter '", name, "': its shape of ", static_cast<int64_t>(rank),
                           " dimensions (1 to 8, each at least 1), or its name, cannot be");
  }
  for (const Declared& other : blueprint.parameters) {
    if (other.name == name) return InvalidArgument("parameter '", name, "' is declared twice");
  }
  blueprint.parameters.push_back({name, shape});
  if (parameter != nullptr) *parameter = std::ssize(blueprint.parameters) - 1;
  return OkStatus();
}

Status CheckBlueprint(const Blueprint& blueprint) {
  const auto most = static_cast<int64_t>(models::kMostRows);
  if (blueprint.vocab_size < 1 || blueprint.vocab_size > most) {
    return Refuse("build set vocab_size to ", blueprint.vocab_size, "; it is 1 to ", most);
  }
  if (blueprint.max_positions < 0 || blueprint.max_positions > most) {
    return Refuse("build set max_positions to ", blueprint.max_positions, "; it is 0 to ", most);
  }
  const auto layers = static_cast<int64_t>(models::kMostLayers);
  if (blueprint.attention_layers >= 0 && blueprint.attention_layers <= layers) return OkStatus();
  return Refuse("build set attention_layers to ", blueprint.attention_layers, "; it is 0 to ",
                layers);
}

// ---- Models -------------------------------------------------------------------------------------

// What `build` made, until it is released.
class OwnState {
 public:
  OwnState(const Registered& family, void* model) : family_(&family), model_(model) {}
  OwnState(OwnState&& other) noexcept
      : family_(std::exchange(other.family_, nullptr)), model_(other.model_) {}
  OwnState& operator=(OwnState&&) = delete;
  ~OwnState() {
    if (family_ == nullptr || family_->calls.release == nullptr) return;
    family_->calls.release(family_->calls.user, model_);
  }
  const Registered& family() const { return *family_; }
  void* get() const { return model_; }

 private:
  const Registered* family_;
  void* model_;
};

struct Pass;

// A model of one block.
class RegisteredModel : public models::Model {
 public:
  RegisteredModel(OwnState state, const Blueprint& blueprint, const nn::BuildContext& build)
      : Model(nn::Scope::Root(build)),
        state_(std::move(state)),
        config_(blueprint.json_config),
        vocab_size_(blueprint.vocab_size),
        max_positions_(blueprint.max_positions),
        attention_layers_(static_cast<int>(blueprint.attention_layers)) {
    for (const Declared& declared : blueprint.parameters) {
      AddParameter(declared.name, Placement::Whole(declared.shape), {});
    }
  }

  int num_blocks() const override { return 1; }
  models::BlockKeys keys_of_block(int /*block*/) const override {
    return {.takes = {keys::kInputIds},
            .may_take = {keys::kPositionIds, keys::kLogitPositions},
            .gives = {keys::kLogits}};
  }
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  const json& config() const override { return config_; }
  int64_t max_positions() const override { return max_positions_; }
  int64_t vocab_size() const override { return vocab_size_; }
  int num_cache_layers() const override { return attention_layers_; }

 private:
  void Forward(Pass* pass) const;

  const OwnState state_;
  const json config_;
  const int64_t vocab_size_;
  const int64_t max_positions_;
  const int attention_layers_;
};

struct Pass : tsr_pass {
  Pass(const RegisteredModel& of, nn::KeyValueCache* kept)
      : tsr_pass(),
        model(of),
        cache(kept),
        values(of.own_parameters().size()),
        attended(static_cast<size_t>(of.num_cache_layers())) {
    size = sizeof(tsr_pass);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = of.own_parameters()[i]->tensor.data<float>();
    }
    parameters = values.data();
  }

  const RegisteredModel& model;
  nn::KeyValueCache* const cache;  // nullptr: none
  std::vector<const float*> values;
  std::vector<bool> attended;  // by layer
  std::vector<Tensor> memory;
};

// The tokens of logit_positions [B, P], or all.
std::vector<int64_t> WantedOf(const Bundle& in, int64_t rows, int64_t tokens) {
  const Tensor asked_BP = in.get(keys::kLogitPositions);
  const int64_t each = asked_BP.defined() ? asked_BP.size(1) : tokens;
  std::vector<int64_t> wanted(static_cast<size_t>(rows * each));
  for (int64_t i = 0; i < rows * each; ++i) {
    const int64_t token = asked_BP.defined() ? asked_BP.data<int64_t>()[i] : i % each;
    wanted[static_cast<size_t>(i)] = i / each * tokens + token;
  }
  return wanted;
}

// The inputs lie in order: they come from models::InputsFromNamed and IncrementalDecoder.
Bundle RegisteredModel::RunBlock(int /*block*/, Bundle in, const RunOptions& options) const {
  if (options.all_hidden_states) {
    throw StatusError(StatusCode::kInvalidArgument, state_.family().name(),
                      "its models give no hidden states");
  }
  const Tensor& ids_BT = in.at(keys::kInputIds);
  Pass pass(*this, options.cache);
  pass.rows = ids_BT.size(0);
  pass.tokens = ids_BT.size(1);
  pass.ids = ids_BT.data<int64_t>();
  if (!in.has(keys::kPositionIds)) {
    in.set(keys::kPositionIds, models::CountingPositions(pass.rows, pass.tokens, Device::Cpu()));
  }
  pass.positions = in.at(keys::kPositionIds).data<int64_t>();
  const std::vector<int64_t> wanted = WantedOf(in, pass.rows, pass.tokens);
  pass.wanted = wanted.data();
  pass.num_wanted = std::ssize(wanted);
  const Tensor logits_BPV = Full({pass.rows, pass.num_wanted / pass.rows, vocab_size_},
                                 std::numeric_limits<double>::quiet_NaN());
  pass.logits = logits_BPV.data<float>();
  Forward(&pass);
  Bundle out;
  out.set(keys::kLogits, logits_BPV);
  return out;
}

void RegisteredModel::Forward(Pass* pass) const {
  const Registered& family = state_.family();
  StopIfCancelled();
  Status status;
  {
    const Lent lent(static_cast<tsr_pass*>(pass), HandleKind::kPass);
    status = FromBorder(family.calls.forward(family.calls.user, state_.get(), pass));
  }
  StopIfCancelled();
  for (size_t i = 0; i < pass->attended.size() && status.ok(); ++i) {
    if (pass->attended[i]) continue;
    status = Refuse("forward did not call tsr_pass_attention for layer ", static_cast<int64_t>(i),
                    " of ", attention_layers_);
  }
  for (int64_t i = 0; i < pass->num_wanted * vocab_size_ && status.ok(); ++i) {
    if (!std::isnan(pass->logits[i])) continue;
    status = Refuse("forward left logit ", i % vocab_size_, " of wanted token ", i / vocab_size_,
                    " unwritten, or made it NaN");
  }
  if (!status.ok()) throw StatusError(status.code(), family.name(), Message(status));
}

StatusOr<std::unique_ptr<models::Model>> Build(const json& config, const nn::BuildContext& build) {
  TESSERA_ASSIGN_OR_RETURN(const models::Family* const found, models::FamilyOf(config));
  const auto& family = static_cast<const Registered&>(*found);
  Status status;
  if (build.dtype != DType::kFloat32) {
    return family.Failed(InvalidArgument("its models compute in float32 alone"));
  }
  if (family.ArchitectureOf(config) == nullptr) {
    return family.Failed(InvalidArgument("'architectures' does not begin with '",
                                         family.architectures[0].name, "'"));
  }
  Blueprint blueprint(config);
  void* model = nullptr;
  {
    const Lent lent(static_cast<tsr_blueprint*>(&blueprint), HandleKind::kBlueprint);
    status = FromBorder(family.calls.build(family.calls.user, &blueprint, &model));
  }
  if (!status.ok()) return family.Failed(status);
  OwnState state(family, model);
  status = CheckBlueprint(blueprint);
  if (!status.ok()) return family.Failed(status);
  return std::make_unique<RegisteredModel>(std::move(state), blueprint, build);
}

// ---- Passes -------------------------------------------------------------------------------------

// So many times so many floats.
Status CheckFloats(int64_t a, int64_t b) {
  constexpr int64_t kMost = int64_t{1} << 45;
  int64_t count = 0;
  if (a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &count) && count < kMost) return OkStatus();
  return Refuse("", a, " times ", b, " floats cannot be");
}

void CopyOut(const Tensor& t, float* out) {
  const Tensor in_order = t.ContiguousCopy();
  std::memcpy(out, in_order.data<float>(), static_cast<size_t>(in_order.nbytes()));
}

// Number `number`, if it has so many dimensions; else nullptr.
const nn::Parameter* ParameterAt(const Pass& pass, int64_t number, int ndim) {
  const auto& all = pass.model.own_parameters();
  if (number < 0 || number >= std::ssize(all)) return nullptr;
  const nn::Parameter* const parameter = all[static_cast<size_t>(number)].get();
  return parameter->tensor.ndim() == ndim ? parameter : nullptr;
}

Status Multiply(const Pass& pass, int64_t weight, int64_t bias, const float* x, int64_t rows,
                float* y) {
  const nn::Parameter* const w = ParameterAt(pass, weight, 2);
  const nn::Parameter* const b = ParameterAt(pass, bias, 1);
  const bool fits =
      w != nullptr && (bias == -1 || (b != nullptr && b->tensor.size(0) == w->tensor.size(0)));
  if (!fits) {
    return Refuse("tsr_pass_linear: weight is ", weight, " and bias ", bias,
                  "; they are numbers of parameters [out, in] and [out], or -1 of no bias");
  }
  TESSERA_RETURN_IF_ERROR(CheckFloats(rows, std::max(w->tensor.size(0), w->tensor.size(1))));
  TESSERA_RETURN_IF_ERROR(CheckGiven(x, "tsr_pass_linear: x"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(y, "tsr_pass_linear: y"));
  if (rows == 0) return OkStatus();
  const Tensor in = Tensor::FromBlob(x, {rows, w->tensor.size(1)});
  CopyOut(nn::Multiply(*w, LinearLayout::kOutIn, in, b == nullptr ? Tensor() : b->tensor), y);
  return OkStatus();
}

Status CheckAttention(const Pass& pass, int64_t layer, const tsr_attention& a) {
  if (layer < 0 || layer >= std::ssize(pass.attended)) {
    return Refuse("tsr_pass_attention: layer ", layer, " of attention_layers ",
                  std::ssize(pass.attended));
  }
  if (pass.attended[static_cast<size_t>(layer)]) {
    return Refuse("tsr_pass_attention: layer ", layer, " of ", std::ssize(pass.attended),
                  " is computed twice in a pass");
  }
  if (a.heads < 1 || a.key_value_heads < 1 || a.heads % a.key_value_heads != 0) {
    return Refuse("tsr_pass_attention: ", a.heads, " heads cannot share ", a.key_value_heads,
                  " of keys and values");
  }
  if (a.head_dim < 1 || a.window < 0 || !std::isfinite(a.scale)) {
    return Refuse("tsr_pass_attention: a head_dim of ", a.head_dim, " with a window of ", a.window,
                  ", or the scale, cannot be");
  }
  TESSERA_RETURN_IF_ERROR(CheckFloats(a.heads, a.head_dim));
  TESSERA_RETURN_IF_ERROR(CheckFloats(pass.rows * pass.tokens, a.heads * a.head_dim));
  const bool given = a.q != nullptr && a.k != nullptr && a.v != nullptr && a.out != nullptr;
  return given ? OkStatus() : InvalidArgument("tsr_attention: q, k, v or out is NULL");
}

Status Attend(Pass& pass, int64_t layer, const tsr_attention* given) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(given, "attention"));
  TESSERA_ASSIGN_OR_RETURN(tsr_attention a, OptionsOf(given, "tsr_attention"));
  if (a.key_value_heads == 0) a.key_value_heads = a.heads;
  TESSERA_RETURN_IF_ERROR(CheckAttention(pass, layer, a));
  const auto by_head = [&](const float* data, int64_t heads) {
    return Transpose(Tensor::FromBlob(data, {pass.rows, pass.tokens, heads, a.head_dim}), 1, 2);
  };
  const Tensor q_BHTD = by_head(a.q, a.heads);
  Tensor k_BGTD = by_head(a.k, a.key_value_heads);
  Tensor v_BGTD = by_head(a.v, a.key_value_heads);
  AttentionOptions options;
  options.scale = a.scale;
  options.causal = true;
  options.window = a.window;
  if (pass.cache != nullptr) {
    const nn::CachedKeys keys = pass.cache->Append(static_cast<int>(layer), k_BGTD, v_BGTD);
    k_BGTD = keys.k;
    v_BGTD = keys.v;
    options.pages = keys.table;
    options.paged_keys = keys.length;
    options.key_length = keys.lengths;
    options.query_offsets = pass.cache->QueryOffsets();
  }
  const Tensor o_BHTD = Attention(q_BHTD, k_BGTD, v_BGTD, options).output;
  CopyOut(Transpose(o_BHTD, 1, 2), a.out);
  pass.attended[static_cast<size_t>(layer)] = true;
  return OkStatus();
}

Status TakeMemory(Pass& pass, size_t count, float** out) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  if (count > size_t{1} << 47) return InvalidArgument("tsr_pass_memory: ", count, " floats");
  pass.memory.push_back(Empty({std::max<int64_t>(static_cast<int64_t>(count), 1)}));
  *out = pass.memory.back().data<float>();
  return OkStatus();
}

// ---- Registration -------------------------------------------------------------------------------

Status Register(const tsr_family* given) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(given, "family"));
  const auto family = std::make_shared<Registered>();
  TESSERA_ASSIGN_OR_RETURN(family->calls, OptionsOf(given, "tsr_family"));
  tsr_family& calls = family->calls;
  TESSERA_RETURN_IF_ERROR(CheckGiven(calls.model_type, "tsr_family: model_type"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(calls.architecture, "tsr_family: architecture"));
  if (*calls.model_type == '\0' || *calls.architecture == '\0') {
    return InvalidArgument("tsr_family: model_type and architecture are not empty");
  }
  family->model_type = std::exchange(calls.model_type, nullptr);
  family->architectures = std::vector<models::Architecture>(1);
  models::Architecture& architecture = family->architectures[0];
  architecture.name = std::exchange(calls.architecture, nullptr);
  architecture.capabilities = std::vector<models::Capability>(1, models::Capability::kNextToken);
  if (calls.build == nullptr || calls.forward == nullptr) {
    return family->Failed(InvalidArgument("build or forward is NULL"));
  }
  family->build = Build;
  family->inputs = {keys::kInputIds, keys::kPositionIds};
  family->splits_layers = false;
  family->has_stages = false;
  return models::AddFamily(family);
}

}  // namespace

Status RefuseRegistered(const json& config, const char* caller, const char* rule) {
  const auto family = models::FamilyOf(config);
  if (!family.ok() || (*family)->build != Build) return OkStatus();
  return InvalidArgument(caller, ": models of family '", (*family)->model_type, "' ", rule);
}

}  // namespace tessera::runtime

using nlohmann::json;
using tessera::Option;
using tessera::runtime::Blueprint;
using tessera::runtime::HandleKind;
using tessera::runtime::Pass;
using tessera::runtime::ReadKey;
using tessera::runtime::WithLent;

tsr_status* tsr_blueprint_integer(const tsr_blueprint* blueprint, const char* key, int64_t* value) {
  return ReadKey(blueprint, key, Option::Kind::kInteger, value, [](const json& read, void* out) {
    *static_cast<int64_t*>(out) = read.get<int64_t>();
  });
}

tsr_status* tsr_blueprint_number(const tsr_blueprint* blueprint, const char* key, double* value) {
  return ReadKey(blueprint, key, Option::Kind::kNumber, value, [](const json& read, void* out) {
    *static_cast<double*>(out) = read.get<double>();
  });
}

tsr_status* tsr_blueprint_flag(const tsr_blueprint* blueprint, const char* key, int* value) {
  return ReadKey(blueprint, key, Option::Kind::kBool, value, [](const json& read, void* out) {
    *static_cast<int*>(out) = read.get<bool>() ? 1 : 0;
  });
}

tsr_status* tsr_blueprint_text(const tsr_blueprint* blueprint, const char* key,
                               const char** value) {
  return ReadKey(blueprint, key, Option::Kind::kText, value, [](const json& read, void* out) {
    // That of the configuration, which outlives the blueprint.
    *static_cast<const char**>(out) = read.get_ref<const std::string&>().c_str();
  });
}

tsr_status* tsr_blueprint_parameter(const tsr_blueprint* blueprint, const char* name,
                                    const int64_t* shape, size_t rank, int64_t* parameter) {
  return WithLent<Blueprint>(blueprint, HandleKind::kBlueprint, [&](Blueprint& mine) {
    return tessera::runtime::Declare(mine, name, shape, rank, parameter);
  });
}

tsr_status* tsr_pass_memory(const tsr_pass* pass, size_t count, float** out) {
  return WithLent<Pass>(pass, HandleKind::kPass,
                        [&](Pass& mine) { return tessera::runtime::TakeMemory(mine, count, out); });
}

tsr_status* tsr_pass_linear(const tsr_pass* pass, int64_t weight, int64_t bias, const float* x,
                            int64_t rows, float* y) {
  return WithLent<Pass>(pass, HandleKind::kPass, [&](Pass& mine) {
    return tessera::runtime::Multiply(mine, weight, bias, x, rows, y);
  });
}

tsr_status* tsr_pass_attention(const tsr_pass* pass, int64_t layer,
                               const tsr_attention* attention) {
  return WithLent<Pass>(pass, HandleKind::kPass, [&](Pass& mine) {
    return tessera::runtime::Attend(mine, layer, attention);
  });
}

tsr_status* tsr_register_family(const tsr_family* family) {
  return tessera::runtime::AtBorder([&] { return tessera::runtime::Register(family); });
}
