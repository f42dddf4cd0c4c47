#include "agent/agent.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "agent/json_value.h"
#include "agent/recording.h"
#include "policy/spec_json.h"
#include "storage/state.h"
#include "storage/workspaces/workspace_store.h"
#include "tools/skills.h"

namespace carrel::agent {
namespace {

using namespace std::chrono_literals;

// Of what decides how a turn goes: a change of it makes old turns ones of another program.
constexpr std::string_view kCodeVersion = "agent-2";
constexpr std::chrono::milliseconds kPollPause = 1s;

constexpr std::string_view kUsualPrompt =
    "You work in a sandbox: a machine of your own in which you can break nothing. Its folder "
    "/workspace is kept. Do what you are asked with the tools that you have, look at what they "
    "answer, and say at the end what you did, in a few sentences.";

// A turn goes on with its files, and without what was elsewhere: the model has to know.
void tell_of_new_sandbox(std::vector<Message>& messages) {
  if (Message& last = messages.back(); last.role == Message::Role::kTool && !last.replies.empty()) {
    last.replies.back().text +=
        "\n[the work was interrupted here and goes on in a new sandbox: /workspace is as it was; "
        "shells, processes and files elsewhere are gone]";
  }
}

// The number of a question is that of those before it, whether they were asked in this run or not.
std::size_t answered_questions(const std::vector<Message>& messages) {
  std::size_t count = 0;
  for (std::size_t i = 1; i < messages.size(); ++i) {
    const std::vector<ToolCall>& calls = messages[i - 1].calls;
    const std::vector<ToolReply>& replies = messages[i].replies;
    for (std::size_t j = 0; j < std::min(calls.size(), replies.size()); ++j) {
      count += calls[j].name == "ask_question" && !replies[j].failed ? 1U : 0U;
    }
  }
  return count;
}

bool uses(const Profile& profile, std::string_view tool) {
  return std::find(profile.tools.begin(), profile.tools.end(), tool) != profile.tools.end();
}

Status make_workspace(const storage::Home& home, const policy::Spec& spec,
                      const std::string& goes_with) {
  storage::WorkspaceRow row;
  row.name = spec.workspace;
  row.created_ms = storage::wall_clock_ms();
  row.used_ms = row.created_ms;
  row.disk_bytes = spec.limits.disk_bytes;
  row.for_box = goes_with;
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
  CARREL_TRY(store.ensure(row));
  return {};
}

}  // namespace

// Questions of the agent, as waits of its run.
class Agent::Asking final : public tools::Questions {
 public:
  explicit Asking(Agent& agent) : agent_(agent) {}

  Result<std::string> ask(const std::string& question, const tools::Cancel& cancel) override {
    journal::WaitRequest request;
    CARREL_ASSIGN(request.name, journal::wait_name(agent_.questions_++, question));
    request.question = question;
    request.schema = R"({"type":"string"})";
    request.timeout = 0ms;
    request.poll = kPollPause;
    auto answer = agent_.run_->wait(request);
    if (!answer.ok() && answer.error().code == Code::kTimeout) {
      answer = wait_for_answer(request, cancel);
    }
    if (!answer.ok()) {
      return answer.error();
    }
    const Json text = Json::parse(answer.value(), nullptr, false);
    return text.is_string() ? text.get<std::string>() : answer.value();
  }

 private:
  Result<std::string> wait_for_answer(journal::WaitRequest request, const tools::Cancel& cancel) {
    const std::string& execution = agent_.run_->execution();
    auto typed = agent_.person_.ask(request.question);
    if (cancel.asked()) {
      return tools::cancelled();
    }
    if (typed.ok()) {
      CARREL_TRY(agent_.journal_->answer(
          execution, request.name,
          Json(typed.value()).dump(-1, ' ', false, Json::error_handler_t::replace)));
      return agent_.run_->wait(request);
    }
    agent_.person_.is_asked(execution, request.name, request.question);
    const auto deadline = std::chrono::steady_clock::now() + agent_.plan_.question_patience;
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd look{cancel.fd(), POLLIN, 0};
      if (::poll(&look, 1, static_cast<int>(kPollPause.count())) > 0) {
        return tools::cancelled();
      }
      auto answer = agent_.run_->wait(request);
      if (answer.ok() || answer.error().code != Code::kTimeout) {
        return answer;
      }
    }
    return Error{
        Code::kUnavailable, 0, "nobody has answered the agent's question yet",
        "it stays open: answer it, then 'carrel agent run --resume " + execution + "' goes on"};
  }

  Agent& agent_;
};

Agent::Agent(storage::Home& /*home*/, AgentPlan plan, Model& model, Reporter& reporter,
             Person& person, const tools::Cancel& cancel)
    : plan_(std::move(plan)),
      model_(model),
      reporter_(reporter),
      person_(person),
      cancel_(cancel),
      budget_(plan_.profile.limits) {}

Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::begin(storage::Home& home, AgentPlan plan, Model& model,
                                            Reporter& reporter, Person& person,
                                            const tools::Cancel& cancel) {
  std::unique_ptr<Agent> agent(new Agent(home, std::move(plan), model, reporter, person, cancel));
  CARREL_TRY(agent->open(home));
  return agent;
}

