#include "agent/agent.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/model_choice.h"
#include "agent/saved_plan.h"
#include "backends/native/remains.h"
#include "base/utf8.h"
#include "cli/agent_order.h"
#include "cli/agent_output.h"
#include "cli/context.h"
#include "cli/flow.h"
#include "cli/output.h"
#include "journal/journal.h"
#include "manager/owned.h"
#include "tools/host_program.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kFailed = 1;
constexpr int kCancelled = 130;
constexpr std::size_t kLongestLine = 1U << 20;

const tools::Cancel* to_cancel = nullptr;

// The first Ctrl-C ends the turn, the second this program.
void on_signal(int /*number*/) { to_cancel->ask(); }

void catch_signals(const tools::Cancel& cancel) {
  to_cancel = &cancel;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    ::sigaction(number, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);
}

// A line of the standard input; kUnavailable at its end, and when it was cancelled.
Result<std::string> read_line(const tools::Cancel& cancel) {
  std::string line;
  for (char c = 0; line.size() < kLongestLine;) {
    pollfd look[2] = {{STDIN_FILENO, POLLIN, 0}, {cancel.fd(), POLLIN, 0}};
    if (::poll(look, 2, -1) < 0 && errno != EINTR) {
      return system_error("wait for a line");
    }
    if (look[1].revents != 0) {
      return tools::cancelled();
    }
    if (look[0].revents == 0) {
      continue;
    }
    const ssize_t size = ::read(STDIN_FILENO, &c, 1);
    if (size <= 0) {
      break;
    }
    if (c == '\n') {
      return line;
    }
    line += c;
  }
  return line.empty() ? Result<std::string>(Error{Code::kUnavailable, 0, "nobody is there", {}})
                      : line;
}

// The person at this terminal, if this is one.
class PersonHere final : public agent::Person {
 public:
  PersonHere(const Context& context, const tools::Cancel& cancel)
      : context_(context), cancel_(cancel) {}

  Result<std::string> ask(const std::string& question) override {
    if (context_.json() || ::isatty(STDIN_FILENO) == 0) {
      return Error{Code::kUnavailable, 0, "nobody is there", {}};
    }
    print_error("the agent asks: " + printable(question) + "\n? ");
    return read_line(cancel_);
  }
  void is_asked(const std::string& execution, const std::string& name,
                const std::string& question) override {
    print_error("the agent asks: " + printable(question) + "\nanswer with: carrel flow answer " +
                execution + " " + name + " '\"TEXT\"'\n");
  }

 private:
  const Context& context_;
  const tools::Cancel& cancel_;
};

std::string_view how_name(journal::How how) {
  return how == journal::How::kLive     ? "live"
         : how == journal::How::kCached ? "cached"
                                        : "overridden";
}

// What a turn changed in the workspace: [{change, path}]. By a process of its own: to read a
// workload's files takes rights that this one is better without.
Json changes_of(const storage::Home& home, const std::string& execution, const std::string& turn) {
  tools::HostProgram program;
  program.arguments = {"/proc/self/exe", "flow", "diff", execution, turn, "--names", "--json"};
  program.variables = {"CARREL_HOME=" + home.path()};
  auto result = tools::run_on_host(program, tools::Cancel());
  if (!result.ok() || !result->success()) {
    return Json::array();
  }
  const Json object = Json::parse(result->standard_output, nullptr, false);
  return object.is_object() ? object.value("changes", Json::array()) : Json::array();
}

// "changed: added notes.txt", a line for each of the first ones.
std::string changes_text(const Json& changes, const std::string& command) {
  constexpr std::size_t kMostShown = 12;
  std::string text;
  for (std::size_t i = 0; i < changes.size() && i < kMostShown; ++i) {
    text += "changed: " + printable(changes[i].value("change", "")) + " " +
            printable(changes[i].value("path", "")) + "\n";
  }
  if (changes.size() > kMostShown) {
    text +=
        "changed: " + std::to_string(changes.size() - kMostShown) + " more, see " + command + "\n";
  }
  return text;
}

// One run of an agent, with what is shown of it.
class AgentRun {
 public:
  AgentRun(const Context& context, storage::Home& home, AgentOrder order)
      : context_(context), home_(home), order_(std::move(order)) {}

  int run();

 private:
  Status all_turns(agent::Agent& agent, const tools::Cancel& cancel);
  Status one_turn(agent::Agent& agent, const agent::FlowFile::Turn& turn);
  int show_end(const agent::Agent& agent, const Status& done, bool is_kept);
  int stop_early(const Error& why);
  void forget_new();

  const Context& context_;
  storage::Home& home_;
  AgentOrder order_;
  AgentTranscript transcript_;
  AgentRecord record_;
  Json turns_ = Json::array();
};

Status AgentRun::one_turn(agent::Agent& agent, const agent::FlowFile::Turn& turn) {
  CARREL_ASSIGN(const agent::Agent::Turn done, agent.turn(turn.name, turn.prompt));
  const Json changes =
      done.changed == 0 ? Json::array() : changes_of(home_, agent.execution(), done.id);
  if (context_.json()) {
    turns_.push_back({{"id", done.id},
                      {"name", done.name},
                      {"how", how_name(done.how)},
                      {"text", replace_invalid_utf8(done.text)},
                      {"duration_ms", done.duration_ms},
                      {"model_calls", done.steps},
                      {"changes", changes},
                      {"calls", record_.take_calls()}});
    return {};
  }
  if (done.how != journal::How::kLive) {
    transcript_.said(done.text);
    transcript_.said_all();
  }
  print_error(changes_text(changes, "carrel flow diff " + agent.execution() + " " + done.name));
  return {};
}

