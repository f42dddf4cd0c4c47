#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "egress/registration.h"
#include "egress/usage.h"
#include "storage/home.h"

namespace carrel::egress {

// Has the egress process, which is started if there is none, serve a sandbox that is registered.
// When this returns, its policy is in force.
Status revive(const storage::Home& home, const std::string& id);
// The same, unless it is served already.
Status ensure(const storage::Home& home, const std::string& id);

// The sockets of a sandbox's network, where whoever made it has them: those that are `present`, in
// the order of protocol::NetworkSocket. Empty: its guest has to be asked for them.
struct HandedSockets {
  std::vector<UniqueFd> descriptors;
  std::uint32_t present = 0;
};

// The same in two steps, for whoever has something else to do meanwhile; and what stays of it: the
// egress process that serves the sandbox has the other end.
class Attendance {
 public:
  // With the sockets goes a descriptor of the guest's process; then nobody waits for it to boot.
  static Result<Attendance> begin(const storage::Home& home, const std::string& id, int guest,
                                  HandedSockets sockets);
  Status finish();
  // Readable when that process has ended. Then renew() finds or starts the next one; -1 where there
  // can be none.
  [[nodiscard]] int fd() const { return socket_.get(); }
  int renew();

 private:
  Attendance(const storage::Home& home, std::string id) : home_(&home), id_(std::move(id)) {}
  Status ask(int guest = -1, const HandedSockets& sockets = {});

  const storage::Home* home_;
  std::string id_;
  UniqueFd socket_;
};

// Changes what a sandbox may reach, while it runs.
Status change(const storage::Home& home, const std::string& id, policy::NetworkPolicy policy);

struct UsageNow : Usage {
  std::uint64_t live = 0;
};
Result<UsageNow> usage(const storage::Home& home, const std::string& id);

}  // namespace carrel::egress