Status Agent::open(storage::Home& home) {
  cancel_.set_deadline(budget_.deadline);
  CARREL_TRY(make_workspace(home, plan_.room.spec, plan_.workspace_goes_with));
  CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
  journal_ = std::make_unique<journal::Journal>(std::move(journal));
  files_ = std::make_unique<journal::WorkspaceFiles>(plan_.room.spec.workspace);
  asking_ = std::make_unique<Asking>(*this);
  room_ = std::make_unique<Room>(home, plan_.profile, plan_.room, *asking_, reporter_);
  journal::RunOptions options;
  options.flow = plan_.flow;
  options.execution = plan_.execution;
  options.cached_files = plan_.cached_files;
  options.reuse = plan_.reuse;
  options.switches = plan_.switches;
  options.replay = plan_.replay;
  options.tell = [this](const journal::RunEvent& event) { reporter_.run_event(event); };
  options.stop_sandbox = [this] { return room_->clear(); };
  CARREL_ASSIGN(run_, journal::Run::begin(*journal_, *files_, std::move(options)));
  return {};
}

Result<journal::TurnSubject> Agent::subject(const std::string& step,
                                            const std::string& prompt) const {
  const Profile& profile = plan_.profile;
  journal::TurnSubject subject;
  subject.step = step;
  subject.prompt = prompt;
  subject.inputs = {{"conversation", conversation_}};
  subject.model = model_.identity();
  subject.system_prompt = profile.system_prompt;
  Json services = Json::array();
  for (const ServiceSpec& service : profile.services) {
    services.push_back({service.name, service.description, service.command, service.arguments});
  }
  subject.tools = Json{
      {"tools", profile.tools},
      {"sandboxed", static_cast<int>(profile.sandboxed)},
      {"services", services},
      {"allowed_services", profile.allowed_services},
      {"mcp",
       profile.mcp}}.dump();
  if (uses(profile, "skill")) {
    CARREL_ASSIGN(const tools::Skills skills, tools::Skills::open(profile.skills));
    CARREL_ASSIGN(const std::vector<std::string> paths, skills.list());
    for (const std::string& path : paths) {
      CARREL_ASSIGN(tools::Skills::Text text, skills.read(path));
      subject.skills.push_back({path, std::move(text.text)});
    }
  }
  subject.image = plan_.image;
  policy::Spec spec = plan_.room.spec;
  spec.workspace.clear();  // what is in it counts, and not what it is called
  subject.policy = policy::spec_to_json(spec, policy::Values::kLeftOut);
  subject.kinds = {"text"};
  subject.code_version = kCodeVersion;
  return subject;
}

Result<journal::TurnOutput> Agent::work(journal::Turn& turn) {
  CARREL_ASSIGN(tools::Registry * registry, room_->tools(cancel_));
  const bool goes_on = !turn.progress().empty();
  CARREL_ASSIGN(std::vector<Message> messages,
                messages_from_json(goes_on ? turn.progress() : conversation_));
  Recording recorder(turn, model_.identity());
  const std::string_view system = plan_.profile.system_prompt.empty()
                                      ? kUsualPrompt
                                      : std::string_view(plan_.profile.system_prompt);
  const Loop loop{model_, *registry, budget_, reporter_, recorder, cancel_, system};
  questions_ = answered_questions(messages);
  if (goes_on) {
    tell_of_new_sandbox(messages);
  }
  auto answer = goes_on ? go_on(loop, messages) : run_turn(loop, turn.input("prompt"), messages);
  if (!answer.ok()) {
    if (messages.back().role != Message::Role::kUser) {
      turn.stop_here(messages_to_json(messages));
    }
    return answer.error();
  }
  return journal::TurnOutput{std::move(answer.value()), messages_to_json(messages)};
}

// The conversation goes on from what the turn left; from an answer that somebody put in its place,
// as if the model had just said that.
Status Agent::take_conversation(const journal::TurnResult& result, const std::string& prompt) {
  if (result.how != journal::How::kOverridden) {
    conversation_ = result.output.data;
    return {};
  }
  CARREL_ASSIGN(std::vector<Message> messages, messages_from_json(conversation_));
  messages.push_back({Message::Role::kUser, prompt});
  messages.push_back({Message::Role::kAssistant, result.output.text});
  conversation_ = messages_to_json(messages);
  return {};
}

Result<Agent::Turn> Agent::turn(const std::string& step, const std::string& prompt) {
  CARREL_ASSIGN(const journal::TurnSubject about, subject(step, prompt));
  const std::uint64_t asked = budget_.model_calls;
  CARREL_ASSIGN(journal::TurnResult result,
                run_->turn(about, [&](journal::Turn& turn) { return work(turn); }));
  CARREL_TRY(take_conversation(result, prompt));
  ++turns_;
  Turn turn;
  turn.id = result.id;
  turn.name = result.name;
  turn.text = std::move(result.output.text);
  turn.how = result.how;
  turn.duration_ms = result.duration_ms;
  turn.steps = budget_.model_calls - asked;
  if (auto row = journal_->find_turn(run_->execution(), turn.id); row.ok()) {
    turn.changed = row->changed;
  }
  return turn;
}

// Also of a sandbox that a killed run of the execution left, if this one needed none.
Status Agent::finish() {
  CARREL_TRY(room_->clear());
  return run_->finish();
}

Status Agent::fail(const Error& why) {
  const Status closed = room_->clear();
  CARREL_TRY(run_->fail(why));
  return closed;
}

double Agent::cost() const {
  constexpr double kMillion = 1'000'000;
  return (static_cast<double>(budget_.usage.input) * plan_.profile.model.input_price +
          static_cast<double>(budget_.usage.output) * plan_.profile.model.output_price) /
         kMillion;
}

}  // namespace carrel::agent
