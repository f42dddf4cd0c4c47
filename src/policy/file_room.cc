#include "policy/file_room.h"

#include <algorithm>
#include <array>

#include "policy/isolation.h"

namespace carrel::policy {

namespace {

// Of the memory. A file system has an inode for every 4 KiB, and one takes about 1 KiB: five
// quarters of these three fifths are three quarters.
constexpr std::uint64_t kFilesParts = 3;
constexpr std::uint64_t kMemoryParts = 5;
// Whole pages, wherever it runs: the guest compares what it asked for with what it got.
constexpr std::uint64_t kGrain = 64U << 10;

// Bubblewrap and gVisor cannot mount a part of what they made: each place has its size by itself.
std::uint64_t places_of_a_size(const Spec& spec) {
  const bool apart = spec.backend == Backend::kBubblewrap ||
                     isolation_of(spec.backend, spec.runtime).strength == Strength::kGvisor;
  return apart ? 2 : 1;
}

}  // namespace

FileRoom file_room(const Spec& spec) {
  FileRoom room{spec.limits.disk_bytes, spec.limits.tmp_bytes, 0};
  if (spec.root_mode == RootMode::kThrowawayOverlay) {
    room.root_bytes = spec.limits.disk_bytes;
  }
  std::array<std::uint64_t*, 3> sizes = {&room.disk_bytes, &room.tmp_bytes, &room.root_bytes};
  std::sort(sizes.begin(), sizes.end(), [](const auto* a, const auto* b) { return *a < *b; });
  std::uint64_t left =
      spec.limits.memory_bytes / kMemoryParts * kFilesParts / places_of_a_size(spec);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    *sizes[i] = std::min(*sizes[i], left / (sizes.size() - i) / kGrain * kGrain);
    left -= *sizes[i];
  }
  return room;
}

std::string file_room_text(const Spec& spec) {
  const FileRoom room = file_room(spec);
  const auto mebibytes = [](std::uint64_t bytes) {
    return bytes < (1U << 20) ? std::to_string(bytes >> 10) + " KiB"
                              : std::to_string(bytes >> 20) + " MiB";
  };
  return (spec.workspace.empty() ? "/workspace and HOME hold " : "HOME holds ") +
         mebibytes(room.disk_bytes) + ", /tmp " + mebibytes(room.tmp_bytes) + ", in memory";
}

}  // namespace carrel::policy
