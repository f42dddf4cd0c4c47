#include "attacks/attack_test.h"

#include <algorithm>

namespace carrel::test {

const std::string& probe_bytes() {
  static const std::string bytes = read_text(probe_program()).value_or("");
  return bytes;
}

testing::AssertionResult held(const Run& run) {
  if (run.status == 0 && verdict_of(run.out) == "held") {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "status " << run.status << ", signal " << run.signal
                                     << (run.timed_out ? ", timed out" : "") << "\n"
                                     << run.out.substr(0, 4000) << run.err.substr(0, 2000);
}

bool is_running(const std::string& name) {
  const auto all = descendants();
  return std::any_of(all.begin(), all.end(),
                     [&](const HostProcess& process) { return process.name == name; });
}

void AttackTest::SetUp() {
  CarrelTest::SetUp();
  if (IsSkipped()) {
    return;
  }
  open_world();
  canaries_ = std::make_unique<Canaries>(place().work(GetParam()));
  before_ = host_state();
  mounts_before_ = mounts_here();
}

void AttackTest::TearDown() {
  if (IsSkipped()) {
    CarrelTest::TearDown();
    return;
  }
  EXPECT_EQ(canaries_->harmed(), "");
  EXPECT_EQ(harm_to_mounts(mounts_before_, mounts_here()), "");
  const auto after = host_state();
  for (const auto& [what, state] : before_) {
    EXPECT_TRUE(after.at(what) == state) << what << " was changed";
  }
  canaries_.reset();
  close_world();
  CarrelTest::TearDown();
}

void AttackTest::search_for_secret(const Run& run) const {
  EXPECT_EQ(run.out.find(canaries_->secret()), std::string::npos) << "the secret is in the output";
  EXPECT_EQ(run.err.find(canaries_->secret()), std::string::npos) << "the secret is in the errors";
}

CarrelTest::Run AttackTest::attack(const std::vector<std::string>& arguments, Options options) {
  options.environment.push_back(canaries_->variable());
  Run run = carrel(arguments, options);
  search_for_secret(run);
  return run;
}

CarrelTest::Run AttackTest::script(const std::string& text,
                                   const std::vector<std::string>& options) {
  std::vector<std::string> words = {"run"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "bash", "-c", text});
  return attack(words);
}

std::vector<std::string> AttackTest::probe_command(const std::string& name,
                                                   const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"bash",
                                    "-c",
                                    "cat > /tmp/probe && chmod +x /tmp/probe && "
                                    "exec /tmp/probe \"$@\" < /dev/null",
                                    "probe",
                                    mount_namespace(),
                                    name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

CarrelTest::Run AttackTest::probe(const std::string& name,
                                  const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& options) {
  std::vector<std::string> words = {"run"};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("--");
  for (const std::string& word : probe_command(name, arguments)) {
    words.push_back(word);
  }
  Options input;
  input.input = probe_bytes();
  return attack(words, input);
}

std::string AttackTest::create(const std::vector<std::string>& options) {
  std::vector<std::string> words = {"create"};
  words.insert(words.end(), options.begin(), options.end());
  const Run made = attack(words);
  EXPECT_EQ(made.status, 0) << made.err;
  return made.out.substr(0, made.out.find('\n'));
}

CarrelTest::Run AttackTest::sh(const std::string& id, const std::string& text,
                               const std::vector<std::string>& options) {
  std::vector<std::string> words = {"sh"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {id, text});
  return attack(words);
}

void AttackTest::expect_usable(const std::string& id, const std::string& after) {
  if (HasFailure()) {
    return;
  }
  const Run run = sh(id, "echo usable; (exit 9)", {"--timeout", "20"});
  EXPECT_EQ(run.out, "usable\n") << "after " << after;
  EXPECT_EQ(run.status, 9) << "after " << after << ": " << run.err;
}

}  // namespace carrel::test
