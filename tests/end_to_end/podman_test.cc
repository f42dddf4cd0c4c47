// podman behind the socket that speaks like Docker's: what is particular to it.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/with_engine.h"

namespace carrel::test {
namespace {

using std::chrono::seconds;

class Podman : public WithEngine<CarrelTest, DockerEngine::Kind::kPodman> {
 protected:
  Run podman(std::vector<std::string> words) const {
    return docker(std::move(words), {.timeout_seconds = 60});
  }
};
CARREL_AS_BOTH(Podman);

TEST_P(Podman, ACommandRunsInAContainerThatGoesWithIt) {
  const Run run = podman({"run", "--", "bash", "-c", "echo in; id -un; exit 7"});
  EXPECT_EQ(run.status, 7) << run.err;
  EXPECT_EQ(run.out, "in\nagent\n") << run.err;
}

TEST_P(Podman, ALongLivedOneIsUsedAsAnyOther) {
  const Box box(GetParam(), {"--backend", "docker"});
  EXPECT_EQ(box.sh("x=1; cd /tmp").status, 0);
  EXPECT_EQ(box.sh("echo $x $PWD").out, "1 /tmp\n");
  EXPECT_NE(box.info().dump().find("podman 4"), std::string::npos) << box.info().dump();
  EXPECT_EQ(box.remove().status, 0);
}

TEST_P(Podman, ThereIsNothingOfTheHostsGroupsInside) {
  const Run run = podman({"run", "--", "sh", "-c", "cut -d: -f3 /proc/self/cgroup | sort -u"});
  EXPECT_EQ(run.out, "/\n") << run.err;
}

TEST_P(Podman, WorkspacesAreThoseOfTheHost) {
  EXPECT_EQ(podman({"run", "--workspace", "w", "--", "sh", "-c", "echo kept > a"}).status, 0);
  EXPECT_EQ(carrel({"run", "--workspace", "w", "--", "cat", "a"}).out, "kept\n");
}

TEST_P(Podman, ItTakesNoRuntimeButItsOwn) {
  const Run run = podman({"run", "--runtime", "crun", "--", "true"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "takes no runtime but its own, 'runc'")) << run.err;
  const Run gvisor = podman({"run", "--runtime", "runsc", "--", "true"});
  EXPECT_EQ(gvisor.status, 125);
  EXPECT_TRUE(says_one_line(gvisor, "not used through podman")) << gvisor.err;
}

}  // namespace
}  // namespace carrel::test
