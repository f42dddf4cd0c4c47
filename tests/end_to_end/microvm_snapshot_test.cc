// Machines that go on from one that was saved: what is particular to them. What holds for all
// machines is in microvm_test.cc, which runs from a snapshot, too.
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/box.h"
#include "support/fixture.h"
#include "support/machines.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

const std::vector<std::string> kMachine = {"--backend", "microvm"};

class MicrovmSnapshot : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    use_saved_machines();
  }
  void TearDown() override {
    await_savers();
    CarrelTest::TearDown();
  }

  Run run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"run", "--backend", "microvm", "--"});
    return carrel(std::move(words), {.timeout_seconds = 120});
  }

  static json row(const json& info, const std::string& name) {
    for (const json& one : info["enforcement"]) {
      if (one["name"] == name) {
        return one;
      }
    }
    return {};
  }

  std::string snapshot() const {
    const std::vector<std::string> names = saved_machines(GetParam());
    EXPECT_EQ(names.size(), 1U);
    return folder_of_saved_machines(GetParam()) + "/" + (names.empty() ? "none" : names[0]);
  }

  static std::string words_of_vmm() {
    for (const HostProcess& one : descendants()) {
      if (one.name.starts_with("qemu-system") && !is_being_saved(one.pid)) {
        return read_text("/proc/" + std::to_string(one.pid) + "/cmdline").value_or("");
      }
    }
    return {};
  }
};
CARREL_AS_BOTH(MicrovmSnapshot);

TEST_P(MicrovmSnapshot, OneIsMadeAndTheNextGoesOnFromIt) {
  plant_saved_machine(GetParam());
  struct stat info{};
  ASSERT_EQ(::lstat(snapshot().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFREG | 0600);
  EXPECT_EQ(info.st_uid, as_root() ? 0U : place().user_id());
  EXPECT_GT(info.st_size, 16 << 20);
  const Box box(GetParam(), kMachine);
  EXPECT_EQ(row(box.info(), "started from")["by"], "snapshot") << box.info();
  const std::string words = words_of_vmm();
  EXPECT_NE(words.find("-incoming"), std::string::npos) << words;
  // CRITICAL: nobody can talk to it.
  EXPECT_EQ(words.find(std::string("\0-mon\0", 6)), std::string::npos) << words;
  EXPECT_EQ(words.find("id=monitor"), std::string::npos) << words;
  EXPECT_EQ(box.sh("echo on").out, "on\n");
}

// CRITICAL: two machines that have one past have nothing secret in common.
TEST_P(MicrovmSnapshot, TwoOfOneSnapshotDiffer) {
  plant_saved_machine(GetParam());
  const std::vector<std::string> script = {
      "bash", "-c",
      "cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/uuid; "
      "head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n'; echo; "
      "cat /proc/sys/kernel/random/boot_id; date +%s.%N; cut -d' ' -f28 /proc/self/stat; "
      "hostname"};
  std::vector<std::vector<std::string>> told;
  for (int i = 0; i < 2; ++i) {
    const auto before = std::chrono::system_clock::now();
    const Run one = run(script);
    const auto after = std::chrono::system_clock::now();
    ASSERT_EQ(one.status, 0) << one.err;
    std::istringstream lines(one.out);
    told.emplace_back();
    for (std::string line; std::getline(lines, line);) {
      told.back().push_back(line);
    }
    ASSERT_EQ(told.back().size(), 7U) << one.out;
    const auto at = [](auto time) {
      return std::chrono::duration<double>(time.time_since_epoch()).count();
    };
    // The clock is the host's.
    const double date = std::stod(told.back()[4]);
    EXPECT_GT(date, at(before) - 0.5);
    EXPECT_LT(date, at(after) + 0.5);
  }
  for (const std::size_t line : {0U, 1U, 2U, 3U}) {
    EXPECT_NE(told[0][line], told[1][line]) << line;
  }
  EXPECT_NE(told[0][0], told[0][1]);
  EXPECT_TRUE(std::filesystem::exists(snapshot()));  // both were from it
}

TEST_P(MicrovmSnapshot, ABrokenOneIsRemovedAndTheMachineBoots) {
  plant_saved_machine(GetParam());
  const std::string broken = snapshot();
  std::filesystem::resize_file(broken, std::filesystem::file_size(broken) / 2);
  const Box box(GetParam(), kMachine);
  EXPECT_EQ(box.sh("echo on").out, "on\n");
  const json told = row(box.info(), "started from");
  EXPECT_EQ(told["by"], "boot") << told;
  EXPECT_NE(told["note"].get<std::string>().find("could not be used"), std::string::npos) << told;
  EXPECT_FALSE(std::filesystem::exists(broken));
  EXPECT_NE(words_of_vmm().find("-kernel"), std::string::npos);
}

// Whoever can write it owns the machine.
TEST_P(MicrovmSnapshot, OneThatIsNotTheCallersAloneIsRefused) {
  plant_saved_machine(GetParam());
  const std::string path = snapshot();
  ASSERT_EQ(::chmod(path.c_str(), 0660), 0);
  {
    const Box box(GetParam(), kMachine);
    const json told = row(box.info(), "started from");
    EXPECT_EQ(told["by"], "boot") << told;
    EXPECT_NE(told["note"].get<std::string>().find("not yours alone"), std::string::npos) << told;
    EXPECT_EQ(box.remove().status, 0);
  }
  const std::string folder = folder_of_saved_machines(GetParam());
  ASSERT_EQ(::chmod(folder.c_str(), 0770), 0);
  const Box box(GetParam(), kMachine);
  EXPECT_EQ(row(box.info(), "started from")["by"], "boot");
}

TEST_P(MicrovmSnapshot, TheyCanBeSwitchedOff) {
  const Run ran = carrel({"run", "--backend", "microvm", "--", "true"},
                         {.environment = {"CARREL_VM_SNAPSHOTS=off"}, .timeout_seconds = 120});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(folder_of_saved_machines(GetParam())));
}

}  // namespace
}  // namespace carrel::test
