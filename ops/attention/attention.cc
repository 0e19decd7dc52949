// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention.h"

#include <cmath>

#include "autograd/autograd.h"
#include "ops/attention/attention_kernel.h"
#include "ops/cast/autocast.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

constexpr char kName[] = "attention";

// Elements of a head must be adjacent.
Tensor Adjacent(const Tensor& t) {
  return t.size(-1) <= 1 || t.stride(-1) == 1 ? t.Detach() : t.ContiguousCopy();
}

TESSERA_REGISTER_WORKSPACE(attention_forward, DeviceType::kCuda, DecodePartialBytes);
TESSERA_REGISTER_WORKSPACE(attention_backward, DeviceType::kCuda, AttentionDeltaBytes);

FlashStrides StridesOf(const Tensor& t) { return {t.stride(0), t.stride(1), t.stride(2)}; }

// [B, H, T, D] in memory of [B, T, H, D].
Tensor EmptyHeads(const Tensor& like) {
  const Tensor memory =
      Empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.dtype(), like.device());
  return memory.AsStrided(like.shape(), {memory.stride(0), memory.stride(2), memory.stride(1), 1},
                          0);
}

struct HeadGradients {
  Tensor q, k, v;
};

// Memory for the gradients of q, k and v. Where these are parts of one tensor [B, T, F] and fill
// it, as a packed projection gives them, theirs are parts of one that lies alike: the gradient of
// the whole is then there without a copy (Split of ops/view/view.h).
HeadGradients EmptyHeadGradients(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t d = q.size(3);
  const int64_t row = (q.size(1) + 2 * k.size(1)) * d;
  const bool by_head = q.stride(1) == 3 * d && q.size(1) == k.size(1);  // q, k, v of each head
  const int64_t k_begin = by_head ? d : q.size(1) * d;
  const int64_t v_begin = by_head ? 2 * d : k_begin + k.size(1) * d;
  const Shape strides = {q.size(2) * row, by_head ? 3 * d : d, row, 1};
  const auto lies = [&](const Tensor& t, int64_t begin) {
    return t.storage() == q.storage() && t.size(2) == q.size(2) && t.strides() == strides &&
           t.offset() == q.offset() + begin;
  };
  if (!lies(q, 0) || !lies(k, k_begin) || !lies(v, v_begin)) {
    return {EmptyHeads(q), EmptyHeads(k), EmptyHeads(v)};
  }
  const Tensor whole = Empty({q.size(0), q.size(2), row}, q.dtype(), q.device());
  return {whole.AsStrided(q.shape(), strides, 0), whole.AsStrided(k.shape(), strides, k_begin),
          whole.AsStrided(v.shape(), strides, v_begin)};
}

template <typename T>
const T* DataOrNull(const Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.raw_data()) : nullptr;
}

// The options with every tensor contiguous, as the backward pass sees them again.
AttentionOptions Settled(const AttentionOptions& options) {
  AttentionOptions settled = options;
  for (Tensor AttentionOptions::*member :
       {&AttentionOptions::query_offsets, &AttentionOptions::prefix_length,
        &AttentionOptions::key_length, &AttentionOptions::key_padding,
        &AttentionOptions::query_document, &AttentionOptions::key_document}) {
    if ((settled.*member).defined()) settled.*member = (settled.*member).ContiguousCopy();
  }
  if (settled.bias.defined()) settled.bias = settled.bias.Detach();
  if (settled.pages.defined()) settled.pages = settled.pages.ContiguousCopy();
  return settled;
}

FlashBiasStrides BiasStrides(const Tensor& bias) {
  const auto stride = [&](int d) { return bias.size(d) == 1 ? 0 : bias.stride(d); };
  return {stride(0), stride(1), stride(2), stride(3)};
}

int64_t KeyLength(const Tensor& k, const AttentionOptions& options) {
  return options.pages.defined() ? options.paged_keys : k.size(2);
}

