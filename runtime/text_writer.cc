// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_writer.h"

#include <utility>

namespace tessera::runtime {

TextWriter::TextWriter(const Call& call) : context_(call.context()) {
  if (context_.options.kept_texts == 0) {
    own_ = MakeBatch(call.model(), context_.options);
  } else if (context_.kept == nullptr) {
    context_.kept = MakeBatch(call.model(), context_.options);
  }
  batch_ = own_ != nullptr ? own_.get() : context_.kept.get();
  before_ = batch_->counts();
}

TextWriter::~TextWriter() {
  try {
    const models::ContinuousBatchCounts now = batch_->counts();
    context_.counts.tokens_read += now.tokens_read - before_.tokens_read;
    context_.counts.tokens_taken += now.tokens_taken - before_.tokens_taken;
    context_.counts.tokens_made += now.tokens_made - before_.tokens_made;
    if (own_ != nullptr) return;
    for (const int64_t id : ids_) batch_->Cancel(id);
  } catch (...) {
    // There is no memory to put the texts in order: they are forgotten.
    context_.kept = nullptr;
  }
}

Status TextWriter::Add(models::TextRequest request) {
  ids_.reserve(ids_.size() + 1);
  TESSERA_ASSIGN_OR_RETURN(const int64_t id, batch_->Add(std::move(request)));
  ids_.push_back(id);
  return OkStatus();
}

}  // namespace tessera::runtime
