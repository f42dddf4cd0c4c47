#include "bench/flows.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/files.h"
#include "base/sha256.h"
#include "bench/sections.h"
#include "journal/run.h"
#include "journal/store.h"
#include "manager/self.h"
#include "storage/state.h"

namespace carrel::bench {
namespace {

constexpr Budget kListing{Budget::Better::kLess, 3, 1.5};
constexpr int kFew = 100;
constexpr int kMany = 100'000;
constexpr int kQuickMany = 10'000;
constexpr int kTurnsOfAFlow = 20;

// One turn in the workspace, whose command is the change; what came after the command.
Result<double> run_turn(const Setup& setup, const std::string& workspace,
                        const std::vector<std::string>& change) {
  CARREL_ASSIGN(const storage::Home home, storage::Home::open());
  CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
  journal::WorkspaceFiles files(workspace, setup.carrel);
  CARREL_ASSIGN(const std::unique_ptr<journal::Run> run,
                journal::Run::begin(journal, files, {.flow = "bench"}));
  double ended = 0;
  const auto body = [&](journal::Turn&) -> Result<journal::TurnOutput> {
    CARREL_ASSIGN(const manager::SelfRun done, manager::run_self(change, {setup.carrel, -1}));
    ended = now_ms();
    if (done.status != 0) {
      return Error{Code::kSystem, 0, done.errors, {}};
    }
    return journal::TurnOutput{"done"};
  };
  CARREL_TRY(run->turn({.prompt = storage::random_hex(16)}, body));
  const double took = now_ms() - ended;
  CARREL_TRY(run->finish());
  return took;
}

Status become(const Setup& setup, Who who, const std::string& home) {
  ::setenv("CARREL_HOME", home_path(setup, who, home).c_str(), 1);
  if (who == Who::kUser && (::setgroups(0, nullptr) != 0 ||
                            ::setresgid(setup.user.gid, setup.user.gid, setup.user.gid) != 0 ||
                            ::setresuid(setup.user.uid, setup.user.uid, setup.user.uid) != 0)) {
    return system_error("become the ordinary user");
  }
  return {};
}

Status add_flow(journal::Store& rows, int first) {
  return rows.in_transaction([&]() -> Status {
    for (int i = first; i < first + kTurnsOfAFlow; ++i) {
      journal::TurnRow row;
      row.id = storage::random_hex(16);
      row.execution = "e" + std::to_string(i / kTurnsOfAFlow);
      row.run = 1;
      row.position = i % kTurnsOfAFlow + 1;
      row.attempt = 1;
      row.name = "default";
      row.state = journal::TurnState::kFinished;
      row.key = sha256(row.id);
      row.text = std::string(400, 'x');
      row.logs = "{}";
      row.started_ms = storage::wall_clock_ms();
      row.ended_ms = row.started_ms + 10;
      row.parts = journal::record_parts({{"prompt", row.text}, {"model", "m"}});
      CARREL_TRY(rows.add_turn(row, "bench"));
    }
    return {};
  });
}

// A journal of so many turns, without their files. Stored a flow at a time: all of them in one
// transaction would leave a log of that size, which no journal has and every reader would read.
Status fill_journal(const std::string& path, int turns) {
  CARREL_ASSIGN(const storage::Home home, storage::Home::open_at(path));
  CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
  for (int first = 0; first < turns; first += kTurnsOfAFlow) {
    CARREL_TRY(add_flow(journal.rows(), first));
  }
  return {};
}

}  // namespace

Result<double> time_checkpoint(const Setup& setup, Who who, const std::string& home,
                               const std::string& workspace,
                               const std::vector<std::string>& change) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    Status ready = become(setup, who, home);
    auto took = ready.ok() ? run_turn(setup, workspace, change) : Result<double>(ready.error());
    const Status told = write_all(
        to.get(), took.ok() ? std::to_string(took.value()) : "-" + took.error().to_string());
    ::_exit(told.ok() ? 0 : 1);
  }
  to.reset();
  CARREL_ASSIGN(const std::string answer, read_all(from.get(), 1 << 16));
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (answer.empty() || answer.front() == '-') {
    return Error{Code::kSystem, 0, "a turn: " + answer, {}};
  }
  return std::strtod(answer.c_str(), nullptr);
}

void measure_flows(const Setup& setup, Effort effort, Report& report) {
  const int many = effort == Effort::kFull ? kMany : kQuickMany;
  const std::string few_name = "a journal of " + std::to_string(kFew);
  const std::string many_name = "a journal of " + std::to_string(many);
  for (const auto& [home, turns] : {std::pair("few", kFew), std::pair("many", many)}) {
    if (Status filled = fill_journal(home_path(setup, Who::kRoot, home), turns); !filled.ok()) {
      report.leave_out("the newest turns", filled.error().to_string());
      return;
    }
  }
  const auto list = [&](const char* home) {
    return time_run(carrel_launch(setup, Who::kRoot, home, {"flow", "turns", "--json"}));
  };
  std::vector<Contender> contenders;
  contenders.push_back(Contender{few_name, [&] { return list("few"); }});
  contenders.push_back(Contender{many_name, [&] { return list("many"); }, few_name, kListing});
  interleave(report, "the newest 20 turns", "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{3, 50} : Rounds{1, 5});
}

}  // namespace carrel::bench
