// The memory that past runs of steps took, by step and size of their inputs, and that the next one will take.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace quench::steps {

// The memory assumed of a step of which nothing was learnt: the program itself, and the inputs as mapped, as decoded, as
// packed, and once more for what is between. Past runs are kept as multiples of it, so that they say something of
// larger inputs too.
int64_t AssumedMemory(int64_t input_bytes);

struct MemoryNeed {
  int64_t resident_bytes = 0;   // in RAM, at the peak
  int64_t too_small_limit = 0;  // the largest limit at which such a step was ended; 0: none was
  bool operator==(const MemoryNeed&) const = default;
};

// Thread-safe. Inputs fall into classes by their bytes: those below 1 MiB, and four for each doubling from there. Each
// class of a step keeps two numbers: the multiple of AssumedMemory that its runs took, which rises to a larger one at
// once and sinks by an eighth of the difference with a smaller one, so that one odd model is forgotten after some twenty;
// and the largest limit that was too small.
class MemoryBook {
 public:
  // Reads what was learnt from `file`, and keeps it there; an empty path keeps it in memory only. A damaged file is
  // logged, and what was learnt is lost.
  explicit MemoryBook(std::filesystem::path file = {});

  // `step` is a name for runs that are alike. A quarter above
  //   - what such inputs took, where their class is known; else
  //   - what is assumed of them, or the multiple of it that the next smaller class took if that is more, but at most
  //     what the next larger class took.
  // So it sinks as inputs grow only where runs have shown it. A limit was too small if it was for smaller inputs.
  MemoryNeed Predict(const std::string& step, int64_t input_bytes) const;

  // A run that had enough, and took `peak_bytes`.
  void Learn(const std::string& step, int64_t input_bytes, int64_t peak_bytes);
  // One that was ended for want of memory: it needs at least what it had. `limit` 0: it was none of its own.
  void LearnTooSmall(const std::string& step, int64_t input_bytes, int64_t peak_bytes,
                     int64_t limit);

 private:
  struct Class {
    double multiple = 0;  // of AssumedMemory; 0: not known
    int64_t too_small_limit = 0;
    bool operator==(const Class&) const = default;
  };
  using Classes = std::array<Class, 122>;

  void Read();
  void Change(const std::string& step, int64_t input_bytes, const Class& learnt);
  void Save();

  const std::filesystem::path file_;
  mutable std::mutex mutex_;
  std::map<std::string, Classes> steps_;
  std::mutex save_mutex_;                 // before mutex_
  std::map<std::string, Classes> saved_;  // what the file says
  bool cannot_save_ = false;
};

}  // namespace quench::steps
