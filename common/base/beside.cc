#include "common/base/beside.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace quench {
namespace {

struct Aside {
  const std::function<void()>& run;
  bool ended = false;
};

// Threads that live as long as the process, begun when first needed.
class Helpers {
 public:
  // Never destroyed: a helper may still be about to wait when the process ends.
  static Helpers& Get() {
    static Helpers* const helpers = new Helpers;
    return *helpers;
  }

  void Post(Aside& aside) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&aside);
    if (idle_ > 0) {
      wake_.notify_one();
    } else if (threads_ < limit_) {
      Begin();
    }
  }

  // Waits for it, or does what nobody has begun.
  void Finish(Aside& aside) {
    std::unique_lock lock(mutex_);
    if (std::erase(waiting_, &aside) > 0) {
      lock.unlock();
      aside.run();
      return;
    }
    ended_.wait(lock, [&] { return aside.ended; });
  }

 private:
  void Begin() {
    try {
      std::thread([this] { Serve(); }).detach();
      ++threads_;
    } catch (const std::system_error&) {
      return;  // no thread to be had: the caller does it
    }
  }

  void Serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      wake_.wait(lock, [&] { return !waiting_.empty(); });
      --idle_;
      Aside& aside = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      aside.run();
      lock.lock();
      aside.ended = true;
      ended_.notify_all();
    }
  }

  // Two at least: what runs aside may itself have something to do beside.
  const unsigned limit_ = std::clamp(std::thread::hardware_concurrency(), 2U, 8U);
  std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<Aside*> waiting_;
  unsigned threads_ = 0, idle_ = 0;
};

}  // namespace

void RunBeside(const std::function<void()>& aside, const std::function<void()>& work) {
  Aside posted{aside};
  Helpers::Get().Post(posted);
  work();
  Helpers::Get().Finish(posted);
}

}  // namespace quench
