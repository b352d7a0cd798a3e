// The cost of a call from C++, and the memory that opens and calls leave behind:
//
//   call_cost MODEL [OPENS [CALLS]]
//
// Inputs are zeros, symbolic sizes 1. Prints nanoseconds of a call by quench.hpp (inputs set, run, outputs read), those of
// quench_rt_run alone, and by how many KB the resident size grew over the calls. Under valgrind: `call_cost MODEL 1000 1`.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "common/runtime/quench.hpp"

namespace {

using Clock = std::chrono::steady_clock;

long ResidentKilobytes() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int Fail(const quench::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

template <typename Call>
double Nanoseconds(long count, const Call& call) {
  const Clock::time_point start = Clock::now();
  for (long i = 0; i < count; ++i) call();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() /
         static_cast<double>(count);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: call_cost MODEL [OPENS [CALLS]]\n"), 2;
  const long opens = argc > 2 ? std::atol(argv[2]) : 1,
             calls = argc > 3 ? std::atol(argv[3]) : 100'000;
  for (long i = 1; i < opens; ++i) {
    const auto model = quench::Model::Open(argv[1]);
    if (!model) return Fail(model.error());
    if (const auto session = model->NewSession(); !session) return Fail(session.error());
  }
  const auto model = quench::Model::Open(argv[1]);
  if (!model) return Fail(model.error());
  auto session = model->NewSession();
  if (!session) return Fail(session.error());
  std::vector<std::vector<float>> data;
  std::vector<quench::View<const float>> views;
  for (const quench::TensorInfo& info : model->inputs()) {
    std::vector<std::int64_t> dims = info.dims;
    std::size_t count = 1;
    for (std::int64_t& dim : dims) count *= static_cast<std::size_t>(dim = dim < 0 ? 1 : dim);
    data.emplace_back(count);
    views.emplace_back(data.back().data(), count, dims);
  }
  const std::size_t outputs = model->outputs().size();
  float sum = 0;
  const auto call = [&] {
    for (std::size_t i = 0; i < views.size(); ++i)
      if (const auto set = session->SetInput(static_cast<std::uint32_t>(i), views[i]); !set)
        std::exit(Fail(set.error()));
    if (const auto ran = session->Run(); !ran) std::exit(Fail(ran.error()));
    for (std::size_t i = 0; i < outputs; ++i) {
      const auto output = session->Output<float>(static_cast<std::uint32_t>(i));
      if (!output) std::exit(Fail(output.error()));
      if (output->size() > 0) sum += (*output)[0];
    }
  };
  call();
  const double warm = Nanoseconds(calls / 10 + 1, call);
  const long before = ResidentKilobytes();
  const double whole = Nanoseconds(calls, call);
  const long grown = ResidentKilobytes() - before;
  quench_rt_error error;
  const double run = Nanoseconds(calls / 10 + 1, [&] { quench_rt_run(session->get(), &error); });
  std::printf(
      "%ld opens; %ld calls: %.0f ns each (%.0f warming up), quench_rt_run %.0f ns, quench.hpp "
      "%.0f ns; resident +%ld KB; sum %g\n",
      opens, calls, whole, warm, run, whole - run, grown, static_cast<double>(sum));
  return 0;
}