AttentionArgs ArgsOf(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                     const Tensor& lse, const AttentionOptions& options) {
  AttentionArgs args;
  args.batch = q.size(0);
  args.heads = q.size(1);
  args.kv_heads = k.size(1);
  args.q_len = q.size(2);
  args.k_len = KeyLength(k, options);
  if (const Tensor& table = options.pages; table.defined()) {
    args.pages = {.table = static_cast<const int32_t*>(table.raw_data()),
                  .pages_per_row = table.size(1),
                  .page_size = k.size(2)};
  }
  args.head_dim = q.size(3);
  args.dtype = q.dtype();
  args.q = q.raw_data();
  args.k = k.raw_data();
  args.v = v.raw_data();
  args.o = o.raw_data();
  args.lse = lse.raw_data();
  args.q_stride = StridesOf(q);
  args.k_stride = StridesOf(k);
  args.v_stride = StridesOf(v);
  args.o_stride = StridesOf(o);
  args.scale =
      options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(args.head_dim));
  args.softcap = options.softcap;
  args.causal = options.causal;
  args.query_offset = options.query_offset;
  args.window = options.window;
  args.query_offsets = DataOrNull<int32_t>(options.query_offsets);
  args.prefix_length = DataOrNull<int32_t>(options.prefix_length);
  args.key_length = DataOrNull<int32_t>(options.key_length);
  args.key_padding = DataOrNull<uint8_t>(options.key_padding);
  args.query_document = DataOrNull<int32_t>(options.query_document);
  args.key_document = DataOrNull<int32_t>(options.key_document);
  if (options.bias.defined()) {
    args.bias = options.bias.raw_data();
    args.bias_dtype = options.bias.dtype();
    args.bias_stride = BiasStrides(options.bias);
  }
  args.dropout.p = static_cast<float>(options.dropout_p);
  args.dropout.key_hi = options.dropout_key.hi;
  args.dropout.key_lo = options.dropout_key.lo;
  args.dropout.key_stored = options.dropout_key.stored;
  args.dropout.head_begin = options.head_begin;
  args.dropout.heads_total = options.heads_total;
  args.dropout.query_begin = options.query_begin;
  args.dropout.key_begin = options.key_begin;
  args.dropout.q_total = options.queries_total;
  args.dropout.k_total = options.keys_total;
  return args;
}

void CheckOption(const char* name, const Tensor& t, const Shape& shape, const Tensor& q) {
  if (!t.defined()) return;
  const bool bytes = std::string_view(name) == "key_padding";
  const bool dtype_fits =
      bytes ? t.dtype() == DType::kBool || t.dtype() == DType::kUInt8 : t.dtype() == DType::kInt32;
  TESSERA_CHECK(t.shape() == shape && dtype_fits && t.device() == q.device(), kName, name, " is ",
                t, ", needed is ", bytes ? "bool" : "int32", shape);
}

void Check(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const bool fits = q.ndim() == 4 && k.ndim() == 4 && k.shape() == v.shape() &&
                    IsFloating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype() &&
                    q.device() == k.device() && q.device() == v.device() &&
                    (q.size(0) == k.size(0) || options.pages.defined()) && q.size(3) == k.size(3) &&
                    (k.size(1) == 0 ? q.size(1) == 0 : q.size(1) % k.size(1) == 0);
  TESSERA_CHECK(fits, kName, "q ", q, ", k ", k, ", v ", v,
                ": [batch, heads, tokens, head_dim] of one floating dtype and device are needed, k "
                "and v alike, q's heads a multiple of theirs");
  const int64_t b = q.size(0);
  const int64_t keys = KeyLength(k, options);
  if (const Tensor& table = options.pages; table.defined()) {
    CheckOption("pages", table, {b, table.ndim() == 2 ? table.size(1) : 0}, q);
    TESSERA_CHECK(keys >= 0 && keys <= table.size(1) * k.size(2), kName, keys, " keys in pages ",
                  table, " of k ", k);
    TESSERA_CHECK(!AnyRequiresGrad({q, k, v, options.bias}), kName,
                  "keys in pages have no gradient");
  }
  CheckOption("query_offsets", options.query_offsets, {b}, q);
  CheckOption("prefix_length", options.prefix_length, {b}, q);
  CheckOption("key_length", options.key_length, {b}, q);
  CheckOption("key_padding", options.key_padding, {b, keys}, q);
  CheckOption("query_document", options.query_document, {b, q.size(2)}, q);
  CheckOption("key_document", options.key_document, {b, keys}, q);
  TESSERA_CHECK(options.query_document.defined() == options.key_document.defined(), kName,
                "query_document and key_document go together");
  TESSERA_CHECK(options.window >= 0, kName, "a window of ", options.window, " is negative");
  TESSERA_CHECK(options.softcap == 0 || (options.softcap > 0 && !options.bias.defined()), kName,
                "a softcap of ", options.softcap, ": above 0, and without a bias");
  TESSERA_CHECK(options.dropout_p >= 0 && options.dropout_p < 1, kName,
                "dropout_p = ", options.dropout_p, " is not in [0, 1)");
  if (options.bias.defined()) {
    const Shape scores = {b, q.size(1), q.size(2), keys};
    TESSERA_CHECK(
        options.bias.ndim() == 4 && BroadcastShapes(options.bias.shape(), scores, kName) == scores,
        kName, "bias ", options.bias, " does not broadcast to scores of ", scores);
  }
}

}  // namespace

