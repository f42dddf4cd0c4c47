#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <string>

#include "backends/native/keeper_message.h"
#include "storage/home.h"
#include "storage/workspaces/tree_watch.h"

namespace carrel::native {

// The watches over workspaces that the keeper has between two snapshots, each for as long as the
// sandbox lives that works there.
class KeptWatches {
 public:
  // Takes the place of an older one; the oldest of too many goes.
  void keep(const std::string& id, storage::KeptWatch watch);
  // The one of that sandbox, which is gone from here then. Nothing if there is none, or if
  // something in the sandbox, which stands still, can change a file of that file system without
  // its being told.
  std::optional<storage::KeptWatch> take(const storage::Home& home, const std::string& id);
  void forget(const std::string& id);

 private:
  struct Kept {
    std::string id;
    storage::KeptWatch watch;
  };
  std::list<Kept> kept_;  // the newest last
};

}  // namespace carrel::native
