// SPDX-License-Identifier: Apache-2.0
// A model family, as it declares itself: how it is recognised and built, what its architectures are
// good for, how its texts look. One registration per family, in its folder:
//
//   Family MakeFamily() { return {.model_type = "gpt2", ...}; }
//   const FamilyRegistration registration(MakeFamily);
//
// Then
//
//   TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, BuildModel(config_json, build));
//   TESSERA_ASSIGN_OR_RETURN(const Family* family, FamilyOf(config_json));
//   if (family->With(Capability::kMaskedTokens) != nullptr) ...
//
// Code above the models asks for a capability, never for a name.
#ifndef TESSERA_MODELS_FAMILY_H_
#define TESSERA_MODELS_FAMILY_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "models/model.h"
#include "models/text_format.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/module.h"

namespace tessera::models {

// What a model's loss is of.
enum class Capability {
  kNextToken,       // every token, from those before it
  kMaskedTokens,    // tokens that a mask hides, from both sides
  kBlanks,          // what fills blanks of a text, token by token (TextConventions::blanks)
  kChoices,         // which candidate fills a blank (TextFormat::ClozeInputs)
  kAnswers,         // answers to prompts (TextConventions::conversation)
  kTargetText,      // a text, from another one that an encoder reads
  kCorruptedSpans,  // spans taken out of what the encoder reads (TextConventions::sentinel)
  kTextLabels,      // labels or scores of texts
  kImageLabels,     // labels of pictures
};

// A class of the family by Hugging Face's name, and what it does.
struct Architecture {
  std::string name;  // Hugging Face's class, as "architectures" of config.json has it
  std::vector<Capability> capabilities;

  bool Does(Capability capability) const;
};

// A model by a name of its own: a configuration without weights.
struct Preset {
  std::string name;
  std::string tokenizer;  // what `tessera train` takes when none is given: "" or "byte"
  JsonMember config;
};

// The configuration of a preset: `constants`, an object of JSON, and numbers of this size. A text
// is much smaller than the code that builds the same object.
nlohmann::json PresetConfig(const char* constants,
                            std::initializer_list<std::pair<const char*, int64_t>> sizes = {});

// A parameter under another name, in a file.
struct EntryCopy {
  std::string name;
  std::string of;  // the parameter
};

// Where a family takes trained keys and values before its tokens (models/hub/prefix_adapter.h).
struct PrefixPlace {
  std::string layers_under = "";  // what the names of the self-attention layers begin with
  // Tokens stand at the positions behind the prefix; false: as without it.
  bool takes_positions = true;
};

struct Family {
  std::string model_type;  // config.json's "model_type"
  // Whether a configuration of that type is this family's, where two families go by it; nullptr:
  // those of no other are.
  bool (*describes)(const nlohmann::json& config) = nullptr;
  // What a configuration without "architectures" is comes first.
  std::vector<Architecture> architectures = {};
  std::vector<Preset> presets = {};
  StatusOr<std::unique_ptr<Model>> (*build)(const nlohmann::json& config,
                                            const nn::BuildContext& context) = nullptr;
  // Names the Hub's files use for a parameter of ours, tried in order after the name itself;
  // nullptr: none.
  std::vector<std::string> (*other_names)(const std::string& parameter) = nullptr;
  // What transformers calls a parameter of ours in its models, in version 4 or 5: adapters know
  // modules by these names (models/hub/adapter.h). nullptr: by its name and other_names.
  std::vector<std::string> (*names_in_model)(const std::string& parameter, int version) = nullptr;
  // Entries of the Hub's files that are no parameters (buffers) and are passed over; nullptr: none.
  bool (*ignored_entry)(const std::string& name) = nullptr;
  // Of two entries for one parameter that differ, whether this is the one that counts; nullptr, or
  // none of them: they are refused.
  bool (*overrides)(const std::string& entry) = nullptr;
  // Changes a configuration to that of the same model whose parameters are all its own, for files
  // in which those that it ties differ; nullptr: the family has no such model.
  void (*untie)(nlohmann::json* config) = nullptr;
  // Where transformers 4 scales what a tied head is fed, and no other's: makes a configuration one
  // of a head that is fed nothing scaled, and returns what its weight is multiplied by; nullptr:
  // none is.
  double (*scale_of_head)(nlohmann::json* config) = nullptr;
  // The other way round, where what a configuration does not tie is tied if the files have both and
  // they are equal; nullptr: the configuration's word counts.
  void (*tie)(nlohmann::json* config) = nullptr;
  // Makes a configuration of a model without a head one without a pooler, for files that have none;
  // nullptr: there is no pooler.
  void (*leave_out_pooler)(nlohmann::json* config) = nullptr;
  // Makes a configuration one of a model without a language model's head, for files of a bare
  // decoder ("LlamaModel") that have none; nullptr: there is always one.
  void (*leave_out_lm_head)(nlohmann::json* config) = nullptr;
  // What a saved folder holds besides the parameters, so that other programs take it for the same
  // model; may change the configuration that is saved. nullptr: nothing.
  std::vector<EntryCopy> (*copies)(nlohmann::json* config) = nullptr;
  // What a file of inputs may hold (the `forward` command): those whose values `check_inputs`
  // checks.
  std::vector<TensorKey> inputs = {};
  // Whether those fit the model; `source` begins the message. nullptr: models/input_check.h's
  // CheckTextInputs.
  Status (*check_inputs)(const std::string& source, const Model& model, Bundle* inputs) = nullptr;
  // Whether an entry of the Hub's files, or a parameter, belongs to a head rather than to what
  // heads stand on. Entries of heads that a model does not have are passed over; a head that is
  // missing, or of another shape, may be initialised afresh when that is asked for.
  bool (*is_head)(const std::string& name) = nullptr;
  // Linear layers that an adapter changes where it names none (models/hub/adapter.h), by the ends
  // of their names; PEFT has the same.
  std::vector<std::string> adapter_targets = {};
  // nullopt: it takes no prefix.
  std::optional<PrefixPlace> prefix = std::nullopt;
  TextConventions texts = {};
  // Whether its blocks share a sequence out over tensor-parallel ranks when they are built with
  // nn::BuildContext::sequence_parallel: block 0 ends with ScatterToGroup, and contexts say how
  // long the whole is (ContextFor). BuildModel refuses that build for others.
  bool shares_sequences = false;
  // Whether its layers are split over tensor-parallel ranks, and whether its blocks can be run on
  // the stages of a pipeline. Where not, BuildModel refuses tp and pp by name. (Context parallelism
  // is Model::cuts_sequences, expert parallelism the parameters of experts; the trainer refuses cp
  // and ep for models without.)
  bool splits_layers = true;
  bool has_stages = true;

