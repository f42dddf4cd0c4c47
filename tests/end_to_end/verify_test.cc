// carrel verify: the shipped form of the attacks. That it notices what is left out is in
// tests/weakened.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/fixture.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Verify : public CarrelTest {
 protected:
  // What it may have planted: in its TMPDIR, in the home folder that it was given, and processes.
  [[nodiscard]] std::string planted() const {
    std::string found;
    for (const std::string& folder : {place().temporary(GetParam()), home_folder()}) {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().filename();
        if (name.find("CANARY") != name.npos || name.starts_with("carrel-verify")) {
          found += entry.path().string() + "\n";
        }
      }
    }
    return found;
  }

  [[nodiscard]] std::string home_folder() const { return place().work(GetParam()); }

  Run verify(std::vector<std::string> words) const {
    words.insert(words.begin(), "verify");
    Options options;
    options.environment = {"HOME=" + home_folder()};
    options.timeout_seconds = 150;
    return carrel(words, options);
  }

  static std::map<std::string, json> findings(const Run& run) {
    std::map<std::string, json> all;
    const json report = json::parse(run.out, nullptr, false);
    if (report.is_object()) {
      for (const json& one : report["findings"]) {
        all[one["name"]] = one;
      }
    }
    return all;
  }
};
CARREL_AS_BOTH(Verify);

// R277 to R281
TEST_P(Verify, EverythingHoldsWithTheDefaults) {
  const Run run = verify({"--json", "--junit", place().work(GetParam()) + "/results.xml"});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_LT(run.duration, patient(seconds(120)));
  const json report = json::parse(run.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << run.out << run.err;
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(report["backend"], "native");
  std::set<std::string> groups;
  for (const json& one : report["findings"]) {
    groups.insert(one["group"]);
    EXPECT_NE(one["tries"], "") << one;
    EXPECT_TRUE(one["verdict"] == "held" || one["detail"] != "") << one;
  }
  EXPECT_EQ(groups, (std::set<std::string>{"fs", "net", "proc", "res", "limits", "persist",
                                           "privileges", "syscalls", "session"}));
  const std::string junit =
      read_text(place().work(GetParam()) + "/results.xml").value_or("missing");
  EXPECT_NE(junit.find("<testsuite name=\"carrel.verify.fs\""), std::string::npos) << junit;
  EXPECT_NE(junit.find("A01_NoCanaryIsFoundInTheTree"), std::string::npos);
  EXPECT_EQ(junit.find("<failure"), std::string::npos) << junit;
  EXPECT_EQ(planted(), "");
}

TEST_P(Verify, ATableSaysWhatHeldGroupByGroup) {
  const Run run = verify({"--only", "syscalls"});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("syscalls    system calls")) << run.out;
  EXPECT_NE(run.out.find("\nEverything held (native): "), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("files outside"), std::string::npos);
}

TEST_P(Verify, WhatThePolicyGrantsIsToldAndIsNoHole) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  file("data/kept", "mine\n");
  const std::string policy = file("policy.toml",
                                  "network = \"full\"\nwritable_root = true\nworkspace = \"w\"\n"
                                  "mounts = [\"" +
                                      data + ":/data:rw\"]\n");
  for (const char* group : {"net", "fs"}) {
    const Run run = verify({"--json", "--policy", policy, "--only", group});
    EXPECT_EQ(run.status, 0) << run.out << run.err;
    auto all = findings(run);
    const char* granted = group == std::string("net") ? "D07_NothingOutsideIsReached"
                                                      : "A05_SystemFilesCannotBeChanged";
    EXPECT_EQ(all[granted]["verdict"], "granted") << run.out;
    EXPECT_NE(all[granted]["detail"], "");
    EXPECT_NE(run.out.find("granted by the policy: network full"), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("granted by the policy: mount /data, writable"), std::string::npos);
    EXPECT_NE(run.out.find("in place of 'w'"), std::string::npos);
  }
  EXPECT_EQ(read_text(data + "/kept"), "mine\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(data), {}), 1);
}

TEST_P(Verify, OtherWallsHoldAndWhatTheyDoNotPromiseHasItsReason) {
  for (const std::string backend : {"bubblewrap", "oci"}) {
    const Run run = verify({"--json", "--backend", backend, "--only", "privileges"});
    EXPECT_EQ(run.status, 0) << run.out << run.err;
    auto all = findings(run);
    EXPECT_EQ(all["E01_NoCapabilityIsHeld"]["verdict"], "held") << run.out;
    EXPECT_EQ(all["E05_NoNamespaceCanBeMadeByQuota"]["verdict"], "not applicable") << run.out;
    EXPECT_NE(all["E05_NoNamespaceCanBeMadeByQuota"]["detail"], "");
  }
}

TEST_P(Verify, WhatCannotBeTriedIsNoSuccess) {
  EXPECT_EQ(verify({"--backend", "kubernetes"}).status, 125);
  EXPECT_EQ(verify({"--only", "everything"}).status, 125);
  EXPECT_EQ(verify({"--image", "dir:/nowhere"}).status, 125);
  const Run weak = verify({"--backend", "native", "--isolation", "vm"});
  EXPECT_EQ(weak.status, 125);
  EXPECT_TRUE(says_one_line(weak, "weaker than 'vm'")) << weak.err;
  EXPECT_EQ(planted(), "");
}

TEST_P(Verify, AnInterruptedRunLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    Options options;
    options.environment = {"HOME=" + home_folder()};
    Process running(launch({"verify"}, options));
    ASSERT_TRUE(running.wait_for_output("fs ", seconds(60)));
    EXPECT_NE(planted(), "");
    running.send(signal);
    const Run run = running.wait(seconds(30));
    EXPECT_FALSE(run.timed_out);
    EXPECT_EQ(run.status, signal == SIGKILL ? -1 : 130) << run.err;
    EXPECT_TRUE(eventually(seconds(10), [&] { return planted().empty(); })) << planted();
  }
  // The mark of a one-shot whose owner was killed is removed by the next one, as ever.
  EXPECT_EQ(carrel({"run", "--", "true"}).status, 0);
}

}  // namespace
}  // namespace carrel::test
