#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carrel::storage {

// Where packages that nobody has read are installed: their scripts run there as root of a user
// namespace whose ids own nothing on the host, and see none of its processes, of its files only
// programs and apt's settings, read-only, and one directory that is theirs. They have the host's
// network, because apt has to.
struct BuilderRoomPlan {
  std::string program;
  std::vector<std::string> arguments;  // with the program's name
  std::vector<std::string> environment;
  std::string place;               // a directory of this user's; what was made there is removed
  std::vector<std::string> trees;  // to be seen read-only, beside the system's own
  int input = -1;                  // becomes 0
  int output = -1;                 // becomes 1
  int errors = -1;                 // becomes 2
  // Tells that the user namespace is there, and waits for a byte: then it has ids, 0 among them.
  int handshake = -1;
};

// In the room, the directory that is its own.
inline constexpr const char* kBuilderDirectory = "/tmp";

// Runs the program to its end, in a forked child of one thread; ends the process with its status.
// SIGTERM, which also comes when the parent dies, ends all of it. A failure before the program is
// started is a line on `errors` that begins with "E: ".
[[noreturn]] void run_in_builder_room(const BuilderRoomPlan& plan);

}  // namespace carrel::storage
