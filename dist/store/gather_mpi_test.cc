// SPDX-License-Identifier: Apache-2.0
// Cut parameters on real ranks: reading one outside of a scope is an error of the rank that reads,
// at once, and the others continue.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dist/comm/mpi_communicator.h"
#include "dist/store/parameter_store.h"
#include "dist/store/zero_init.h"
#include "optim/modules/module_parameters.h"
#include "optim/sgd/sgd.h"

namespace tessera::dist {
namespace {

std::shared_ptr<MpiRuntime> mpi;

class OneWeight : public nn::Module {
 public:
  explicit OneWeight(const nn::BuildContext& build) : Module(nn::Scope::Root(build)) {
    AddParameter("weight", Placement::Whole({5, 3}), nn::Init::Ones());
  }
  const Tensor& weight() const { return own_parameters()[0]->tensor; }
};

std::string Printed(const Tensor& t) {
  std::ostringstream text;
  for (const float value : t.ToVector<float>()) text << value << ' ';
  return text.str();
}

TEST(GatherTest, ARankThatPrintsACutParameterAloneThrowsInsteadOfHanging) {
  const auto world = MpiWorldCommunicator(mpi);
  const ZeroOptions options{.stage = 3};
  nn::BuildContext build;
  CutWhileBuilding(options, {.data = world}, &build);
  OneWeight model(build);
  ParameterStore store(
      model, {{optim::ParametersOf(model)}},
      [](std::vector<optim::ParameterGroup> groups) {
        return std::make_unique<optim::Sgd>(std::move(groups), optim::SgdOptions{});
      },
      {.data = world}, options);
  store.Start();
  EXPECT_EQ(store.forward_is_collective(), world->size() > 1);
  if (world->rank() == world->size() - 1) {
    try {
      Printed(model.weight());
      ADD_FAILURE() << "a cut parameter was read outside of a scope";
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find("parameter 'weight'"), std::string::npos) << message;
      EXPECT_NE(message.find(Concat("not gathered on rank ", world->rank())), std::string::npos)
          << message;
      EXPECT_NE(message.find("ParameterStore::Gather"), std::string::npos) << message;
    }
  }
  {
    const GatheredScope scope = store.Gather();
    EXPECT_EQ(Printed(model.weight()), Printed(Full({5, 3}, 1.0)));
  }
  EXPECT_THROW(Printed(model.weight()), Error);
  world->Barrier();
}

}  // namespace

int RunTests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  auto started = MpiRuntime::Start({});
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", Message(started.status()).c_str());
    return 1;
  }
  mpi = *std::move(started);
  const int result = RUN_ALL_TESTS();
  mpi.reset();
  return result;
}

}  // namespace tessera::dist

int main(int argc, char** argv) { return tessera::dist::RunTests(argc, argv); }
