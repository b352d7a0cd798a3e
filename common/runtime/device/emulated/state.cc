// The driver's state: settings, current contexts, what every call begins with.
#include <cstdlib>

#include "common/runtime/device/emulated/driver.h"

namespace quench::emulated {
namespace {

// The number of a variable, from least to most; leaves *value if the variable is not set.
template <typename Number>
bool ReadNumber(const char* name, uint64_t least, uint64_t most, Number* value,
                std::string* problem) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return true;
  char* end = nullptr;
  const uint64_t number = std::strtoull(text, &end, 10);
  if (*end != '\0' || *text == '-' || number < least || number > most) {
    *problem = std::string(name) + " is `" + text + "`: it takes a number from " +
               std::to_string(least) + " to " + std::to_string(most);
    return false;
  }
  *value = static_cast<Number>(number);
  return true;
}

bool ReadOrder(bool* reverse, std::string* problem) {
  const char* const text = std::getenv("QUENCH_EMULATED_ORDER");
  const std::string order = text == nullptr ? "" : text;
  *reverse = order == "reverse";
  if (order.empty() || order == "forward" || *reverse) return true;
  *problem = "QUENCH_EMULATED_ORDER is `" + order + "`: it takes `forward` or `reverse`";
  return false;
}

}  // namespace

Driver& TheDriver() {
  static auto& driver = *new Driver;
  return driver;
}

std::vector<Context*>& CurrentContexts() {
  static thread_local std::vector<Context*> contexts;
  return contexts;
}

bool ReadSettings(Settings* settings, std::string* problem) {
  *settings = {};
  uint32_t races = 0;
  const bool good =
      ReadNumber("QUENCH_EMULATED_DEVICES", 0, kMostDevices, &settings->devices, problem) &&
      ReadNumber("QUENCH_EMULATED_MEMORY", 0, uint64_t{1} << 40, &settings->memory_bytes,
                 problem) &&
      ReadNumber("QUENCH_EMULATED_DRIVER", 1000, 99990, &settings->driver, problem) &&
      ReadNumber("QUENCH_EMULATED_RACES", 0, 1, &races, problem) &&
      ReadOrder(&settings->reverse, problem);
  settings->races = races != 0;
  return good;
}

bool Driver::Retained() const {
  for (const Context& context : contexts) {
    if (context.retains > 0) return true;
  }
  return false;
}

Call::Call(bool needs_context) : driver_(TheDriver()), lock_(driver_.mutex) {
  if (!CurrentContexts().empty()) context = CurrentContexts().back();
  if (!driver_.initialized) {
    result = CUDA_ERROR_NOT_INITIALIZED;
  } else if (needs_context) {
    result =
        context == nullptr || context->retains == 0 ? CUDA_ERROR_INVALID_CONTEXT : context->error;
  }
}

void Reset(Driver* driver, Context* context) {
  const uint64_t bytes = driver->memory.FreeAll(context->device);
  if (bytes > 0 && driver->report.empty()) {
    driver->report = "a context was released with " + std::to_string(bytes) + " bytes allocated";
  }
  driver->modules.EraseOf(context);
  driver->functions.EraseOf(context);
  driver->streams.EraseOf(context);
  driver->events.EraseOf(context);
  driver->graphs.EraseOf(context);
  driver->execs.EraseOf(context);
  context->error = CUDA_SUCCESS;
}

}  // namespace quench::emulated
