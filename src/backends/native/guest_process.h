#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/frame.h"

namespace carrel::native {

struct ChildMemory;

// What a guest is made for.
enum class Role { kRoom, kNursery };

// A process on its way to become a guest: from its clone until it has executed the guest's program.
// Its destructor ends one that was not taken.
class GuestProcess {
 public:
  // In the namespaces that its role needs, and in a v2 control group unless that is -1. It waits.
  static Result<GuestProcess> clone(Role role, int into);
  // One that another process has made, which is its parent, and that has executed the guest.
  static GuestProcess adopt(pid_t pid, UniqueFd pidfd, UniqueFd stream);

  // As root: which ids it and all that it makes have. An ordinary user's process maps its own.
  Status map_ids(const std::string& map) const;
  // Gives it its program.
  Status execute() const;
  Status send(protocol::FrameType type, std::string_view payload,
              const std::vector<int>& descriptors) const;
  // Waits for its answer of that type, which says no more than that.
  [[nodiscard]] Status await(protocol::FrameType type, int longest_ms) const;
  // Waits until it has executed the guest, which ends the use of this process's memory; it may know
  // better than `so_far` why something failed.
  Status settle(Status so_far);

  // Readable when it has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  [[nodiscard]] pid_t pid() const { return pid_; }

  struct Taken {
    pid_t pid = 0;
    pid_t child = 0;  // the same, if it is one of this process
    UniqueFd pidfd;
    UniqueFd stream;
  };
  Taken take();

  GuestProcess(GuestProcess&& other) noexcept;
  GuestProcess& operator=(GuestProcess&&) = delete;
  GuestProcess(const GuestProcess&) = delete;
  GuestProcess& operator=(const GuestProcess&) = delete;
  ~GuestProcess();

 private:
  GuestProcess();

  pid_t pid_ = 0;
  bool adopted_ = false;
  UniqueFd pidfd_;
  UniqueFd stream_;
  UniqueFd report_;
  std::unique_ptr<ChildMemory> memory_;  // until it has executed the guest
};

std::vector<int> numbers_of(const std::vector<UniqueFd>& descriptors);

// One frame; its header carries the descriptors.
Status send_frame(int socket, protocol::FrameType type, std::string_view payload,
                  const std::vector<int>& descriptors);

}  // namespace carrel::native
