#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/process.h"

namespace carrel::bench {

// What run.sh has prepared, and what the peers are on this machine. An empty path means that the
// peer is not there; `why_not_...` says why.
struct Setup {
  std::string carrel;     // a copy that everybody may execute
  std::string directory;  // of this run; run.sh removes it
  User user;              // the ordinary user
  std::string bwrap;
  std::string runc;
  std::string bundles;  // for runc: bundle N in the directory N, each with a group of its own
  std::string docker;
  std::string docker_socket;
  std::string why_no_docker;
  std::string image = "carrel-bench";
  // Control groups of this run, relative to the top of every hierarchy; run.sh removes them.
  std::string groups;

  [[nodiscard]] bool has_docker() const { return !docker_socket.empty(); }
};

enum class Who { kRoot, kUser };

// Every one of these is ready to be timed. `home` names a state directory of this run's.
Launch carrel_launch(const Setup& setup, Who who, const std::string& home,
                     std::vector<std::string> arguments);
// The plain sandbox of design.md: all namespaces, the host's /usr, fresh /proc, /dev and /tmp.
Launch bwrap_launch(const Setup& setup, Who who, std::vector<std::string> command);
// `/bin/true` from the bundle of that number; two at once need two bundles.
Launch runc_launch(const Setup& setup, int bundle);
Launch docker_launch(const Setup& setup, std::vector<std::string> arguments);
// `docker run` of a container without a network, as Carrel's and bubblewrap's have none.
Launch docker_run_launch(const Setup& setup, std::vector<std::string> options,
                         std::vector<std::string> command);
Launch plain_launch(std::vector<std::string> arguments);

// Makes a long-lived sandbox and returns its id. The keeper that it starts stays while it lives.
Result<std::string> create_box(const Setup& setup, Who who, const std::string& home,
                               const std::string& group = {},
                               const std::vector<std::string>& options = {});
Status remove_box(const Setup& setup, Who who, const std::string& home, const std::string& id);

std::string home_path(const Setup& setup, Who who, const std::string& home);

}  // namespace carrel::bench
