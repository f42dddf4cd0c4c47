#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "storage/home.h"

namespace carrel::storage {

// What the files of an installation are for.
enum class KeptFor : std::size_t {
  kImages,
  kDownloads,   // of images, that were not finished
  kWorkspaces,  // their files as they are now
  kSnapshots,   // of workspaces
  kMachines,    // virtual machines that were saved
  kFlows,       // records of executions
  kLogs,        // of sandboxes and networks
  kState,       // everything else: databases, sockets, marks
};
inline constexpr std::size_t kKeptKinds = 8;
// "images", in the order of KeptFor.
std::string_view name_of(KeptFor kind);

struct DiskUse {
  std::uint64_t bytes = 0;  // of the host's disk, which is not what they are long
  std::uint64_t files = 0;
};

// What an installation takes of the host's disk, each file once, however many names it has. Files
// that come or go meanwhile may be counted or not.
Result<std::array<DiskUse, kKeptKinds>> look_at_disk_use(const Home& home);
// The same of one path in it, whatever it is for; nothing if it is not there.
Result<DiskUse> look_at_disk_use_of(const Home& home, const std::string& path);

}  // namespace carrel::storage
