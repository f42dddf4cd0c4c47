#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "verify/janitor.h"

namespace carrel::verify {

// Things on the host that no sandbox may see, touch or reach: files in a folder of their own and in
// the user's home, a variable and open descriptors of this program, and listeners. All of them hold
// or are named by a secret, for which everything that comes out of a sandbox is searched. They are
// gone when this process is, however it ends.
class Canaries {
 public:
  static Result<Canaries> plant();
  Canaries(Canaries&&) noexcept = default;
  Canaries& operator=(Canaries&&) = delete;
  Canaries(const Canaries&) = delete;
  Canaries& operator=(const Canaries&) = delete;
  ~Canaries();

  [[nodiscard]] const std::string& secret() const { return secret_; }
  // A word that nothing else on this host has, for processes.
  [[nodiscard]] std::string mark() const { return "carrel-verify-" + name_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // What the probes of listeners and of the network take.
  [[nodiscard]] std::vector<std::string> listeners() const;
  [[nodiscard]] std::vector<std::string> addresses() const;
  [[nodiscard]] const std::string& address() const { return address_; }

  // A sentence for each canary that was changed or reached since the last time.
  [[nodiscard]] std::vector<std::string> harmed();

 private:
  struct File {
    std::string path;
    std::string state;
  };
  struct Listener {
    std::string what;
    UniqueFd socket;
  };

  Canaries() = default;
  Status listen();
  void leave_open();

  std::string secret_;
  std::string name_;
  std::string folder_;
  std::string address_;  // one of this host's own that is not the loopback's; empty: it has none
  int port_ = 0;
  int outer_port_ = 0;
  std::vector<File> files_;
  std::vector<Listener> listeners_;
  std::vector<UniqueFd> inherited_;
  std::unique_ptr<Janitor> janitor_;  // null: somebody else has the canaries
};

}  // namespace carrel::verify
