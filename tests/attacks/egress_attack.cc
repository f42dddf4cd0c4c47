#include "attacks/egress_attack.h"

#include <signal.h>
#include <unistd.h>

#include <sstream>
#include <vector>

namespace carrel::test {

void EgressAttack::SetUp() {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "an internet of the test's own takes root";
  }
  AttackTest::SetUp();
}

void EgressAttack::open_world() {
  internet_ = std::make_unique<Internet>(place().work(As::kRoot) + "/internet");
}

void EgressAttack::TearDown() {
  if (::geteuid() == 0) {
    AttackTest::TearDown();
  }
}

std::string EgressAttack::text_of(const std::string& code) {
  static const std::string kClient = read_text(CARREL_EGRESS_CLIENT).value_or("");
  return "SLOWNESS = " + std::to_string(slowness()) + "\n" + kClient + code +
         "\nprint('finished')\n";
}

EgressAttack::Names EgressAttack::attempts_of(const Run& run, const std::string& where) {
  EXPECT_NE(run.out.find("finished\n"), std::string::npos)
      << where << ": status " << run.status << "\n"
      << run.out << run.err;
  Names names;
  std::istringstream lines(run.out);
  constexpr std::string_view kThrough = "through ";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kThrough)) {
      names.insert(line.substr(kThrough.size()));
    }
  }
  RecordProperty(where, run.out);
  return names;
}

EgressAttack::Names EgressAttack::through(const std::string& network, const std::string& code,
                                          const std::vector<std::string>& options) {
  Options how;
  how.input = text_of(code);
  how.timeout_seconds = 120;
  std::vector<std::string> words = {"code", "--lang",    "python", "--timeout",
                                    "110",  "--network", network};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("-");
  return attempts_of(attack(words, how), "inside");
}

EgressAttack::Names EgressAttack::through_in(const std::string& id, const std::string& code) {
  Options options;
  options.input = text_of(code);
  options.timeout_seconds = 120;
  return attempts_of(attack({"exec", "--timeout", "110", id, "--", "python3", "-"}, options),
                     "inside");
}

EgressAttack::Names EgressAttack::through_outside(const std::string& code) {
  Launch launch;
  launch.program = "/usr/bin/python3";
  launch.arguments = {"-B", "-"};
  launch.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  launch.directory = "/";
  Process process(launch);
  process.write(text_of(code));
  return attempts_of(process.wait(std::chrono::seconds(120)), "outside");
}

EgressAttack::Names EgressAttack::reached() const {
  const std::vector<std::string> all = internet_->packets();
  Names names(all.begin(), all.end());
  names.erase("udp 11.0.0.53 53");
  return names;
}

pid_t EgressAttack::egress_process() const {
  const std::vector<HostProcess> all = processes_of("egress");
  for (const HostProcess& one : all) {
    for (const HostProcess& above : all) {
      if (one.parent == above.pid) {
        return one.pid;
      }
    }
  }
  return 0;
}

void EgressAttack::kill_egress() const {
  const pid_t works = egress_process();
  ASSERT_GT(works, 0);
  for (const HostProcess& one : processes_of("egress")) {
    if (one.pid != works) {
      ASSERT_EQ(::kill(one.pid, SIGKILL), 0);
    }
  }
  ASSERT_EQ(::kill(works, SIGKILL), 0);
}

void EgressAttack::set_network(const std::string& id, const std::string& network) {
  const Run run = carrel({"net", "set", id, network});
  EXPECT_EQ(run.status, 0) << run.err;
}

}  // namespace carrel::test
