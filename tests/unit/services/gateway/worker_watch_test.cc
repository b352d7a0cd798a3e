#include "services/gateway/worker_watch.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway::worker_watch_test {
namespace {

using metrics::Service;
using metrics::WorkerState;
using quench::testing::WaitFor;

class WorkerWatchTest : public ::testing::Test {
 protected:
  double Shown(Service service, WorkerState state) {
    return registry.Get(metrics::kWorkers, service, state).Value();
  }
  metrics::Registry registry;
};

TEST_F(WorkerWatchTest, ShowsWhoServesBeforeThereIsWorkAndWhenThatChanges) {
  std::optional<FakeServices> services(std::in_place);
  ServiceChannels channels = services->Channels();
  rpc::ChannelOptions nobody;
  nobody.address = "127.0.0.1:1";
  channels.quantizer = *rpc::Channel::Open(nobody);
  const WorkerWatch watch(channels, std::chrono::milliseconds(10), &registry);
  EXPECT_TRUE(WaitFor([&] {
    return Shown(Service::kImporter, WorkerState::kReady) == 1 &&
           Shown(Service::kCodegen, WorkerState::kReady) == 1 &&
           Shown(Service::kQuantizer, WorkerState::kLost) == 1;
  }));
  EXPECT_EQ(Shown(Service::kImporter, WorkerState::kLost), 0);
  EXPECT_EQ(Shown(Service::kQuantizer, WorkerState::kReady), 0);
  services.reset();
  EXPECT_TRUE(WaitFor([&] {
    return Shown(Service::kImporter, WorkerState::kLost) == 1 &&
           Shown(Service::kImporter, WorkerState::kReady) == 0;
  }));
  // Nobody said where it is.
  EXPECT_EQ(Shown(Service::kAnalyser, WorkerState::kReady), 0);
  EXPECT_EQ(Shown(Service::kAnalyser, WorkerState::kLost), 0);
}

}  // namespace
}  // namespace quench::gateway::worker_watch_test
