#pragma once

#include <sys/types.h>

#include <array>
#include <span>
#include <string_view>

#include "backends/native/doctor_facts.h"

namespace carrel::native {

// What the doctor's throw-away processes do. They note each outcome in memory that they share with
// their parent, so that whatever kills them, it is known what they were at. Here is no heap, no
// lock and no string.

struct TrialBoard {
  std::array<int, kFeatureCount> outcomes{};
  int landlock_abi = 0;
  int forks_refused = 0;  // of try_limits: forks beyond the limit that the kernel refused

  // From now until finish() the outcome is kDiedTrying.
  void begin(Feature feature) { at(feature) = kDiedTrying; }
  void finish(Feature feature, int error_number) { at(feature) = error_number; }
  [[nodiscard]] bool works(Feature feature) { return at(feature) == 0; }

 private:
  // Volatile: the process may end at any instruction, and the note must be written by then.
  volatile int& at(Feature feature) { return outcomes[static_cast<unsigned>(feature)]; }
};

// Starts a process: 0 in it, a negative errno on failure. By clone3, noting whether that works,
// else by fork.
pid_t start_trial(TrialBoard& board);
// The same by clone3 alone, born in the v2 group `directory`.
pid_t start_in_group(int directory);

// In a process of its own without namespaces: openat2, close_range, Landlock, seccomp, and at last
// executing the memory file `image` (-1: not tried). Does not return.
[[noreturn]] void try_plain_calls(TrialBoard& board, int image);

// In a process of its own: the namespaces, and in them the mounts of a sandbox. Writes a byte to
// `ready` when its user namespace exists, and goes on when one comes from `go`.
enum class Groups { kKeep, kDrop };
struct NamespacePipes {
  int ready = -1;
  int go = -1;
  std::string_view routes;  // netlink messages for a captive network
  std::string_view rules;
};
[[noreturn]] void try_namespaces(TrialBoard& board, const NamespacePipes& pipes, Groups groups);

// The mounts of a sandbox, in the order of the guest. CRITICAL: only for the first process of new
// mount and process namespaces.
void try_mounts(TrialBoard& board);

// In a process that was born in a group with limits: joins the rest of its groups, forks until it
// is refused, touches `memory` bytes and then spins until it is killed.
struct LimitTrial {
  std::span<const int> join;
  std::size_t memory = 0;
  int forks = 0;
};
[[noreturn]] void try_limits(TrialBoard& board, const LimitTrial& trial);

}  // namespace carrel::native
