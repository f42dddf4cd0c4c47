#pragma once

#include <cstdint>
#include <span>

namespace carrel::kernel {

// What the child does between fork and exec. Other threads of its parent may have held any lock:
// here is no heap and no string, and everything it needs was made before.
struct ProgramPlan {
  const char* path = nullptr;
  const char* const* arguments = nullptr;
  std::span<int> descriptors;  // the child's copy is written to
  int output = -1;
  int errors = -1;
  int report = -1;  // a failed step's number and errno go here; it closes with exec
  // Every descriptor that is named here, in ascending order; the others are closed first of all.
  std::span<const int> kept;
  int group = -1;
  std::span<const int> join;

  struct Mount {
    int mount = -1;
    bool file = false;
    const char* place = nullptr;
  };
  const char* staging = nullptr;
  std::span<const Mount> mounts;

  bool changes_id = false;
  std::uint32_t id = 0;
  int further_groups = 0;  // how many: none or one
  std::uint32_t further_group = 0;
};

enum class ProgramStep : int {
  kPriority = 1,
  kForeign,
  kGroups,
  kMounts,
  kIdentity,
  kDescriptors,
  kExecute,
};
struct ProgramFailure {
  ProgramStep step = ProgramStep::kPriority;
  int error_number = 0;
};

[[noreturn]] void become_program(const ProgramPlan& plan);

}  // namespace carrel::kernel