Status AgentRun::all_turns(agent::Agent& agent, const tools::Cancel& cancel) {
  std::vector<agent::FlowFile::Turn>& turns = order_.plan.flow.turns;
  for (std::size_t i = 0;; ++i) {
    if (i == turns.size()) {
      if (order_.prompts == AgentOrder::Prompts::kGiven) {
        return {};
      }
      print_error("> ");
      auto line = read_line(cancel);
      if (!line.ok()) {
        return line.error().code == Code::kUnavailable ? Status() : Status(line.error());
      }
      if (line->empty()) {
        --i;
        continue;
      }
      turns.push_back({{}, std::move(line.value())});
      CARREL_TRY(agent::save_plan(home_, order_.execution, order_.plan));
    }
    CARREL_TRY(one_turn(agent, turns[i]));
  }
}

int AgentRun::show_end(const agent::Agent& agent, const Status& done, bool is_kept) {
  const agent::Budget& budget = agent.budget();
  const bool cancelled = !done.ok() && tools::is_cancelled(done.error());
  const int status = done.ok() ? 0 : cancelled ? kCancelled : kFailed;
  if (context_.json()) {
    Json object{{"execution", is_kept ? Json(agent.execution()) : Json()},
                {"flow", order_.plan.flow.name},
                {"workspace", is_kept ? Json(order_.plan.workspace) : Json()},
                {"turns", turns_},
                {"model_calls", budget.model_calls},
                {"input_tokens", budget.usage.input},
                {"output_tokens", budget.usage.output},
                {"cost", agent.cost()},
                {"notices", record_.notices()},
                {"success", done.ok()},
                {"exit_code", status}};
    if (!done.ok()) {
      object["error"] = {{"code", code_name(done.error().code)},
                         {"message", replace_invalid_utf8(done.error().to_string())},
                         {"hint", replace_invalid_utf8(done.error().hint)}};
    }
    print(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    return status;
  }
  if (budget.usage.total() > 0) {
    std::string line = std::to_string(budget.model_calls) + " answers of the model, " +
                       std::to_string(budget.usage.input) + " tokens in, " +
                       std::to_string(budget.usage.output) + " out";
    if (agent.cost() > 0) {
      std::array<char, 32> cost{};
      std::snprintf(cost.data(), cost.size(), ", cost %.4f", agent.cost());
      line += cost.data();
    }
    print_error(line + "\n");
  }
  if (!done.ok()) {
    print_error("carrel: " + printable(done.error().to_string()) + "\n");
    print_error(is_kept ? "go on with: carrel agent run --resume " + agent.execution() + "\n"
                        : std::string("nothing had come of it, and nothing of it is kept\n"));
  }
  return status;
}

// Nothing of a new one is left, but for a workspace that somebody named.
int AgentRun::stop_early(const Error& why) {
  if (order_.is_new) {
    forget_new();
  }
  return fail(context_, why);
}

void AgentRun::forget_new() {
  Words left;
  {
    auto journal = journal::Journal::open(home_);
    if (!journal.ok() || journal->find_execution(order_.execution).ok()) {
      return;
    }
    (void)agent::forget_plan(home_, order_.execution);
    if (auto names = journal->left_workspaces({order_.execution}); names.ok()) {
      left = std::move(names.value());
    }
  }
  manager::remove_workspaces(left);
}

int AgentRun::run() {
  auto plan = make_agent_plan(context_, home_, order_);
  if (!plan.ok()) {
    return stop_early(plan.error());
  }
  auto model = agent::make_model(home_, plan->profile.model);
  if (!model.ok()) {
    return stop_early(model.error());
  }
  if (Status saved = agent::save_plan(home_, order_.execution, order_.plan); !saved.ok()) {
    return stop_early(saved.error());
  }
  const tools::Cancel cancel;
  catch_signals(cancel);
  PersonHere person(context_, cancel);
  agent::Reporter& reporter =
      context_.json() ? static_cast<agent::Reporter&>(record_) : transcript_;
  auto begun =
      agent::Agent::begin(home_, std::move(plan.value()), *model.value(), reporter, person, cancel);
  if (!begun.ok()) {
    return stop_early(begun.error());
  }
  agent::Agent& agent = *begun.value();
  if (!context_.json()) {
    print_error("execution " + agent.execution() + " in workspace " + order_.plan.workspace + "\n");
  }
  Status done = all_turns(agent, cancel);
  const Status ended = done.ok() ? agent.finish() : agent.fail(done.error());
  const bool is_kept =
      done.ok() || order_.is_named || !order_.is_new || !ended.ok() || !agent.has_nothing();
  const int status = show_end(agent, done.ok() ? ended : done, is_kept);
  if (!is_kept) {
    begun.value().reset();
    Words removed;
    (void)forget_flows({order_.execution}, removed);
  }
  return status;
}

}  // namespace

int run_agent(const Context& context, storage::Home& home, AgentOrder order) {
  return AgentRun(context, home, std::move(order)).run();
}

int agent_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  auto order = read_agent_order(context, home.value());
  if (!order.ok()) {
    return fail(context, order.error());
  }
  return run_agent(context, home.value(), std::move(order.value()));
}

}  // namespace carrel::cli
