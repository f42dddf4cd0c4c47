#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// An internet of this test's own (internet.py): the process moves into a network and a mount
// namespace whose only way out leads there, with a resolver that is its authority for every name.
// Everything that is started afterwards is in them. Needs root; the program may still be run as the
// ordinary user.
class Internet {
 public:
  explicit Internet(const std::string& directory);
  ~Internet();
  Internet(const Internet&) = delete;
  Internet& operator=(const Internet&) = delete;

  // Has the host trust its servers, for as long as the test lasts.
  void trust() const;
  // The certificate of who signed those of its servers.
  [[nodiscard]] std::string authority_certificate() const;
  // What the authority for names was asked, as "name type", and what came to its web servers.
  [[nodiscard]] std::vector<std::string> queries() const;
  [[nodiscard]] std::vector<nlohmann::json> requests() const;
  // Whom anybody began to talk to so far, as "tcp 11.1.1.1 443": everything that was sent before
  // this call, however late it is written down. And which of those that repeat what they hear were
  // connected to, as "11.1.1.1 7000".
  [[nodiscard]] std::vector<std::string> packets() const;
  [[nodiscard]] std::vector<std::string> connections() const;

  // A command of the shell in its network, in the background.
  void run(const std::string& command);
  // What is in here is at /files/ of its web servers.
  [[nodiscard]] std::string files() const { return directory_ + "/files"; }
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  [[nodiscard]] std::vector<std::string> lines(const std::string& file) const;
  // Waits until what was sent so far is written down.
  void await_packets() const;

  std::string directory_;
  std::unique_ptr<Process> process_;
};

}  // namespace carrel::test
