#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "attacks/attack_test.h"
#include "support/internet.h"

namespace carrel::test {

// An attack on the network of a sandbox: a Python text that begins with egress_client.py, in which
// each attempt has a name. It is tried in a sandbox, and for control where nothing holds it.
class EgressAttack : public AttackTest {
 protected:
  using Names = std::set<std::string>;

  void SetUp() override;
  void TearDown() override;
  void open_world() override;
  void close_world() override { internet_.reset(); }

  // The attempts that got through in a sandbox with this network.
  Names through(const std::string& network, const std::string& code,
                const std::vector<std::string>& options = {});
  // The same in a sandbox that exists.
  Names through_in(const std::string& id, const std::string& code);
  // The same beside the sandboxes, in the network that the egress process is in.
  Names through_outside(const std::string& code);
  // The whole text of an attack.
  [[nodiscard]] static std::string text_of(const std::string& code);

  // Who was spoken to so far. Lookups by the egress process itself are left out.
  [[nodiscard]] Names reached() const;
  [[nodiscard]] Internet& internet() { return *internet_; }
  // The egress process of this test's user, which another one has started; 0: there is none.
  [[nodiscard]] pid_t egress_process() const;
  // Kills it, and the one above it, which would start the next.
  void kill_egress() const;
  // The sandbox's policy is this one from now on.
  void set_network(const std::string& id, const std::string& network);

 private:
  Names attempts_of(const Run& run, const std::string& where);

  std::unique_ptr<Internet> internet_;
};

}  // namespace carrel::test
