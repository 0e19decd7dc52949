// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/ring_attention.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/cast/cast.h"
#include "ops/collective/sequence_runs.h"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

constexpr char kName[] = "ring_attention";

// A run of the whole sequence, and where it begins in its rank's share.
struct Part {
  int64_t begin;
  int64_t count;
  int64_t place;
  int64_t last() const { return begin + count - 1; }
};

std::vector<Part> PartsOf(int64_t length, const Group& group, int rank) {
  std::vector<Part> parts;
  int64_t place = 0;
  for (const SequenceRun& run : SequenceRuns(length, group->size(), rank)) {
    if (run.count > 0) parts.push_back({run.begin, run.count, place});
    place += run.count;
  }
  return parts;
}

int64_t TokensOf(int64_t length, const Group& group, int rank) {
  return RunTokens(SequenceRuns(length, group->size(), rank));
}

// Of [B, H, T, ...].
Tensor Tokens(const Tensor& x, const Part& part) { return Slice(x, 2, part.place, part.count); }

// Whether a query of `q` may see a key of `k`, as far as places tell.
bool Sees(const AttentionOptions& whole, const Part& q, const Part& k) {
  const int64_t first = q.begin + whole.query_offset;  // the queries' places
  const int64_t last = q.last() + whole.query_offset;
  const bool passed = whole.window > 0 && first - k.last() >= whole.window;
  const bool ahead = whole.window > 0 && !whole.causal && k.begin - last >= whole.window;
  if (passed || ahead) return false;
  return !whole.causal || whole.prefix_length.defined() || k.begin <= last;
}

// The options of some queries and some keys. `bias` is this rank's, by queries of its share.
AttentionOptions OptionsOf(const AttentionOptions& whole, const Tensor& bias, const Part& q,
                           const Part& k, const SequenceRing& ring) {
  AttentionOptions part = whole;
  part.query_offset = whole.query_offset + q.begin - k.begin;
  if (whole.prefix_length.defined()) {
    const Tensor wide = CastCopy(whole.prefix_length, DType::kInt64);
    part.prefix_length = CastCopy(Add(wide, static_cast<double>(-k.begin)), DType::kInt32);
  }
  const auto take = [](Tensor* t, const Part& of) {
    if (t->defined()) *t = Slice(*t, 1, of.begin, of.count);
  };
  take(&part.key_padding, k);
  take(&part.query_document, q);
  take(&part.key_document, k);
  if (bias.defined()) {
    part.bias = bias;
    if (bias.size(2) > 1) part.bias = Slice(part.bias, 2, q.place, q.count);
    if (bias.size(3) > 1) part.bias = Slice(part.bias, 3, k.begin, k.count);
  }
  part.query_begin = q.begin;
  part.key_begin = k.begin;
  part.queries_total = ring.queries;
  part.keys_total = ring.keys;
  return part;
}

// --- The ring ------------------------------------------------------------------------------------

// A tensor on its way to the next rank, and the one that comes from the rank before.
class Shift {
 public:
  Shift(const Group& group, Tensor sent, const Shape& shape) : sent_(std::move(sent)) {
    const int ranks = group->size();
    const auto next = static_cast<size_t>((group->rank() + 1) % ranks);
    const auto before = static_cast<size_t>((group->rank() + ranks - 1) % ranks);
    received_ = Empty(shape, sent_.dtype(), sent_.device());
    std::vector<int64_t> send(static_cast<size_t>(ranks), 0);
    std::vector<int64_t> receive(static_cast<size_t>(ranks), 0);
    send[next] = sent_.numel();
    receive[before] = received_.numel();
    handle_ = group->AllToAll(received_, receive, sent_, send);
  }
  Tensor Wait() {
    handle_->Wait();
    return received_;
  }

 private:
  Tensor sent_;
  Tensor received_;
  CommHandlePtr handle_;
};

// Whose keys this rank has in a turn.
int OwnerIn(int turn, const Group& group) {
  return (group->rank() - turn + group->size()) % group->size();
}

Shape PairShape(const Tensor& k, int64_t tokens) {
  return {2, k.size(0), k.size(1), tokens, k.size(3)};
}

// k and v as one tensor [2, B, G, S, D], which travels.
Tensor Pair(const Tensor& k, const Tensor& v) {
  const Tensor pair = Empty(PairShape(k, k.size(2)), k.dtype(), k.device());
  CopyInto(Select(pair, 0, 0), k);
  CopyInto(Select(pair, 0, 1), v);
  return pair;
}

