// SPDX-License-Identifier: Apache-2.0
#include "dist/pipeline/bundle_channel.h"

#include <cstring>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"

namespace tessera::dist {
namespace {

constexpr int64_t kSameLayout = -1;

// Whether the micro-batch has this very tensor under the name.
bool IsOf(const Bundle* own, const std::string& name, const Tensor& t) {
  const Tensor* const mine = own == nullptr ? nullptr : own->FindNamed(name);
  return mine != nullptr && mine->defined() && mine->is_same(t);
}

class Reader {
 public:
  explicit Reader(const std::vector<uint8_t>& bytes) : bytes_(bytes) {}
  bool Take(void* to, size_t count) {
    if (bytes_.size() - at_ < count) return false;
    if (count > 0) std::memcpy(to, bytes_.data() + at_, count);
    at_ += count;
    return true;
  }
  bool ended() const { return at_ == bytes_.size(); }
  size_t left() const { return bytes_.size() - at_; }

 private:
  const std::vector<uint8_t>& bytes_;
  size_t at_ = 0;
};

template <typename T>
void Put(T value, std::vector<uint8_t>* bytes) {
  const auto* from = reinterpret_cast<const uint8_t*>(&value);
  bytes->insert(bytes->end(), from, from + sizeof(value));
}

bool TakeEntry(Reader& in, BundleEntry* entry) {
  uint32_t length = 0;
  uint8_t fields[4] = {};  // source, differentiates, dtype, ndim
  if (!in.Take(&length, sizeof(length)) || length > in.left()) return false;
  entry->name.resize(length);
  if (!in.Take(entry->name.data(), length) || !in.Take(fields, sizeof(fields))) return false;
  if (fields[0] > 2 || fields[1] > 1 || fields[2] >= kNumDTypes || fields[3] > kMaxDims) {
    return false;
  }
  entry->source = static_cast<BundleEntry::Source>(fields[0]);
  entry->differentiates = fields[1] == 1;
  entry->dtype = static_cast<DType>(fields[2]);
  for (int d = 0; d < fields[3]; ++d) {
    int64_t size = 0;
    if (!in.Take(&size, sizeof(size)) || size < 0) return false;
    entry->shape.push_back(size);
  }
  return true;
}

}  // namespace

std::vector<uint8_t> EncodeLayout(const BundleLayout& layout) {
  std::vector<uint8_t> bytes;
  for (const BundleEntry& entry : layout) {
    Put(static_cast<uint32_t>(entry.name.size()), &bytes);
    bytes.insert(bytes.end(), entry.name.begin(), entry.name.end());
    Put(static_cast<uint8_t>(entry.source), &bytes);
    Put(static_cast<uint8_t>(entry.differentiates), &bytes);
    Put(static_cast<uint8_t>(entry.dtype), &bytes);
    Put(static_cast<uint8_t>(entry.shape.ndim()), &bytes);
    for (const int64_t size : entry.shape) Put(size, &bytes);
  }
  return bytes;
}

StatusOr<BundleLayout> DecodeLayout(const std::vector<uint8_t>& bytes) {
  BundleLayout layout;
  Reader in(bytes);
  while (!in.ended()) {
    layout.emplace_back();
    if (!TakeEntry(in, &layout.back())) {
      return DataLoss("a stage's message has a damaged layout, entry ", layout.size() - 1);
    }
  }
  return layout;
}

BundleChannel::BundleChannel(std::shared_ptr<Communicator> group, Device device)
    : group_(std::move(group)), device_(device) {}

void BundleChannel::Post(const Tensor& t, const Address& to) {
  if (t.numel() == 0) return;
  under_way_.push_back({to.peer, to.ticket, group_->Send(t, to.peer, to.tag), t});
  bytes_sent_ += t.nbytes();
}

void BundleChannel::Flush() {
  for (const UnderWay& message : under_way_) message.handle->Wait();
  under_way_.clear();
}

void BundleChannel::Settle(int peer, int64_t before) {
  std::erase_if(under_way_, [&](const UnderWay& message) {
    if (message.peer != peer || message.ticket < 0 || message.ticket >= before) return false;
    message.handle->Wait();
    return true;
  });
}

// --- Layouts -------------------------------------------------------------------------------------

void BundleChannel::SendLayout(const BundleLayout& layout, const Address& to) {
  const auto [last, fresh] = sent_.try_emplace({to.peer, to.lane});
  if (!fresh && last->second == layout) {
    Post(Tensor::FromVector<int64_t>({kSameLayout}, {1}), to);
    return;
  }
  last->second = layout;
  const std::vector<uint8_t> bytes = EncodeLayout(layout);
  Post(Tensor::FromVector<int64_t>({std::ssize(bytes)}, {1}), to);
  Post(Tensor::FromVector<uint8_t>(bytes, {std::ssize(bytes)}), to);
}

BundleLayout BundleChannel::ReceiveLayout(const Address& from) {
  const Tensor length = Empty({1}, DType::kInt64);
  group_->Receive(length, from.peer, from.tag)->Wait();
  const int64_t count = length.data<int64_t>()[0];
  BundleLayout& last = received_[{from.peer, from.lane}];
  if (count == kSameLayout) return last;
  TESSERA_CHECK(count >= 0, "pipeline", "rank ", from.peer, " announces a layout of ", count,
                " bytes");
  const Tensor bytes = Empty({count}, DType::kUInt8);
  if (count > 0) group_->Receive(bytes, from.peer, from.tag)->Wait();
  StatusOr<BundleLayout> layout = DecodeLayout(bytes.ToVector<uint8_t>());
  TESSERA_CHECK(layout.ok(), "pipeline", Message(layout.status()));
  last = *std::move(layout);
  return last;
}

// --- Messages ------------------------------------------------------------------------------------

BundleLayout BundleChannel::Send(const models::Bundle& bundle, const models::Bundle* own,
                                 const Address& to) {
  const NoGrad no_grad;
  BundleLayout layout;
  std::vector<Tensor> travelling;
  for (const auto& [name, t] : bundle.entries()) {
    if (IsLocalName(name)) continue;
    BundleEntry entry{.name = name};
    if (!t.defined()) {
      entry.source = BundleEntry::Source::kUndefined;
    } else if (IsOf(own, name, t)) {
      entry.source = BundleEntry::Source::kOwn;
    } else {
      entry.differentiates = RequiresGrad(t);
      entry.dtype = t.dtype();
      entry.shape = t.shape();
      travelling.push_back(t.Detach().ContiguousCopy());
    }
    layout.push_back(std::move(entry));
  }
  SendLayout(layout, to);
  for (const Tensor& t : travelling) Post(t, to);
  return layout;
}

BundleChannel::Received BundleChannel::Receive(const models::Bundle* own, const Address& from) {
  Received received{.bundle = {}, .layout = ReceiveLayout(from)};
  std::vector<CommHandlePtr> handles;
  for (const BundleEntry& entry : received.layout) {
    Tensor t;
    if (entry.source == BundleEntry::Source::kOwn) {
      const Tensor* const mine = own == nullptr ? nullptr : own->FindNamed(entry.name);
      TESSERA_CHECK(mine != nullptr, "pipeline", "rank ", group_->rank(), " has no '", entry.name,
                    "' in its micro-batch, rank ", from.peer, " has");
      t = *mine;
    } else if (entry.source == BundleEntry::Source::kSent) {
      t = Empty(entry.shape, entry.dtype, device_);
      if (t.numel() > 0) handles.push_back(group_->Receive(t, from.peer, from.tag));
    }
    received.bundle.SetNamed(entry.name, t);
  }
  for (const CommHandlePtr& handle : handles) handle->Wait();
  return received;
}

void BundleChannel::SendTensors(const std::vector<Tensor>& tensors, const Address& to) {
  models::Bundle bundle;
  for (size_t i = 0; i < tensors.size(); ++i) bundle.SetNamed(std::to_string(i), tensors[i]);
  Send(bundle, nullptr, to);
}

std::vector<Tensor> BundleChannel::ReceiveTensors(const Address& from) {
  std::vector<Tensor> tensors;
  const Received received = Receive(nullptr, from);
  for (const auto& [name, t] : received.bundle.entries()) tensors.push_back(t);
  return tensors;
}

models::Bundle BundleChannel::Broadcast(const models::Bundle& bundle, int root) {
  if (group_->size() == 1) return bundle;
  const NoGrad no_grad;
  const bool mine = group_->rank() == root;
  BundleLayout layout;
  if (mine) {
    for (const auto& [name, t] : bundle.entries()) {
      layout.push_back(t.defined()
                           ? BundleEntry{.name = name, .dtype = t.dtype(), .shape = t.shape()}
                           : BundleEntry{.name = name, .source = BundleEntry::Source::kUndefined});
    }
  }
  std::vector<uint8_t> bytes = EncodeLayout(layout);
  const Tensor length = Tensor::FromVector<int64_t>({std::ssize(bytes)}, {1});
  group_->Broadcast(length, root)->Wait();
  const int64_t count = length.data<int64_t>()[0];
  bytes.resize(static_cast<size_t>(count));
  const Tensor text = Tensor::FromVector<uint8_t>(bytes, {count});
  if (count > 0) group_->Broadcast(text, root)->Wait();
  StatusOr<BundleLayout> told = DecodeLayout(text.ToVector<uint8_t>());
  TESSERA_CHECK(told.ok(), "pipeline", Message(told.status()));
  models::Bundle all;
  for (const BundleEntry& entry : *told) {
    Tensor t;
    if (entry.source == BundleEntry::Source::kSent) {
      t = mine ? bundle.FindNamed(entry.name)->Detach().ContiguousCopy()
               : Empty(entry.shape, entry.dtype, device_);
      if (t.numel() > 0) group_->Broadcast(t, root)->Wait();
    }
    all.SetNamed(entry.name, t);
  }
  return all;
}

}  // namespace tessera::dist
