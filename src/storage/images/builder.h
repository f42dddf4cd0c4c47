#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carrel::storage {

// How mmdebstrap is to run: in a room (builder_room.h) whose ids are, as root, some that own
// nothing, and for an ordinary user his subordinate ones.
struct BuilderRun {
  std::vector<std::string> arguments;  // without the program
  std::vector<std::string> environment;
  std::string place;               // a directory for the room, with "build" and "root" in it
  std::vector<std::string> trees;  // of the host, to be read in the room
  int output = -1;                 // where the archive goes; borrowed
  // Each line that it says about its progress.
  std::function<void(const std::string& line)> listener;
};

// Where mmdebstrap is; an error that says what to install when something is missing.
Result<std::string> find_builder();

// Runs it to its end. A failure says what it complained about first.
Status run_builder(const std::string& program, const BuilderRun& run);

}  // namespace carrel::storage
