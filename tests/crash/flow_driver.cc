// A flow without a model, for tests: flow_driver CARREL SCENARIO
//
// SCENARIO is a JSON file:
//
//   {"flow": "f", "execution": "e", "workspace": "w", "files": "keep", "granularity": "call",
//    "replay": {"source": "e", "from": "2", "mode": "live", "overrides": [...]},
//    "turns": [{"step": "", "prompt": "", "command": "", "inputs": {}, "skills": {}, "retries": 0,
//               "wait": "question"}]}
//
// A turn's command runs in the shell of a long-lived sandbox, which is made when it is needed, and
// its output is what the turn answers. On stdout there is one JSON object a line: {"ran": NAME}
// when a body begins, {"turn": NAME, "how": "live", "text": ...} when a turn is there. Events and
// errors go to stderr.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "journal/run.h"
#include "manager/self.h"
#include "storage/state.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::test {
namespace {

using nlohmann::json;

void say(const json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
}

// The sandbox of an execution, which has its name.
class Sandbox {
 public:
  Sandbox(std::string program, std::string name, std::string workspace)
      : program_(std::move(program)), name_(std::move(name)), workspace_(std::move(workspace)) {}

  // What a run before this one left is ended, too.
  Status stop() {
    made_ = false;
    CARREL_TRY(manager::run_self({"rm", "--force", name_}, {program_, -1}));
    return {};
  }
  Result<json> run(const std::string& command) {
    // What a killed run had started may still be making one of that name.
    for (int round = 0; !made_; ++round) {
      auto made = manager::ask_self(
          {"create", "--json", "--name", name_, "--workspace", workspace_}, {program_, -1});
      if (!made.ok() && (made.error().code != Code::kConflict || round == 50)) {
        return made.error();
      }
      if (!made.ok()) {
        CARREL_TRY(stop());
        ::usleep(100'000);
      }
      made_ = made.ok();
    }
    CARREL_ASSIGN(const manager::SelfRun run,
                  manager::run_self({"sh", "--json", name_, command}, {program_, -1}));
    json result = json::parse(run.output, nullptr, false);
    if (!result.is_object() || result.contains("error")) {
      return Error{Code::kGone, 0, "the sandbox: " + run.output + run.errors, {}};
    }
    return result;
  }

 private:
  std::string program_;
  std::string name_;
  std::string workspace_;
  bool made_ = false;
};

std::vector<journal::KeyPart> parts(const json& object) {
  std::vector<journal::KeyPart> list;
  for (const auto& member : object.items()) {
    list.push_back({member.key(), member.value().get<std::string>()});
  }
  return list;
}

journal::RunOptions options_of(const json& scenario) {
  journal::RunOptions options;
  options.flow = scenario.value("flow", "default");
  options.execution = scenario.value("execution", "");
  options.cached_files = scenario.value("files", "") == "keep" ? journal::CachedFiles::kKeep
                                                               : journal::CachedFiles::kPutBack;
  options.granularity = scenario.value("granularity", "") == "call" ? journal::Granularity::kCall
                                                                    : journal::Granularity::kTurn;
  if (scenario.contains("replay")) {
    const json& replay = scenario["replay"];
    options.replay = journal::Replay{replay.value("source", ""), replay.value("from", "")};
    if (replay.value("mode", "") == "live") {
      options.replay->mode = journal::Replay::Mode::kLive;
    }
    for (const json& change : replay.value("overrides", json::array())) {
      options.replay->overrides.push_back(
          {change.value("turn", ""), change.value("name", ""), change.value("value", "")});
    }
  }
  options.tell = [](const journal::RunEvent& event) {
    std::cerr << journal::event_line(event) << std::endl;
  };
  return options;
}

Result<journal::TurnOutput> act(journal::Run& run, journal::Turn& turn, Sandbox& sandbox,
                                const json& step) {
  say({{"ran", turn.name()}});
  if (step.contains("wait")) {
    const std::string question = step["wait"];
    CARREL_ASSIGN(const std::string name, journal::wait_name(run.next_question(), question));
    CARREL_ASSIGN(const std::string answer,
                  run.wait({name, question, "", std::chrono::milliseconds(step.value("wait_ms", 0)),
                            std::chrono::milliseconds(20)}));
    return journal::TurnOutput{answer};
  }
  const std::string command = step.value("command", "");
  CARREL_ASSIGN(const auto called,
                turn.call({.name = "exec",
                           .arguments = json{{"command", command}}.dump(),
                           .effects = journal::Effects::kPossible},
                          [&]() -> Result<journal::CallOutcome> {
                            CARREL_ASSIGN(const json result, sandbox.run(command));
                            return journal::CallOutcome{result.value("stdout", ""),
                                                        result.value("exit_code", -1)};
                          }));
  if (called.outcome.exit_code != 0 && step.value("retries", 0) > 0) {
    return Error{Code::kUnavailable, 0, "the command failed", {}};
  }
  return journal::TurnOutput{called.outcome.result};
}

Status play(const std::string& program, const json& scenario) {
  CARREL_ASSIGN(const storage::Home home, storage::Home::open());
  CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
  const std::string workspace = scenario.value("workspace", "w");
  {
    storage::WorkspaceRow row;
    row.name = workspace;
    row.created_ms = storage::wall_clock_ms();
    row.used_ms = row.created_ms;
    CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
    CARREL_TRY(store.ensure(row));
  }
  journal::WorkspaceFiles files(workspace, program);
  journal::RunOptions options = options_of(scenario);
  CARREL_ASSIGN(options.switches, journal::switches_from_environment());
  Sandbox sandbox(program, scenario.value("sandbox", "flow"), workspace);
  CARREL_TRY(sandbox.stop());
  options.stop_sandbox = [&] { return sandbox.stop(); };
  CARREL_ASSIGN(const std::unique_ptr<journal::Run> run,
                journal::Run::begin(journal, files, std::move(options)));
  std::string last;
  Status done;
  for (const json& step : scenario["turns"]) {
    journal::TurnSubject subject;
    subject.step = step.value("step", "");
    subject.prompt = step.value("prompt", "");
    subject.inputs = parts(step.value("inputs", json::object()));
    subject.inputs.push_back({"last", last});
    subject.skills = parts(step.value("skills", json::object()));
    subject.tools = step.value("command", "");
    auto result = run->turn(subject, {.retries = step.value("retries", 0)},
                            [&](journal::Turn& turn) { return act(*run, turn, sandbox, step); });
    if (!result.ok()) {
      done = result.error();
      break;
    }
    constexpr std::array<const char*, 3> kHow = {"live", "cached", "overridden"};
    say({{"turn", result->name},
         {"how", kHow.at(static_cast<std::size_t>(result->how))},
         {"text", result->output.text}});
    last = result->output.text;
  }
  CARREL_TRY(sandbox.stop());
  return done.ok() ? run->finish() : std::move(done);
}

}  // namespace
}  // namespace carrel::test

int main(int count, char** words) {
  std::ifstream file(count == 3 ? words[2] : "/dev/null");
  const nlohmann::json scenario = nlohmann::json::parse(file, nullptr, false);
  if (!scenario.is_object()) {
    std::cerr << "usage: flow_driver CARREL SCENARIO\n";
    return 2;
  }
  const carrel::Status done = carrel::test::play(words[1], scenario);
  if (!done.ok()) {
    std::cerr << "flow_driver: " << done.error().to_string() << "\n";
    return 1;
  }
  return 0;
}
