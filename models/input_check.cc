// SPDX-License-Identifier: Apache-2.0
#include "models/input_check.h"

#include <algorithm>

#include "core/batch_keys.h"
#include "models/family.h"

namespace tessera::models {

Status CheckRange(const std::string& where, const Tensor& t, int64_t limit, int64_t also,
                  const char* meaning) {
  const std::vector<int64_t> values = t.ToVector<int64_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    if ((values[i] >= 0 && values[i] < limit) || values[i] == also) continue;
    const auto columns = static_cast<size_t>(t.ndim() < 2 ? 1 : t.size(-1));
    return InvalidArgument(where, ": ", values[i], " (row ", i / columns, ", position ",
                           i % columns, ") is beyond the model's ", meaning, " of ", limit);
  }
  return OkStatus();
}

Status CheckInputIds(const std::string& source, const Model& model, const Bundle& inputs) {
  if (!inputs.has(keys::kInputIds)) return InvalidArgument(source, ": 'input_ids' is missing");
  const Tensor& ids = inputs.at(keys::kInputIds);
  if (ids.ndim() != 2 || ids.numel() == 0) {
    return InvalidArgument(source, ": 'input_ids' has shape ", ids.shape(),
                           "; it must be [batch, tokens], neither of them 0");
  }
  if (IsFloating(ids.dtype())) {
    return InvalidArgument(source, ": 'input_ids' must hold integers");
  }
  return CheckRange(source + ": 'input_ids'", ids, model.vocab_size(), 0, "vocabulary");
}

namespace {

// Keys are seen or not: a weight in between means nothing to the kernels.
Status CheckMask(const std::string& where, const Tensor& mask) {
  const std::vector<double> values = mask.ToVector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0 || values[i] == 1) continue;
    const auto columns = static_cast<size_t>(mask.size(-1));
    return InvalidArgument(where, ": ", values[i], " (row ", i / columns, ", position ",
                           i % columns, ") is neither 0 nor 1");
  }
  return OkStatus();
}

// 0 positions: no limit.
Status CheckPositions(const std::string& source, const Bundle& inputs, int64_t positions) {
  if (positions == 0) return OkStatus();
  if (inputs.has(keys::kPositionIds)) {
    return CheckRange(source + ": 'position_ids'", inputs.at(keys::kPositionIds), positions, 0,
                      "positions");
  }
  const int64_t tokens = inputs.at(keys::kInputIds).size(1);
  if (tokens <= positions) return OkStatus();
  return InvalidArgument(source, ": 'input_ids' has ", tokens, " tokens a row; the model has ",
                         positions, " positions");
}

}  // namespace

Status CheckTokenInputs(const std::string& source, const Model& model,
                        const std::vector<TensorKey>& like_ids, Bundle* inputs) {
  TESSERA_RETURN_IF_ERROR(CheckInputIds(source, model, *inputs));
  const Shape shape = inputs->at(keys::kInputIds).shape();
  for (const TensorKey& key : like_ids) {
    if (!inputs->has(key)) continue;
    const Tensor& t = inputs->at(key);
    const std::string_view name = key.name();
    if (name == keys::kPositionIds.name() && t.shape() == Shape{1, shape[1]}) {
      inputs->set(key, t.AsStrided(shape, {0, 1}, t.offset()).ContiguousCopy());
    } else if (t.shape() != shape) {
      return InvalidArgument(source, ": '", name, "' has shape ", t.shape(), ", 'input_ids' ",
                             shape);
    }
    if (IsFloating(t.dtype()) && name != keys::kAttentionMask.name()) {
      return InvalidArgument(source, ": '", name, "' must hold integers");
    }
    if (name == keys::kAttentionMask.name()) {
      TESSERA_RETURN_IF_ERROR(CheckMask(Concat(source, ": '", name, "'"), t));
    }
  }
  return CheckPositions(source, *inputs, model.max_positions());
}

Status CheckTextInputs(const std::string& source, const Model& model, Bundle* inputs) {
  TESSERA_RETURN_IF_ERROR(CheckTokenInputs(
      source, model, {keys::kAttentionMask, keys::kPositionIds, keys::kLabels}, inputs));
  if (!inputs->has(keys::kLabels)) return OkStatus();
  return CheckRange(source + ": 'labels'", inputs->at(keys::kLabels), model.vocab_size(), -100,
                    "vocabulary");
}

StatusOr<Bundle> InputsFromNamed(const std::string& source, const Model& model,
                                 const std::vector<Bundle::Entry>& named, int adapter) {
  TESSERA_ASSIGN_OR_RETURN(const Family* const family, FamilyOf(model.config()));
  const nn::BuildContext& build = model.build();
  Bundle inputs;
  for (const auto& [name, t] : named) {
    const auto key = std::find_if(family->inputs.begin(), family->inputs.end(),
                                  [&name = name](const TensorKey& k) { return k.name() == name; });
    if (key == family->inputs.end()) {
      return InvalidArgument(source, ": '", name, "' is no input of ", family->model_type,
                             "; inputs are ", KeyNames(family->inputs).Text());
    }
    if (inputs.has(*key)) return InvalidArgument(source, ": '", name, "' is there twice");
    const DType dtype = IsFloating(t.dtype()) ? build.dtype : DType::kInt64;
    if (!key->Holds(dtype)) {
      return InvalidArgument(source, ": '", name, "' ", key->shape(), " (", key->meaning(),
                             ") must hold ", IsFloating(dtype) ? "integers" : "floats");
    }
    inputs.set(*key, CopyTo(CastCopy(t, dtype), build.device));
  }
  const auto check = family->check_inputs == nullptr ? CheckTextInputs : family->check_inputs;
  TESSERA_RETURN_IF_ERROR(check(source, model, &inputs));
  if (model.prefix(adapter).positions > 0) {
    TESSERA_RETURN_IF_ERROR(
        CheckPositions(Concat(source, ": behind a prefix"), inputs, model.positions_left(adapter)));
  }
  return inputs;
}

}  // namespace tessera::models
