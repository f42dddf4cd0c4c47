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

 private:
  [[nodiscard]] std::vector<std::string> lines(const std::string& file) const;

  std::string directory_;
  std::unique_ptr<Process> process_;
};

}  // namespace carrel::test
