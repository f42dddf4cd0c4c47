#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::kernel {

// A program of the host that is started for a sandbox.
struct ProgramRequest {
  std::string path;
  std::vector<std::string> arguments;  // beginning with its name
  // They become 3, 4, and so on, and it has no others: its standard input is /dev/null.
  std::vector<int> descriptors;
  int output = -1;  // its standard output; -1: /dev/null
  int errors = -1;

  // The control groups that it is in before it begins: a v2 directory, unless that is -1, and files
  // to which it writes "0".
  int group = -1;
  std::vector<int> join;

  // As root: detached mounts that only it sees, at "0", "1" and so on of a directory that stands in
  // the place of `staging`.
  struct PlacedMount {
    enum class Kind { kFolder, kFile };
    int mount = -1;
    Kind kind = Kind::kFolder;
  };
  std::string staging;
  std::vector<PlacedMount> mounts;

  std::optional<std::uint32_t> id;             // as root: the user and the group that it becomes
  std::optional<std::uint32_t> further_group;  // as root: one that it is in as well
};

// Where the program finds one of its mounts.
std::string place_of_mount(const ProgramRequest& request, std::size_t index);

struct Program {
  pid_t pid = 0;  // a child of this process
  UniqueFd pidfd;
};

// Returns when it is executed: it has an empty environment, ordinary priority and no signal
// blocked.
Result<Program> start_program(const ProgramRequest& request);

}  // namespace carrel::kernel