// Calls see(owner, k, v) with the keys and values of every rank in turn.
template <typename See>
void GoRound(const Tensor& k, const Tensor& v, const SequenceRing& ring, const See& see) {
  const Group& group = ring.group;
  Tensor pair = Pair(k, v);
  for (int turn = 0; turn < group->size(); ++turn) {
    std::optional<Shift> next;
    if (turn + 1 < group->size()) {
      const int64_t tokens = TokensOf(ring.keys, group, OwnerIn(turn + 1, group));
      next.emplace(group, pair, PairShape(k, tokens));
    }
    see(OwnerIn(turn, group), Select(pair, 0, 0), Select(pair, 0, 1));
    if (next) pair = next->Wait();
  }
}

// --- Forward -------------------------------------------------------------------------------------

// What is found of some queries' attention over more and more keys, in the type that is computed
// in.
void Merge(const AttentionResult& found, AttentionResult* sum) {
  const Tensor output = Cast(found.output, found.lse.dtype());
  if (!sum->output.defined()) {
    *sum = {output, found.lse};
    return;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor greatest = Maximum(sum->lse, found.lse);
  // Of queries that have seen no key yet.
  const Tensor none = Compare(greatest, -kInfinity, Comparison::kEqual);
  const Tensor top = Where(none, 0.0, greatest);
  const Tensor before = Exp(Sub(sum->lse, top));
  const Tensor more = Exp(Sub(found.lse, top));
  const Tensor both = Add(before, more);  // at least 1, or 0 where there is no key
  const Tensor divisor = Clamp(both, 1.0, kInfinity);
  const auto share = [&](const Tensor& part, const Tensor& weight) {
    return Mul(part, Unsqueeze(Div(weight, divisor), 3));
  };
  *sum = {Add(share(sum->output, before), share(output, more)), Add(top, Log(both))};
}

// [B, H, T, D] in memory of [B, T, H, D], as Attention gives it.
Tensor EmptyOutput(const Tensor& q) {
  return Transpose(Empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.dtype(), q.device()), 1,
                   2);
}

AttentionResult RingForward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias,
                            const AttentionOptions& whole, const SequenceRing& ring) {
  const std::vector<Part> queries = PartsOf(ring.queries, ring.group, ring.group->rank());
  std::vector<AttentionResult> sums(queries.size());
  GoRound(k, v, ring, [&](int owner, const Tensor& keys, const Tensor& values) {
    for (const Part& of_k : PartsOf(ring.keys, ring.group, owner)) {
      for (size_t i = 0; i < queries.size(); ++i) {
        if (!Sees(whole, queries[i], of_k)) continue;
        Merge(Attention(Tokens(q, queries[i]), Tokens(keys, of_k), Tokens(values, of_k),
                        OptionsOf(whole, bias, queries[i], of_k, ring)),
              &sums[i]);
      }
    }
  });
  const DType wide = AccumulateDType(q.dtype());
  AttentionResult result = {EmptyOutput(q),
                            Empty({q.size(0), q.size(1), q.size(2)}, wide, q.device())};
  for (size_t i = 0; i < queries.size(); ++i) {
    const Tensor output = Tokens(result.output, queries[i]);
    const Tensor lse = Tokens(result.lse, queries[i]);
    if (sums[i].output.defined()) {
      CopyInto(output, Cast(sums[i].output, q.dtype()));
      CopyInto(lse, sums[i].lse);
    } else {  // queries that see no key
      Fill(output, 0.0);
      Fill(lse, -std::numeric_limits<double>::infinity());
    }
  }
  return result;
}

// --- Backward ------------------------------------------------------------------------------------

// In the type that is computed in, zeros at first.
class Sum {
 public:
  Sum(const Shape& shape, const Tensor& like)
      : sum_(Zeros(shape, AccumulateDType(like.dtype()), like.device())) {}
  void Add(const Tensor& part, const Tensor& more) const {
    AddInto(part, more.dtype() == part.dtype() ? more : CastCopy(more, part.dtype()));
  }
  const Tensor& all() const { return sum_; }

 private:
  Tensor sum_;
};

