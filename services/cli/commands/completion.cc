#include "services/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "services/cli/commands/declarations.h"

namespace quench::cli {

Action DeclareCompletion(const Options& options) {
  auto shell = std::make_shared<std::string>();
  options
      .Add("SHELL", *shell, "Shell to complete in",
           fmt::format("{}", fmt::join(CompletionShells(), "|")))
      .Required()
      .OneOf(CompletionShells());
  options.Examples(R"(Examples:
  source <(quench completion bash)                              in ~/.bashrc
  quench completion zsh > ~/.zfunc/_quench                      in a folder of $fpath
  quench completion fish > ~/.config/fish/completions/quench.fish)");
  return [shell, options](const StepContext&) {
    fmt::print("{}", CompletionScript(options.Program(), *shell));
    return absl::OkStatus();
  };
}

}  // namespace quench::cli
