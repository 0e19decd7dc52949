// SPDX-License-Identifier: Apache-2.0
// `tessera forward`: named tensors through a model.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "base/output_files.h"
#include "core/safetensors.h"
#include "models/hub/load_model.h"
#include "models/input_check.h"
#include "models/model.h"
#include "models/model_keys.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/model_gradients.h"
#include "tools/settings.h"
#include "tools/tensor_file.h"

namespace tessera::tools {
namespace {

using models::Bundle;
using models::Model;

struct ForwardFlags : ComputeFlags {
  std::string model;
  std::string inputs;
  std::string outputs;
  std::string grads;
  std::string adapter;
  bool all_hidden_states = false;
  bool overwrite = false;
};

StatusOr<std::vector<Bundle::Entry>> ReadTensors(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  std::vector<Bundle::Entry> tensors;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView view, file.Get(entry.name));
    if (view.shape.size() > static_cast<size_t>(kMaxDims)) {
      return InvalidArgument(path, ": '", entry.name, "' has ", view.shape.size(), " dimensions");
    }
    const Tensor t = Empty(Shape(view.shape), view.dtype);
    if (view.nbytes > 0) std::memcpy(t.raw_data(), view.data, static_cast<size_t>(view.nbytes));
    tensors.emplace_back(entry.name, t);
  }
  return tensors;
}

constexpr char kWriter[] = "tessera forward";

Status RunForward(ForwardFlags flags) {
  flags.outputs = OutputPath(flags.outputs);
  flags.grads = OutputPath(flags.grads);
  const ClaimOptions claim = {
      .reads = {flags.model, flags.inputs, flags.adapter},
      .overwrite = flags.overwrite,
      .is_own = [](const std::string& path) { return IsTensorFileOf(kWriter, path); }};
  std::optional<OutputLock> outputs_lock, grads_lock;
  TESSERA_RETURN_IF_ERROR(ClaimOutput(flags.outputs, claim, &outputs_lock));
  if (!flags.grads.empty()) {
    if (flags.grads == flags.outputs) {
      return InvalidArgument(flags.grads, ": is given as --outputs and as --grads");
    }
    TESSERA_RETURN_IF_ERROR(ClaimOutput(flags.grads, claim, &grads_lock));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string folder, FolderOrArchive(flags.model));
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags));
  models::LoadOptions options = {
      .build = build, .require_weights = true, .map_weights = flags.grads.empty()};
  options.quantize = QuantizeOf(flags);
  if (!flags.adapter.empty()) options.adapters = {flags.adapter};
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, models::LoadModel(folder, options));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Bundle::Entry> tensors, ReadTensors(flags.inputs));
  TESSERA_ASSIGN_OR_RETURN(const Bundle inputs,
                           models::InputsFromNamed(flags.inputs, *model, tensors));
  if (!flags.grads.empty() && !inputs.has(keys::kLabels)) {
    return InvalidArgument(flags.inputs, ": --grads needs 'labels', which give the loss");
  }
  for (const nn::Parameter* p : model->Parameters()) {
    if (flags.grads.empty() || !p->tensor.device().is_meta()) continue;
    return InvalidArgument("--grads: '", p->name, "' is quantised and has no gradient");
  }
  const NoGrad mode(/*enabled=*/!flags.grads.empty());
  const Bundle outputs = model->Run(inputs, {.all_hidden_states = flags.all_hidden_states});
  TESSERA_RETURN_IF_ERROR(WriteTensorFile(flags.outputs, outputs.entries(), kWriter));
  if (flags.grads.empty()) return OkStatus();
  Backward(outputs.at(keys::kLoss));
  return WriteTensorFile(flags.grads, CollectGradients(*model), kWriter);
}

}  // namespace

void AddForwardCommand(CLI::App& app, CommandState& state) {
  using F = ForwardFlags;
  CLI::App* command =
      app.add_subcommand("forward", "Feed named tensors to a model and write what it returns");
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("model", &F::model, kModelHelp, {.type = "MODEL"})
      .Add("inputs", &F::inputs,
           "safetensors file of input_ids and, as wanted, attention_mask, position_ids, labels "
           "(-100 is ignored)",
           {.type = "FILE"})
      .Add("outputs", &F::outputs, "written: logits, last_hidden_state and, with labels, loss",
           {.type = "FILE"})
      .Add("grads", &F::grads, "written: the gradient of the loss for every parameter, by name",
           {.type = "FILE"})
      .Add("adapter", &F::adapter, kAdapterHelp, {.type = "DIR"})
      .Add("all_hidden_states", &F::all_hidden_states,
           "write hidden_states.0 (the embedding's) ... hidden_states.L too, and of an encoder "
           "beside a decoder encoder_hidden_states.0 ...")
      .Add("overwrite", &F::overwrite, kOverwriteHelp)
      .Include<F, ComputeFlags>();
  command->footer(
      "The model is in evaluation mode (no dropout).\n"
      "Example:\n"
      "  tessera forward --model gpt2-folder --inputs in.safetensors --outputs out.safetensors");
  RunWith<F>(command, state, std::move(table),
             {.by_place = {"model"}, .required = {"model", "inputs", "outputs"}},
             [](const CLI::App&, const F& flags) { return RunForward(flags); });
}

}  // namespace tessera::tools
