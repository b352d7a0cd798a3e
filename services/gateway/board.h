// The board on which the engine shows the live workflows to readers. Readers never wait for it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "services/gateway/view.h"

namespace quench::gateway {

// Told of every view of one workflow; must not block.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void OnView(const ViewPtr& view) = 0;
};

class Board {
 public:
  // Null if the workflow is not live: then the store has it, if it exists.
  ViewPtr Find(const std::string& id) const;
  struct Watched {
    ViewPtr view;           // null if the workflow is not live
    bool watching = false;  // later views will be told: it is live, or asleep
  };
  // Like Find for the workflows of `tenant`, of all if it is empty; also tells `watcher`, as long as it exists, of every
  // later view, possibly from another thread before this returns.
  Watched Watch(const std::string& tenant, const std::string& id,
                const std::weak_ptr<Watcher>& watcher);

  // A workflow that will be live later, unless Remove comes first. Until then the store has it.
  void Expect(const std::string& id, const std::string& tenant);
  void Publish(const std::string& id, const ViewPtr& view);
  void Remove(const std::string& id);

 private:
  struct Entry {
    ViewPtr view;        // null: expected
    std::string tenant;  // of one that is expected
    std::vector<std::weak_ptr<Watcher>> watchers;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace quench::gateway
