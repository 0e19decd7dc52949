// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/counting_communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/thread_communicator.h"

namespace tessera::dist {
namespace {

// --- Bytes ---------------------------------------------------------------------------------------

// Rings that pass on chunks as the algorithms say, which is what the formulas are to agree with.
class Ring {
 public:
  explicit Ring(int ranks) : sent(ranks, 0), received(ranks, 0) {}
  // n - 1 rounds, in each of which every rank passes one chunk on.
  void Rounds(int64_t chunk) {
    const auto n = static_cast<int>(sent.size());
    for (int round = 1; round < n; ++round) {
      for (int r = 0; r < n; ++r) Pass(r, chunk);
    }
  }
  void PassAround(int root, int64_t bytes) {
    const auto n = static_cast<int>(sent.size());
    for (int step = 0; step + 1 < n; ++step) Pass((root + step) % n, bytes);
  }
  std::vector<int64_t> sent;
  std::vector<int64_t> received;

 private:
  void Pass(int from, int64_t bytes) {
    sent[static_cast<size_t>(from)] += bytes;
    received[(static_cast<size_t>(from) + 1) % received.size()] += bytes;
  }
};

TEST(CountingCommunicatorTest, BytesAreThoseOfARing) {
  for (const int ranks : {1, 2, 3, 5}) {
    const int root = ranks / 2;
    struct Row {
      CommKind kind;
      std::function<void(Communicator&, const Tensor& all, const Tensor& share)> call;
      std::function<void(Ring&, int64_t bytes)> ring;
    };
    const std::vector<Row> rows = {
        {CommKind::kAllReduce,
         [](Communicator& c, const Tensor& all, const Tensor&) {
           c.AllReduce(all, ReduceOp::kSum);
         },
         [&](Ring& ring, int64_t bytes) {  // a reduce-scatter, then an all-gather
           ring.Rounds(bytes / ranks);
           ring.Rounds(bytes / ranks);
         }},
        {CommKind::kReduceScatter,
         [](Communicator& c, const Tensor& all, const Tensor& share) {
           c.ReduceScatter(share, all, ReduceOp::kSum);
         },
         [&](Ring& ring, int64_t bytes) { ring.Rounds(bytes / ranks); }},
        {CommKind::kAllGather,
         [](Communicator& c, const Tensor& all, const Tensor& share) { c.AllGather(all, share); },
         [&](Ring& ring, int64_t bytes) { ring.Rounds(bytes / ranks); }},
        {CommKind::kAllToAll,
         [](Communicator& c, const Tensor& all, const Tensor&) { c.AllToAll(EmptyLike(all), all); },
         [&](Ring& ring, int64_t bytes) { ring.Rounds(bytes / ranks); }},
        {CommKind::kBroadcast,
         [&](Communicator& c, const Tensor& all, const Tensor&) { c.Broadcast(all, root); },
         [&](Ring& ring, int64_t bytes) { ring.PassAround(root, bytes); }},
    };
    for (const Row& row : rows) {
      Ring ring(ranks);
      const int64_t bytes = 60 * 2;  // of 60 elements of two bytes, which all numbers divide
      row.ring(ring, bytes);
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(Concat("rank ", rank, " of ", ranks, ": ", row.kind));
        const auto record = std::make_shared<CommRecord>();
        const auto group = CountingCommunicator(LoneRankCommunicator(rank, ranks, "dp"), record);
        row.call(*group, Empty({60}, DType::kBFloat16, Device::Meta()),
                 Empty({60 / ranks}, DType::kBFloat16, Device::Meta()));
        ASSERT_EQ(record->calls().size(), 1u);
        const CommCall& call = record->calls().front();
        EXPECT_EQ(call.kind, row.kind);
        EXPECT_EQ(call.group, "dp");
        EXPECT_EQ(call.ranks, ranks);
        EXPECT_EQ(call.peer, row.kind == CommKind::kBroadcast ? root : -1);
        EXPECT_EQ(call.payload, bytes);
        EXPECT_EQ(call.sent, ring.sent[static_cast<size_t>(rank)]);
        EXPECT_EQ(call.received, ring.received[static_cast<size_t>(rank)]);
      }
    }
  }
}

TEST(CountingCommunicatorTest, BytesOfUnequalChunks) {
  for (const Device& device : {Device::Cpu(), Device::Meta()}) {
    const auto record = std::make_shared<CommRecord>();
    const auto group = CountingCommunicator(LoneRankCommunicator(1, 3, "ep"), record);
    const auto of = [&](int64_t n) { return Zeros({n}, DType::kBFloat16, device); };
    group->AllToAll(of(9), {2, 4, 3}, of(11), {0, 4, 7})->Wait();
    group->AllToAll(of(5), {5, 0, 0}, of(0), {0, 0, 0})->Wait();  // receives only
    group->AllToAll(of(0), {0, 0, 0}, of(4), {1, 0, 3})->Wait();  // sends only
    const auto call = [](int64_t payload, int64_t sent, int64_t received,
                         const std::vector<int64_t>& sent_to) {
      return CommCall{.kind = CommKind::kAllToAll,
                      .group = "ep",
                      .ranks = 3,
                      .payload = payload,
                      .sent = sent,
                      .received = received,
                      .sent_to = sent_to};
    };
    EXPECT_EQ(record->calls(),
              (std::vector<CommCall>{call(22, 14, 10, {0, 0, 14}), call(0, 0, 10, {0, 0, 0}),
                                     call(8, 8, 0, {2, 0, 6})}));
    EXPECT_THROW(group->AllToAll(of(9), {2, 4, 3}, of(11), {4, 4, 4}), Error);
    EXPECT_EQ(record->calls().size(), 3u);
  }
}

TEST(CountingCommunicatorTest, TotalsAndMessages) {
  const auto record = std::make_shared<CommRecord>();
  const auto group = CountingCommunicator(LoneRankCommunicator(1, 3, "pp"), record);
  const Tensor t = Empty({5}, DType::kFloat32, Device::Meta());
  group->Send(t, 2, 0);
  group->Send(t, 2, 1);
  group->Receive(t, 0, 0);
  group->AllReduce(t, ReduceOp::kSum);  // 20 bytes in three parts: 26 2/3
  group->Barrier();
  EXPECT_EQ(record->totals(CommKind::kSend).calls, 2);
  EXPECT_EQ(record->totals(CommKind::kSend).sent, 40);
  EXPECT_EQ(record->totals(CommKind::kSend).received, 0);
  EXPECT_EQ(record->totals(CommKind::kReceive).received, 20);
  EXPECT_EQ(record->totals(CommKind::kAllReduce).sent, 26);
  EXPECT_EQ(record->totals().calls, 5);
  EXPECT_EQ(record->totals().payload, 80);
  EXPECT_EQ(Concat(record->calls()[2]), "receive of 20 bytes in pp of 3 with rank 0");
  record->Clear();
  EXPECT_EQ(record->totals().calls, 0);
}

TEST(CountingCommunicatorTest, CountsARealGroupAndThoseItIsSplitInto) {
  RunRanks(4, [](const std::shared_ptr<Communicator>& threads) {
    const auto record = std::make_shared<CommRecord>();
    const auto world = CountingCommunicator(threads, record);
    const auto half = world->Split(world->rank() % 2, world->rank(), "half");
    const Tensor t = Full({3}, half->rank() + 1.0);
    half->AllReduce(t, ReduceOp::kSum)->Wait();
    EXPECT_EQ(t.ToVector<float>(), (std::vector<float>{3, 3, 3}));
    ASSERT_EQ(record->calls().size(), 1u);
    EXPECT_EQ(record->calls()[0].group, "half");
    EXPECT_EQ(record->calls()[0].ranks, 2);
    EXPECT_EQ(record->calls()[0].sent, 12);
  });
}

// --- A rank alone --------------------------------------------------------------------------------

// What every rank gets where all bring the same.
TEST(LoneRankTest, DoesAsIfAllRanksBroughtTheSame) {
  const auto run = [](Communicator& group) {
    const int n = group.size();
    std::vector<std::vector<int64_t>> results;
    const auto keep = [&](const Tensor& t) { results.push_back(t.ToVector<int64_t>()); };
    const auto numbers = [](int64_t count) {
      std::vector<int64_t> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(i * i - 3);
      return Tensor::FromVector(values, {count});
    };
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      const Tensor t = numbers(5);
      group.AllReduce(t, op)->Wait();
      keep(t);
      const Tensor share = Empty({2}, DType::kInt64);
      group.ReduceScatter(share, numbers(2 * n), op)->Wait();
      keep(share);
    }
    const Tensor all = Empty({4 * n}, DType::kInt64);
    group.AllGather(all, numbers(4))->Wait();
    keep(all);
    const Tensor chunks = Empty({2 * n}, DType::kInt64);
    group.AllToAll(chunks, numbers(2 * n))->Wait();
    keep(chunks);
    // Every rank sends r + 1 elements to rank r.
    std::vector<int64_t> counts;
    for (int r = 0; r < n; ++r) counts.push_back(r + 1);
    const int64_t each = group.rank() + 1;
    const Tensor some = Empty({each * n}, DType::kInt64);
    group
        .AllToAll(some, std::vector<int64_t>(counts.size(), each), numbers(n * (n + 1) / 2), counts)
        ->Wait();
    keep(some);
    const Tensor told = numbers(3);
    group.Broadcast(told, n - 1)->Wait();
    keep(told);
    group.Barrier();
    return results;
  };
  for (const int ranks : {1, 2, 3}) {
    RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      EXPECT_EQ(run(*LoneRankCommunicator(world->rank(), ranks, "world")), run(*world));
    });
  }
}

