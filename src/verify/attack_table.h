#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace carrel::verify {

// What an attack is about; the words are those of `carrel verify --only`.
enum class Group {
  kFiles,
  kNetwork,
  kProcesses,
  kResources,
  kLimits,
  kPersistence,
  kPrivileges,
  kSystemCalls,
  kSession,
};
std::span<const Group> groups();
std::string_view name_of(Group group);
std::string_view title_of(Group group);
std::optional<Group> group_named(std::string_view name);
inline constexpr std::string_view kGroupNames =
    "fs net proc res limits persist privileges syscalls session";

// How an attack is made, and so what it is told and how it is judged from outside.
enum class Manner {
  kProbe,      // a probe by itself, in a sandbox of its own
  kForks,      // with a limit of processes that the probe can reach
  kMemory,     // with limits far below what it takes; being ended for it is fine
  kSize,       // with a size far below what it writes
  kPipes,      // the same for what the kernel itself ends early
  kProcessor,  // told how much of a core there is
  kPaths,      // told paths of the host
  kListeners,  // told where the host listens
  kOutside,    // told the host's own address
  kTimeLimit,  // ended by its time limit, or open
  kDaemons,    // leaves processes; the host looks for them afterwards
  kNewcomer,   // leaves marks; a later sandbox looks for them
  kNeighbour,  // leaves marks and stays; another sandbox looks for them
  kSession,    // commands in the long-lived shell
};

struct Attack {
  std::string_view name;  // begins with the id of the catalogue; unique
  Group group;
  Manner manner;
  std::string_view probe;  // of verify/probes; of kSession none
  std::string_view tries;  // one line, no full stop
};

// All of them, group by group.
std::span<const Attack> attacks();

// What is tried: everything, a group, or one attack.
struct Selection {
  std::optional<Group> group;
  std::string_view attack;  // of the table; empty: not one alone

  [[nodiscard]] bool has(const Attack& one) const {
    return (!group.has_value() || one.group == *group) && (attack.empty() || one.name == attack);
  }
};
// By the name of a group or of an attack.
std::optional<Selection> selection_named(std::string_view word);

}  // namespace carrel::verify
