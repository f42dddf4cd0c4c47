#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "attacks/canary.h"
#include "attacks/control.h"
#include "support/fixture.h"

namespace carrel::test {

// A test that attacks from inside a sandbox, once as root and once as an ordinary user. Canaries
// are planted before and looked after at the end, as is what the host could be taken over by.
class AttackTest : public CarrelTest {
 protected:
  void SetUp() override;
  void TearDown() override;
  // What the attack happens in beside the sandboxes: it is there before the host is looked at for
  // the first time, and until after the last.
  virtual void open_world() {}
  virtual void close_world() {}

  // The program with the canary variable, and its output searched for the secret.
  Run attack(const std::vector<std::string>& arguments, Options options = {});
  // A line of bash in a one-shot sandbox.
  Run script(const std::string& text, const std::vector<std::string>& options = {});
  // A probe in a one-shot sandbox.
  Run probe(const std::string& name, const std::vector<std::string>& arguments = {},
            const std::vector<std::string>& options = {});
  // The words that run a probe which arrives on the standard input.
  [[nodiscard]] static std::vector<std::string> probe_command(
      const std::string& name, const std::vector<std::string>& arguments);
  void search_for_secret(const Run& run) const;

  // A long-lived sandbox; its id. Empty, and a failed test, when it cannot be made.
  std::string create(const std::vector<std::string>& options = {});
  // One command in its shell.
  Run sh(const std::string& id, const std::string& text,
         const std::vector<std::string>& options = {});
  // The shell still does what it is told, and answers with nothing else. A test that failed by then
  // is not asked again: a sandbox that hangs would hang at every question.
  void expect_usable(const std::string& id, const std::string& after);

  [[nodiscard]] const Canaries& canaries() const { return *canaries_; }

 private:
  std::unique_ptr<Canaries> canaries_;
  std::map<std::string, std::string> before_;
  std::set<std::string> mounts_before_;
};

// The program with the probes, as bytes.
const std::string& probe_bytes();

// Whether a process of that name lives below this test.
bool is_running(const std::string& name);

// Whether the probe says that every attempt failed.
testing::AssertionResult held(const Run& run);

}  // namespace carrel::test
