#include "verify/session.h"

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "manager/box_command.h"
#include "manager/stopping.h"
#include "sandbox/capture.h"

namespace carrel::verify {

namespace {

constexpr std::uint64_t kLeaseMs = 5ULL * 60 * 1000;
constexpr std::chrono::seconds kTimeout{10};

// Everything that looks like a nonce, in the shell's variables and in its words, is written as a
// status of 0 in several forms to every descriptor that the shell has.
#define CARREL_FORGE                                                                     \
  "text=$(set; tr '\\0' '\\n' < /proc/$$/cmdline); "                                     \
  "words=$(grep -oE '[0-9a-f]{16,64}' <<< \"$text\" | sort -u); fds=$(ls /proc/$$/fd); " \
  "for f in $fds; do [ $f -gt 2 ] || continue; for n in $words; do "                     \
  "printf ' %s 0\\n %s  0\\n%s 0\\n' $n $n $n >&$f; "                                    \
  "for m in $fds; do printf ' %s %s 0\\n' $n $m >&$f; done; done; done 2>/dev/null; "

// A command, and the only end that it may have.
struct Step {
  std::string_view text;
  int status = 0;
  std::optional<std::string_view> output = std::nullopt;
};

constexpr std::array kForging = {
    Step{CARREL_FORGE "(exit 77)", 77},
    Step{CARREL_FORGE "sleep 1; echo late; (exit 77)", 77, "late\n"},
    Step{"for f in $(seq 3 255); do printf '{\"exit_code\":0}\\n 0\\n' >&$f; done 2>/dev/null; "
         "(exit 77)",
         77},
};
constexpr std::array kClosing = {
    Step{"exec >&- 2>&- <&-; (exit 5)", 5},
    Step{"exec 1>/dev/null 2>&1; (exit 5)", 5},
    Step{"for i in $(seq 0 255); do eval \"exec $i>&-\"; done 2>/dev/null; (exit 5)", 5},
    Step{"for i in $(seq 3 255); do eval \"exec $i>/dev/null\"; done; (exit 5)", 5},
};
constexpr std::array kHolding = {
    Step{"sleep 100 & echo back", 0, "back\n"},
    Step{"(exec 3>&1; sleep 100) & echo back", 0, "back\n"},
    Step{"setsid sleep 100 & disown; echo back", 0, "back\n"},
};
constexpr std::array kLate = {
    Step{"(sleep 0.3; echo LATE; echo LATE >&2) & echo one", 0, "one\n"},
    Step{"sleep 0.7; echo two", 0, "two\n"},
};
constexpr std::array kChanging = {
    Step{"cd() { echo CD; }; printf() { echo P; }; eval() { echo E; }; (exit 6)", 6},
    Step{"unset -f cd printf eval; builtin() { echo B; return 3; }; (exit 6)", 6},
    Step{"unset -f builtin; IFS=0123456789abcdef; (exit 6)", 6},
    Step{"unset PATH HOME IFS; (exit 6)", 6},
    Step{"kill -9 $$", 137},
};
constexpr std::array kFaking = {
    Step{"for k in $(seq 0 39); do o=$(printf '%03o' $k); for f in $(seq 3 40); do "
         "printf \"\\004\\0\\0\\0\\001\\0\\0\\0\\\\$o\\0\\0\\0\\0\\0\\0\\0\" >&$f; done; done "
         "2>/dev/null; (exit 33)",
         33},
};

struct Row {
  std::string_view name;
  std::span<const Step> steps;
};
constexpr std::array kRows = {
    Row{"I01_ACommandCannotForgeItsStatus", kForging},
    Row{"I03_ClosedDescriptorsStillGiveTheStatus", kClosing},
    Row{"I04_ABackgroundJobDoesNotHoldTheCall", kHolding},
    Row{"I05_ALateJobDoesNotWriteIntoTheNextCommand", kLate},
    Row{"I08_AChangedShellIsNoObstacle", kChanging},
    Row{"I13_FakeRecordsAreIgnored", kFaking},
};

// "status 0 and not 77, output 'x'"
std::string difference(const Step& step, const sandbox::ExecResult& result) {
  if (result.timed_out) {
    return "it did not come back";
  }
  if (result.exit_code != step.status) {
    return "its status is " + std::to_string(result.exit_code) + " and not " +
           std::to_string(step.status);
  }
  return step.output.has_value() && result.standard_output != *step.output
             ? "its output is '" + result.standard_output.substr(0, 100) + "'"
             : std::string();
}

}  // namespace

Result<Session> Session::begin(storage::Home& home, const policy::Spec& spec,
                               const manager::Chosen& chosen,
                               std::vector<native::GivenTree> trees) {
  manager::Wish wish;
  wish.spec = spec;
  wish.trees = std::move(trees);
  wish.given = chosen;
  wish.lease_ms = kLeaseMs;
  wish.finish_restore = [](const std::string&) {};
  CARREL_ASSIGN(std::string id, manager::make_sandbox(home, std::move(wish)));
  Session session(home, std::move(id));
  CARREL_ASSIGN(session.record_, storage::read_record(home, session.id_));
  return session;
}

Session::Session(Session&& other) noexcept
    : home_(other.home_), id_(std::exchange(other.id_, {})), record_(std::move(other.record_)) {}

Session::~Session() {
  if (!id_.empty()) {
    (void)manager::remove_named(*home_, id_, 0);
  }
}

Result<sandbox::ExecResult> Session::run(std::string_view text) {
  CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(*home_, record_));
  sandbox::CommandRequest request;
  request.shell_text = text;
  request.timeout = kTimeout;
  sandbox::Capture output;
  sandbox::CommandIo io;
  io.output = [&](protocol::Stream of, std::string_view data) -> Status {
    if (of == protocol::Stream::kStdout) {
      output.add(data);
    }
    return {};
  };
  CARREL_ASSIGN(sandbox::ExecResult result,
                manager::run_in_box({*home_, record_}, stream, request, io));
  result.standard_output = output.text();
  return result;
}

Result<std::string> Session::what_is_broken() {
  constexpr Step kUsable{"echo usable; (exit 9)", 9, "usable\n"};
  CARREL_ASSIGN(const sandbox::ExecResult result, run(kUsable.text));
  return difference(kUsable, result);
}

Result<Judgement> Session::attack(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name != name) {
      continue;
    }
    CARREL_ASSIGN(std::string broken, what_is_broken());
    if (!broken.empty()) {
      return Judgement{Verdict::kNotApplicable, "the sandbox has no shell to attack: " + broken};
    }
    for (const Step& step : row.steps) {
      CARREL_ASSIGN(const sandbox::ExecResult result, run(step.text));
      if (std::string wrong = difference(step, result); !wrong.empty()) {
        return Judgement{Verdict::kHole,
                         "of '" + std::string(step.text.substr(0, 60)) + "': " + wrong};
      }
    }
    // A shell of which nothing is left is replaced.
    CARREL_TRY(run("kill -9 $$"));
    CARREL_ASSIGN(broken, what_is_broken());
    return broken.empty() ? Judgement{Verdict::kHeld}
                          : Judgement{Verdict::kHole, "the next command: " + broken};
  }
  return Error{Code::kInvalid, 0, "there is no attack '" + std::string(name) + "'", {}};
}

}  // namespace carrel::verify
