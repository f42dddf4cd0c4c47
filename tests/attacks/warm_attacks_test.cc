// The same probes in a sandbox that was started before anybody asked for it: what it could do while
// it waited must be gone as in any other.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "attacks/attack_test.h"
#include "support/api.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;

class WarmAttack : public AttackTest {
 protected:
  void open_world() override {
    daemon_ = std::make_unique<Daemon>(GetParam(), std::vector<std::string>{"--warm", "2"});
    EXPECT_TRUE(eventually(
        10s, [&] { return metrics().find("carrel_warm_sandboxes 2\n") != std::string::npos; }));
  }
  void close_world() override { daemon_.reset(); }

  std::string metrics() { return ask(daemon_->socket(), {.path = "/metrics"}).body; }
  std::string take() {
    const ApiAnswer made =
        ask(daemon_->socket(), {.method = "POST", .path = "/v1/sandboxes", .body = "{}"});
    EXPECT_EQ(made.status, 201) << made.body;
    EXPECT_NE(metrics().find("carrel_warm_hits_total 1\n"), std::string::npos);
    return made.json().value("id", "");
  }
  Run probe_in(const std::string& id, const std::string& name,
               const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> words = {"exec", id, "--"};
    for (const std::string& word : probe_command(name, arguments)) {
      words.push_back(word);
    }
    Options options;
    options.input = probe_bytes();
    return attack(words, options);
  }

  std::unique_ptr<Daemon> daemon_;
};
CARREL_AS_BOTH(WarmAttack);

TEST_P(WarmAttack, ProbesOfTheTreeAndOfPrivilegesFail) {
  const std::string id = take();
  const std::vector<std::string> host = {path_in_its_file_system("/usr"),
                                         path_in_its_file_system("/etc"), place().home(GetParam())};
  EXPECT_TRUE(held(probe_in(id, "A02_NoOtherRootIsReachableThroughProc")));
  EXPECT_TRUE(held(probe_in(id, "A03_OnlyThreeDescriptorsAreOpen")));
  EXPECT_TRUE(held(probe_in(id, "A05_SystemFilesCannotBeChanged")));
  EXPECT_TRUE(held(probe_in(id, "A07_MountsCannotBeUncoveredByANamespace")));
  EXPECT_TRUE(held(probe_in(id, "A15_NoPathOfTheHostIsToldOrReachable", host)));
  EXPECT_TRUE(held(probe_in(id, "A21_TheFirstProcessIsClosed")));
  EXPECT_TRUE(held(probe_in(id, "E01_NoCapabilityIsHeld")));
  EXPECT_TRUE(held(probe_in(id, "E04_NamespacesAreRefused")));
  EXPECT_TRUE(held(probe_in(id, "E06_TheFirstProcessCannotBeDisturbed")));
  EXPECT_TRUE(held(probe_in(id, "E14_ListenersOfTheHostAreUnreachable", canaries().listeners())));
  expect_usable(id, "the probes");
}

}  // namespace
}  // namespace carrel::test