// Counts that other ranks alone could bring: the own chunk serves in place of theirs.
TEST(LoneRankTest, RepeatsOrCutsItsOwnChunkForOtherCounts) {
  const auto group = LoneRankCommunicator(1, 3, "ep");
  const Tensor in = Tensor::FromVector<float>({9, 1, 2, 9}, {4});
  const Tensor out = Empty({8});
  group->AllToAll(out, {1, 2, 5}, in, {1, 2, 1})->Wait();
  EXPECT_EQ(out.ToVector<int>(), (std::vector<int>{1, 1, 2, 1, 2, 1, 2, 1}));
  group->AllToAll(out, {3, 0, 5}, in, {2, 0, 2})->Wait();
  EXPECT_EQ(out.ToVector<int>(), std::vector<int>(8, 0));
}

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LoneRankTest, SaysWhatItCannotKnow) {
  const auto group = LoneRankCommunicator(1, 4, "pp");
  const Tensor meta = Empty({2}, DType::kFloat32, Device::Meta());
  group->Receive(meta, 0, 0)->Wait();
  group->Send(Zeros({2}), 0, 0)->Wait();
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::string received = ErrorOf([&] { group->Receive(Zeros({2}), 0, 0); });
  EXPECT_TRUE(contains(received, "rank 1 of group pp is alone")) << received;
  const std::string split = ErrorOf([&] { group->Split(0, 0, "half"); });
  EXPECT_TRUE(contains(split, "'half'")) << split;
  EXPECT_TRUE(contains(ErrorOf([&] { group->Send(meta, 1, 0); }), "not another rank"));
  EXPECT_TRUE(contains(ErrorOf([&] { group->Broadcast(meta, 4); }), "root 4"));
  EXPECT_TRUE(contains(ErrorOf([&] { group->AllGather(meta, meta); }), "is not 4 times"));
  EXPECT_THROW(LoneRankCommunicator(4, 4, "pp"), Error);
}

}  // namespace
}  // namespace tessera::dist