AttentionGradients RingBackward(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& bias, const AttentionResult& result,
                                const Tensor& d_output, const AttentionOptions& whole,
                                const SequenceRing& ring, bool needs_bias) {
  const Group& group = ring.group;
  const std::vector<Part> queries = PartsOf(ring.queries, group, group->rank());
  const Sum dq(q.shape(), q);
  std::optional<Sum> dbias;
  if (needs_bias) dbias.emplace(bias.shape(), q);
  int turn = 0;
  std::optional<Shift> coming;  // the sums of these keys' gradients by the ranks before
  GoRound(k, v, ring, [&](int owner, const Tensor& keys, const Tensor& values) {
    const Sum pair(PairShape(k, keys.size(2)), q);
    for (const Part& of_k : PartsOf(ring.keys, group, owner)) {
      for (const Part& of_q : queries) {
        if (!Sees(whole, of_q, of_k)) continue;
        const AttentionOptions options = OptionsOf(whole, bias, of_q, of_k, ring);
        const AttentionGradients found =
            AttentionBackward(Tokens(q, of_q), Tokens(keys, of_k), Tokens(values, of_k),
                              {Tokens(result.output, of_q), Tokens(result.lse, of_q)},
                              Tokens(d_output, of_q), options, needs_bias);
        dq.Add(Tokens(dq.all(), of_q), found.q);
        pair.Add(Tokens(Select(pair.all(), 0, 0), of_k), found.k);
        pair.Add(Tokens(Select(pair.all(), 0, 1), of_k), found.v);
        if (!needs_bias) continue;
        Tensor part = dbias->all();
        if (part.size(2) > 1) part = Slice(part, 2, of_q.place, of_q.count);
        if (part.size(3) > 1) part = Slice(part, 3, of_k.begin, of_k.count);
        dbias->Add(part, found.bias);
      }
    }
    if (coming) AddInto(pair.all(), coming->Wait());
    const int64_t tokens = TokensOf(ring.keys, group, OwnerIn(++turn, group));
    coming.emplace(group, pair.all(), PairShape(k, tokens));
  });
  const Tensor home = coming->Wait();
  return {CastCopy(dq.all(), q.dtype()), CastCopy(Select(home, 0, 0), k.dtype()),
          CastCopy(Select(home, 0, 1), v.dtype()), dbias ? dbias->all() : Tensor()};
}

void Check(const Tensor& q, const Tensor& k, const AttentionOptions& options,
           const SequenceRing& ring) {
  TESSERA_CHECK(
      !options.pages.defined() && !options.key_length.defined() && !options.query_offsets.defined(),
      kName, "pages, key_length and query_offsets are of decoding, by one rank");
  const auto fits = [&](const Tensor& x, int64_t length) {
    return x.ndim() == 4 && x.size(2) == TokensOf(length, ring.group, ring.group->rank());
  };
  TESSERA_CHECK(fits(q, ring.queries) && fits(k, ring.keys), kName, "q ", q, " and k ", k,
                " are not the share of rank ", ring.group->rank(), " of ", ring.queries,
                " queries and ", ring.keys, " keys over ", ring.group->size(), " ranks");
  const auto whole = [&](const char* name, const Tensor& t, int64_t length) {
    TESSERA_CHECK(!t.defined() || t.shape() == Shape({q.size(0), length}), kName, name, " is ", t,
                  ", needed are all tokens, ", Shape({q.size(0), length}));
  };
  whole("key_padding", options.key_padding, ring.keys);
  whole("query_document", options.query_document, ring.queries);
  whole("key_document", options.key_document, ring.keys);
}

}  // namespace

AttentionResult RingAttention(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v,
                              const AttentionOptions& options, const SequenceRing& ring) {
  if (ring.group == nullptr || ring.group->size() == 1) {
    return Attention(given_q, given_k, given_v, options);
  }
  Check(given_q, given_k, options, ring);
  const Tensor q = ForProduct(given_q);
  const Tensor k = ForProduct(given_k);
  const Tensor v = ForProduct(given_v);
  AttentionOptions whole = options;
  whole.bias = Tensor();  // saved like the other operands
  AttentionResult result;
  {
    const NoGrad no_grad;
    result = RingForward(q.Detach(), k.Detach(), v.Detach(), options.bias, whole, ring);
  }
  if (AnyRequiresGrad({q, k, v, options.bias})) {
    Record(kName, {q, k, v, options.bias}, {result.output},
           [whole, ring, q = SavedTensor(q.Detach()), k = SavedTensor(k.Detach()),
            v = SavedTensor(v.Detach()), o = SavedTensor(result.output),
            lse = SavedTensor(result.lse), bias = SavedTensor(options.bias)](GradContext& ctx) {
             const NoGrad no_grad;
             const Tensor saved_bias = bias.Unpack();
             const AttentionGradients grads =
                 RingBackward(q.Unpack(), k.Unpack(), v.Unpack(), saved_bias,
                              {o.Unpack(), lse.Unpack()}, ctx.grad(), whole, ring, ctx.needs(3));
             if (ctx.needs(0)) ctx.set(0, grads.q);
             if (ctx.needs(1)) ctx.set(1, grads.k);
             if (ctx.needs(2)) ctx.set(2, grads.v);
             if (ctx.needs(3)) ctx.set(3, Cast(grads.bias, saved_bias.dtype()));
           });
  }
  return result;
}

}  // namespace tessera