AttentionResult Attention(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v,
                          const AttentionOptions& options) {
  const Tensor q = ForProduct(given_q);
  const Tensor k = ForProduct(given_k);
  const Tensor v = ForProduct(given_v);
  Check(q, k, v, options);
  const AttentionOptions settled = Settled(options);
  const Tensor qa = Adjacent(q);
  const Tensor ka = Adjacent(k);
  const Tensor va = Adjacent(v);
  Tensor o = EmptyHeads(q);
  const Tensor lse =
      Empty({q.size(0), q.size(1), q.size(2)}, AccumulateDType(q.dtype()), q.device());
  attention_forward.Launch(q.device(), ArgsOf(qa, ka, va, o, lse, settled));
  if (AnyRequiresGrad({q, k, v, options.bias})) {
    AttentionOptions masks = settled;
    masks.bias = Tensor();  // saved like the other operands
    Record(
        kName, {q, k, v, options.bias}, {o},
        [masks, q = SavedTensor(qa), k = SavedTensor(ka), v = SavedTensor(va), o = SavedTensor(o),
         lse = SavedTensor(lse), bias = SavedTensor(options.bias)](GradContext& ctx) {
          AttentionOptions again = masks;
          again.bias = bias.Unpack();
          const AttentionGradients grads =
              AttentionBackward(q.Unpack(), k.Unpack(), v.Unpack(), {o.Unpack(), lse.Unpack()},
                                ctx.grad(), again, ctx.needs(3));
          if (ctx.needs(0)) ctx.set(0, grads.q);
          if (ctx.needs(1)) ctx.set(1, grads.k);
          if (ctx.needs(2)) ctx.set(2, grads.v);
          if (!ctx.needs(3)) return;
          const DType dtype = again.bias.dtype();
          ctx.set(3, grads.bias.dtype() == dtype ? grads.bias : CastCopy(grads.bias, dtype));
        });
  }
  return {o, lse};
}

AttentionGradients AttentionBackward(const Tensor& given_q, const Tensor& given_k,
                                     const Tensor& given_v, const AttentionResult& result,
                                     const Tensor& d_output, const AttentionOptions& options,
                                     bool needs_bias) {
  const Tensor q = Adjacent(given_q);
  const Tensor k = Adjacent(given_k);
  const Tensor v = Adjacent(given_v);
  const Tensor grad = Adjacent(d_output);
  const Tensor lse = result.lse.ContiguousCopy();
  const AttentionOptions settled = Settled(options);
  AttentionGradArgs args;
  args.forward = ArgsOf(q, k, v, result.output, lse, settled);
  const auto [dq, dk, dv] = EmptyHeadGradients(q, k, v);
  args.d_o = grad.raw_data();
  args.d_o_stride = StridesOf(grad);
  args.dq = dq.raw_data();
  args.dk = dk.raw_data();
  args.dv = dv.raw_data();
  args.dq_stride = StridesOf(dq);
  args.dk_stride = StridesOf(dk);
  args.dv_stride = StridesOf(dv);
  Tensor dbias;
  if (needs_bias) {
    dbias = Empty(options.bias.shape(), AccumulateDType(q.dtype()), q.device());
    args.dbias = dbias.raw_data();
    args.dbias_stride = BiasStrides(dbias);
  }
  attention_backward.Launch(q.device(), args);
  return {dq, dk, dv, dbias};
}

}  // namespace tessera
