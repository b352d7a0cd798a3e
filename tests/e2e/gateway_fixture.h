// A `quench serve` of its own for each test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/quench_process.h"
#include "tests/support/background.h"

namespace quench::testing {

class GatewayTest : public ::testing::Test {
 protected:
  GatewayTest() { Serve(); }

  void Serve() { Serve({QUENCH_BINARY, "serve"}, {}); }
  // A server whose steps fail as `variables` say: unlucky_serve.cc.
  void ServeUnlucky(const std::vector<std::string>& variables) {
    Serve({UNLUCKY_SERVE}, variables);
  }
  void Serve(std::vector<std::string> command, const std::vector<std::string>& variables) {
    command.insert(command.end(), {"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
                                   "--state-dir", work_.path("state").string()});
    server_ = std::make_unique<Background>(command, work_.path("log" + std::to_string(++servers_)),
                                           variables);
    ASSERT_TRUE(server_->WaitForLog("gateway serves on ")) << server_->Log();
    ASSERT_TRUE(server_->WaitForLog("blobs in ")) << server_->Log();
    address_ = server_->FromLog("gateway serves on ");
  }
  // Runs `quench` with this gateway.
  Outcome Run(std::vector<std::string> arguments, const std::string& interrupt_when = "") {
    arguments.insert(arguments.end(), {"--gateway", address_});
    return work_.RunProgram(QUENCH_REMOTE_BINARY, arguments, interrupt_when);
  }
  nlohmann::json List() {
    const Outcome listed = Run({"workflow", "list", "--format", "json"});
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    return nlohmann::json::parse(listed.out).value("workflows", nlohmann::json::array());
  }

  const Workspace work_{QUENCH_RELEASE_BINARY};
  int servers_ = 0;
  std::unique_ptr<Background> server_;
  std::string address_;
};

}  // namespace quench::testing
