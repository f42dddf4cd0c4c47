#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::verify {

// A process that removes what this one has planted on the host as soon as this one lets go of it or
// ends, also by a signal that nobody can catch. The names are known before anything is there.
class Janitor {
 public:
  // At most as many files as Litter holds.
  static Result<Janitor> start(std::vector<std::string> files, std::string folder);
  Janitor(Janitor&& other) noexcept;
  Janitor& operator=(Janitor&&) = delete;
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;
  // Returns when everything is removed.
  ~Janitor();

 private:
  Janitor(pid_t pid, UniqueFd pipe) : pid_(pid), pipe_(std::move(pipe)) {}

  pid_t pid_;
  UniqueFd pipe_;
};

}  // namespace carrel::verify
