#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::docker {

struct Layout;

// What a container needs of the host until its guest runs: a file with the guest's program, and a
// socket that the guest calls. Both are in a directory of their own below an installation's, which
// only the caller can enter, and which is locked as long as the caller lives. The destructor
// removes it, because a mount keeps what it shows.
class Door {
 public:
  // `engine` is written down for whoever cleans up.
  static Result<Door> open(const std::string& folder, const std::string& id,
                           const std::string& engine, int program);

  // Lays out what a furnished room has mounted from here.
  Status furnish(const Layout& layout) const;

  [[nodiscard]] std::string place() const { return path_; }
  [[nodiscard]] std::string program() const { return path_ + "/guest"; }
  [[nodiscard]] std::string socket() const { return path_ + "/door"; }

  struct Caller {
    UniqueFd stream;
    int pid = 0;  // who connected, as this process counts
    uid_t user = 0;
    gid_t group = 0;
  };
  // The first who calls; kTimeout.
  Result<Caller> answer(std::chrono::milliseconds patience) const;

  // Leaves the directory to whoever cleans up: there may be a container.
  void leave() { path_.clear(); }

  Door(Door&& other) noexcept;
  Door& operator=(Door&&) = delete;
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door();

 private:
  Door() = default;
  std::string path_;
  UniqueFd directory_;
  UniqueFd listener_;
};

// A door whose maker is gone, held by whoever cleans up.
struct LeftDoor {
  std::string id;
  std::string engine;
  std::chrono::seconds age{};
  UniqueFd lock;
};
std::vector<LeftDoor> left_doors(const std::string& folder);
// Whether somebody made one for that sandbox, alive or not.
bool has_door(const std::string& folder, const std::string& id);
void remove_door(const std::string& folder, const LeftDoor& door);

}  // namespace carrel::docker