  // Whether transformers' Trainer (4.57) tells these models the number of a step's targets
  // (`num_items_in_batch`), so that a step's loss is the mean over them. Of others it is the mean
  // of the means of micro-batches.
  bool loss_takes_num_items = false;

  // The first architecture that does it; nullptr: none.
  const Architecture* With(Capability capability) const;
  // The one that a configuration of this family names: the first where it names none; nullptr for a
  // name that is not listed.
  const Architecture* ArchitectureOf(const nlohmann::json& config) const;
};

// Every family that is linked in. Throws Error where two have one model_type and nothing to tell
// them apart, or two presets one name.
const std::vector<Family>& Families();
const Preset* FindPreset(std::string_view name);
// That of a model_type; of several the one without `describes`.
const Family* FindFamily(std::string_view model_type);
// Adds one that is not linked in, for the rest of the program. AlreadyExists for a model_type that
// there is. Thread-safe, and so is finding it.
Status AddFamily(std::shared_ptr<const Family> family);
// Of a config.json; InvalidArgument for one without a known "model_type".
StatusOr<const Family*> FamilyOf(const nlohmann::json& config);

// Whether it writes text token by token (models/generation/generate.h): it keeps keys and values,
// or its architecture does kNextToken.
bool Generates(const Model& model);

// Sets "tie_word_embeddings": Family::untie where no other key hangs on it.
void UntieWordEmbeddings(nlohmann::json* config);

// Builds the model that a config.json describes: a json, or {{"model_type", "gpt2"}, {"n_layer",
// 2}}. Errors name the key.
StatusOr<std::unique_ptr<Model>> BuildModel(const JsonMember& config,
                                            const nn::BuildContext& context);

// How a family adds itself. It is made when the first is asked for: what runs before main, or while
// a host loads a library, could not report a failure.
class FamilyRegistration {
 public:
  using Make = Family (*)();
  explicit FamilyRegistration(Make make);

 private:
  friend std::vector<Family> MakeFamilies();
  const Make make_;
  const FamilyRegistration* const before_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_FAMILY_H_
