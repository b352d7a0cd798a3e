#include <string>

#include "common/steps/child.h"
#include "services/cli/all_in_one/all_in_one.h"
#include "services/gateway/host.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == quench::steps::kChildArgument) {
    return quench::steps::RunAsChild(quench::all_in_one::AllSteps());
  }
  quench::steps::ServerProgram program;
  program.name = "serve";
  program.full_name = "a gateway and its services";
  program.config = "AllInOneConfig";
  program.port = quench::gateway::kDefaultPort;
  program.users_own = true;
  program.has_state = true;
  program.start = quench::all_in_one::Start;
  return quench::steps::ServerMain(argc, argv, program);
}
