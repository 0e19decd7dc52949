// SPDX-License-Identifier: Apache-2.0
// Writes the texts of a call: in the batch of its context, where that keeps texts, else in one that
// ends with the call.
//
//   TextWriter writer(call);
//   TESSERA_RETURN_IF_ERROR(writer.Add(std::move(request)));
//   while (writer.Step()) {
//   }
//
// However the call ends, none of its texts stays on its way.
#ifndef TESSERA_RUNTIME_TEXT_WRITER_H_
#define TESSERA_RUNTIME_TEXT_WRITER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "models/generation/continuous_batch.h"
#include "runtime/context.h"

namespace tessera::runtime {

class TextWriter {
 public:
  explicit TextWriter(const Call& call);
  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;
  ~TextWriter();

  Status Add(models::TextRequest request);
  // One pass. False: all texts have ended.
  bool Step() { return batch_->Step(); }

 private:
  tsr_context& context_;
  std::unique_ptr<models::ContinuousBatch> own_;
  models::ContinuousBatch* batch_;
  models::ContinuousBatchCounts before_;
  std::vector<int64_t> ids_;  // of the batch
};

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_TEXT_WRITER_H_
