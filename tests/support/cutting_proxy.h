// A TCP proxy that breaks connections, for tests of what resumes.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace quench::testing {

// Listens on a free port of 127.0.0.1. Each connection is cut once `budget`() bytes have passed in
// both directions together; a budget of 0 cuts at once.
class CuttingProxy {
 public:
  CuttingProxy(int target_port, std::function<uint64_t()> budget);
  ~CuttingProxy();

  std::string address() const;
  // Where new connections go.
  void set_target(int port) { target_ = port; }
  int cuts() const { return cuts_; }

 private:
  void Accept();
  void Pump(int client);

  std::atomic<int> target_;
  const std::function<uint64_t()> budget_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> cuts_{0};
  std::mutex mutex_;
  std::vector<std::thread> pumps_;
  std::thread acceptor_;
};

}  // namespace quench::testing
