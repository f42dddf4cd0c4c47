#include "support/nursery.h"

#include <filesystem>

#include "support/host.h"
#include "support/place.h"

namespace carrel::test {

pid_t nursery() {
  for (const HostProcess& process : descendants()) {
    // One that waits for its sandbox is in its process namespace already.
    if (is_nursery(process) && status_field(process.pid, "NSpid").find('\t') == std::string::npos) {
      return process.pid;
    }
  }
  return 0;
}

pid_t wait_for_nursery(As as) {
  pid_t found = 0;
  eventually(std::chrono::seconds(10), [&] {
    std::error_code failed;
    found = std::filesystem::exists(place().home(as) + "/run/nursery", failed) ? nursery() : 0;
    return found != 0;
  });
  return found;
}

std::vector<pid_t> lent_processes() {
  std::vector<pid_t> found;
  const pid_t parent = nursery();
  for (const HostProcess& process : descendants()) {
    if (parent != 0 && process.parent == parent && !is_nursery(process) &&
        status_field(process.pid, "NSpid").ends_with("\t1")) {
      found.push_back(process.pid);
    }
  }
  return found;
}

pid_t lent_process() {
  const std::vector<pid_t> found = lent_processes();
  return found.empty() ? 0 : found.front();
}

}  // namespace carrel::test
