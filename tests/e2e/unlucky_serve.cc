// `quench-serve` whose steps crash or hang where their request contains what UNLUCKY_CRASH or
// UNLUCKY_HANG says: the faults of compilers, on demand, and nothing of it in what is shipped.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "common/steps/child.h"
#include "services/cli/all_in_one/all_in_one.h"
#include "services/gateway/host.h"

namespace {

bool Asked(const char* variable, const std::string& request) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' && request.find(text) != std::string::npos;
}

// Steps have an environment of their own: what this server was told is read where it stands, before the
// sandbox closes that.
void ListenToServer() {
  std::ifstream environment("/proc/" + std::to_string(::getppid()) + "/environ");
  for (std::string entry; std::getline(environment, entry, '\0');) {
    const size_t equals = entry.find('=');
    if (entry.starts_with("UNLUCKY_") && equals != std::string::npos)
      ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
}

std::vector<quench::steps::Step> UnluckySteps() {
  std::vector<quench::steps::Step> steps = quench::all_in_one::AllSteps();
  for (quench::steps::Step& step : steps) {
    step.run = [run = std::move(step.run)](const std::string& request, const auto& place,
                                           const auto& context) {
      if (Asked("UNLUCKY_CRASH", request)) (void)std::raise(SIGSEGV);
      while (Asked("UNLUCKY_HANG", request)) std::this_thread::sleep_for(std::chrono::seconds(1));
      return run(request, place, context);
    };
  }
  return steps;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == quench::steps::kChildArgument) {
    ListenToServer();
    return quench::steps::RunAsChild(UnluckySteps());
  }
  quench::steps::ServerProgram program;
  program.name = "serve";
  program.full_name = "a gateway and its services";
  program.config = "AllInOneConfig";
  program.port = quench::gateway::kDefaultPort;
  program.has_state = true;
  program.start = quench::all_in_one::Start;
  return quench::steps::ServerMain(argc, argv, program);
}
