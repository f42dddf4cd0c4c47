#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::oci {

// Where the parts of a bundle are. They exist only in a mount namespace of the runtime's own.
struct Places {
  std::string stage;                 // a tmpfs with all of the following
  std::vector<std::string> sources;  // the paths of the plan's trees

  [[nodiscard]] std::string bundle() const { return stage + "/bundle"; }
  [[nodiscard]] std::string root() const { return bundle() + "/rootfs"; }
  [[nodiscard]] std::string state() const { return stage + "/state"; }
  [[nodiscard]] std::string empty_directory() const { return bundle() + "/empty"; }
  [[nodiscard]] std::string data(std::size_t index) const {
    return bundle() + "/data" + std::to_string(index);
  }
  // Where the overlay is that is shown at a path inside, and where a tree is that came as a mount.
  [[nodiscard]] std::string overlay(std::string_view path) const;
  [[nodiscard]] std::string tree(std::size_t index) const {
    return stage + "/tree" + std::to_string(index);
  }
  [[nodiscard]] std::string slot(std::size_t number) const {
    return stage + "/slot" + std::to_string(number);
  }
};

struct Bundle {
  std::string config;             // config.json
  std::string program;            // where in the root the guest's is; empty: it is a descriptor
  std::vector<std::string> data;  // contents of the files that are mounted over others
};

// Whose kernel the room has. gVisor's makes its tmpfs itself, has a proc with nothing of the host's
// in it, and takes no descriptors beyond the first three.
enum class Dialect { kHosts, kGvisors };

using Exists = bool (*)(const std::string& path);

// The plan in the words of an OCI runtime. kUnsupported: a step that it cannot take, or a name that
// JSON cannot hold.
Result<Bundle> bundle_for(const sandbox::RoomRequest& request, const Places& places, Exists exists,
                          Dialect dialect);

}  // namespace carrel::oci
