// A step: one unit of a service's work, from a request to a result, both messages of the service's
// contract, with bytes in the blob store. The same function answers a call in a server, runs in a
// child process, or on a thread of `quench`.
#pragma once

#include <absl/status/statusor.h>
#include <google/protobuf/message.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/base/status.h"
#include "common/blobs/blob_store.h"
#include "common/metrics/metrics.h"

namespace quench::steps {

// Everything that a step works with, except its request.
struct Workplace {
  LocalBlobStore& blobs;          // holds every blob that the request names
  std::filesystem::path scratch;  // an empty folder, removed afterwards
  int max_threads = 1;            // for runs of compiled libraries
};

enum class Caching {
  kPure,       // equal requests give equal results
  kOfThisCpu,  // equal requests give equal results on equal CPUs
  kNever,
};

struct Step {
  std::string method;  // "quench.codegen.v1.Codegen/Compile"
  metrics::Stage stage;
  std::function<Caching(const google::protobuf::Message& request)> caching;
  std::function<absl::StatusOr<std::string>(const std::string& request, const Workplace& place,
                                            const StepContext& context)>
      run;  // on serialised messages
  // Whether the step starts processes of this program, in addition to threads.
  bool starts_processes = false;
  // Fields that are digests of compiled libraries: in the request, libraries that the step runs or processes; in
  // the result, libraries that it made.
  std::vector<std::string> takes_libraries = {}, makes_libraries = {};
};

inline Step TakesLibraries(Step step, std::vector<std::string> fields) {
  step.takes_libraries = std::move(fields);
  return step;
}
inline Step MakesLibraries(Step step, std::vector<std::string> fields) {
  step.makes_libraries = std::move(fields);
  return step;
}

// `function`(const Request&, const Workplace&, const StepContext&) -> absl::StatusOr<Result>.
template <typename Request, typename Result>
Step MakeStep(std::string method, metrics::Stage stage, Caching caching,
              absl::StatusOr<Result> (*function)(const Request&, const Workplace&,
                                                 const StepContext&)) {
  return {std::move(method), stage, [caching](const google::protobuf::Message&) { return caching; },
          [function](const std::string& bytes, const Workplace& place,
                     const StepContext& context) -> absl::StatusOr<std::string> {
            Request request;
            if (!request.ParseFromString(bytes)) return Internal("the step's request is damaged");
            QUENCH_ASSIGN_OR_RETURN(const Result result, function(request, place, context));
            return result.SerializeAsString();
          }};
}

// Like the above, for a method whose caching depends on the request.
template <typename Request, typename Result>
Step MakeStep(std::string method, metrics::Stage stage, Caching (*caching)(const Request&),
              absl::StatusOr<Result> (*function)(const Request&, const Workplace&,
                                                 const StepContext&)) {
  Step step = MakeStep(std::move(method), stage, Caching::kNever, function);
  step.caching = [caching](const google::protobuf::Message& request) {
    return caching(static_cast<const Request&>(request));
  };
  return step;
}

}  // namespace quench::steps
