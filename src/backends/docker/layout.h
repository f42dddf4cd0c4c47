#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backends/docker/container.h"
#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// A room that an engine furnishes, because the kernel behind its runtime lets nobody mount: what of
// the plan is an image, and what is mounted in it.
struct Layout {
  std::string image;  // a tar: directories, links and files of the root
  // Files of the host that are mounted read-only, by the names that they have to get.
  struct File {
    std::string name;
    std::string content;
  };
  std::vector<File> files;
  std::vector<std::string> folders;  // empty ones, likewise
  struct Mount {
    std::string source;  // on the host; of a file or folder above: its name
    std::string target;
    bool made = false;  // it is one of those above
    bool writable = false;
  };
  std::vector<Mount> mounts;
  // The tmpfs of the room, as the engine's options by their places.
  struct Memory {
    std::string target;
    std::string options;
  };
  std::vector<Memory> memory;
};

// kUnsupported: a step that an engine cannot take. `user` and `group` are whose the room is inside.
Result<Layout> layout_for(const sandbox::RoomRequest& request, std::uint32_t user,
                          std::uint32_t group, Exists exists);

}  // namespace carrel::docker
