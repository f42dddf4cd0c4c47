#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/loop.h"
#include "agent/model.h"
#include "agent/profile.h"
#include "agent/reporter.h"
#include "agent/room.h"
#include "base/result.h"
#include "journal/run.h"

namespace carrel::agent {

// Answers a question of an agent from a terminal, where there is one.
class Person {
 public:
  virtual ~Person() = default;
  // What was typed; kUnavailable: nobody is there.
  virtual Result<std::string> ask(const std::string& question) = 0;
  // A question is open, and this is how to answer it from elsewhere.
  virtual void is_asked(const std::string& execution, const std::string& name,
                        const std::string& question) = 0;
};

struct AgentPlan {
  Profile profile;
  RoomPlan room;
  std::string flow = "default";
  std::string execution;
  std::optional<journal::Replay> replay = {};  // of which execution it is one; a new one only
  journal::CachedFiles cached_files = journal::CachedFiles::kPutBack;
  journal::Reuse reuse = journal::Reuse::kAny;
  journal::Switches switches = {};
  std::string workspace_goes_with;  // as in storage::WorkspaceRow, for one that is made
  std::string image;                // what identifies the sandbox's image, for the keys of turns
  std::chrono::milliseconds question_patience{600'000};
};

// An agent at work: turns that are in the journal, with the files they left, before they are
// reported. For one thread.
class Agent {
 public:
  // Everything that is passed by reference is borrowed.
  static Result<std::unique_ptr<Agent>> begin(storage::Home& home, AgentPlan plan, Model& model,
                                              Reporter& reporter, Person& person,
                                              const tools::Cancel& cancel);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent();

  struct Turn {
    std::string id;
    std::string name;
    std::string text;
    journal::How how = journal::How::kLive;
    std::int64_t duration_ms = 0;
    std::uint64_t steps = 0;    // answers of the model that were asked for
    std::uint64_t changed = 0;  // files
  };
  // The next turn of the conversation. `step` names it; may be empty.
  Result<Turn> turn(const std::string& step, const std::string& prompt);

  // The sandbox is gone afterwards; the workspace stays.
  Status finish();
  Status fail(const Error& why);

  [[nodiscard]] const std::string& execution() const { return run_->execution(); }
  [[nodiscard]] const Budget& budget() const { return budget_; }
  // Nothing has come of it that somebody could go on with.
  [[nodiscard]] bool has_nothing() const { return turns_ == 0 && budget_.answers == 0; }
  // In the currency of the profile's prices.
  [[nodiscard]] double cost() const;

 private:
  class Asking;
  Agent(storage::Home& home, AgentPlan plan, Model& model, Reporter& reporter, Person& person,
        const tools::Cancel& cancel);
  Status open(storage::Home& home);
  Result<journal::TurnSubject> subject(const std::string& step, const std::string& prompt) const;
  Result<journal::TurnOutput> work(journal::Turn& turn);
  Status take_conversation(const journal::TurnResult& result, const std::string& prompt);

  AgentPlan plan_;
  Model& model_;
  Reporter& reporter_;
  Person& person_;
  const tools::Cancel& cancel_;
  Budget budget_;
  std::size_t turns_ = 0;            // that were finished, in this run or before
  std::size_t questions_ = 0;        // that were answered in the conversation so far
  std::string conversation_ = "[]";  // messages so far, as the journal has them
  std::unique_ptr<journal::Journal> journal_;
  std::unique_ptr<journal::WorkspaceFiles> files_;
  std::unique_ptr<Asking> asking_;
  std::unique_ptr<Room> room_;
  std::unique_ptr<journal::Run> run_;
};

}  // namespace carrel::agent
