#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "journal/files.h"
#include "journal/journal.h"
#include "journal/rows.h"
#include "journal/switches.h"
#include "journal/turn_key.h"
#include "journal/waits.h"

namespace carrel::journal {

// What is taken from the record: whole turns, or also single calls of turns that are run again.
enum class Granularity { kTurn, kCall };
// What happens to the workspace when a turn is taken from the record: it becomes what that turn
// left, or it stays as it is, and a warning says so.
enum class CachedFiles { kPutBack, kKeep };
// Whose turns may be taken from the record: those of earlier runs of this execution, or those of
// any that has the same key.
enum class Reuse { kOwn, kAny };
// From where a result came.
enum class How { kLive, kCached, kOverridden };

// A repetition of an execution as a new one. The source stays as it is.
struct Replay {
  std::string source;  // an execution
  // Turns before this one are taken from the source as they are. Empty: the first.
  std::string from = {};
  // This one and later ones are taken from the record if their keys are in it. If they are not,
  // kRecorded fails, and kLive runs them. With kLive, those from `from` on are run, each once:
  // when the replay is run again, what it has finished is taken from there.
  enum class Mode { kRecorded, kLive } mode = Mode::kRecorded;
  struct Override {
    std::string turn;   // a selector of the source, as for Journal::find_turn
    std::string name;   // of the input that is another, or "prompt"; empty: the output is this
    std::string value;  //
  };
  std::vector<Override> overrides = {};
};

struct RunEvent {
  enum class Kind { kTurnStarted, kTurnFinished, kTurnFailed, kWarning } kind = Kind::kWarning;
  std::string turn = {};  // its name
  How how = How::kLive;
  std::int64_t duration_ms = 0;
  std::string text = {};  // of a warning or failure
};
// "turn default started", "turn default finished in 1.2 s", "turn default finished in 3 ms
// (cached)"
std::string event_line(const RunEvent& event);

struct RunOptions {
  std::string flow = "default";
  // Empty: a new one with a name of its own. One that there is already is run again: from its first
  // snapshot, with its finished turns from the record. Letters, digits, and "._-", up to 64.
  std::string execution = {};
  Granularity granularity = Granularity::kTurn;
  CachedFiles cached_files = CachedFiles::kPutBack;
  Reuse reuse = Reuse::kAny;
  Switches switches = {};
  std::optional<Replay> replay = {};
  // Told as it happens. Warnings are for people: a cached turn with side effects, a damaged record.
  std::function<void(const RunEvent& event)> tell = {};
  // Called before files are put back: afterwards nobody runs in the workspace. The next command
  // needs a fresh sandbox then.
  std::function<Status()> stop_sandbox = {};
};

struct TurnOutput {
  std::string text;       // for people, and for the next turn
  std::string data = {};  // whatever its program needs to go on from here, such as messages
};

struct TurnResult {
  TurnOutput output;
  How how = How::kLive;
  std::string id;
  std::string name;
  std::int64_t duration_ms = 0;
};

struct TurnOptions {
  int retries = 0;  // after a failure; negative is kInvalid
};

// May a call be taken from the record? kStrategy: as the run's granularity says.
enum class CallCaching { kStrategy, kNever };
// Whether it may change something that no snapshot has: a service, a file elsewhere.
enum class Effects { kNone, kPossible };

struct CallSubject {
  CallKind kind = CallKind::kTool;
  std::string name = {};       // of the tool or the model
  std::string arguments = {};  // JSON
  CallCaching caching = CallCaching::kStrategy;
  Effects effects = Effects::kNone;
};

struct CallOutcome {
  std::string result;  // JSON or text
  std::optional<std::int64_t> exit_code = {};
  bool succeeded = true;
};

class Run;
struct StoredCall;

// A turn that is being run. It is given to the turn's body, and gone after it.
class Turn {
 public:
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  [[nodiscard]] const std::string& id() const { return row_.id; }
  [[nodiscard]] const std::string& name() const { return row_.name; }
  [[nodiscard]] std::int64_t attempt() const { return row_.attempt; }
  // What its subject has as the input of that name, or what a replay has instead; "prompt" is one.
  [[nodiscard]] std::string input(const std::string& name) const;

  // What stop_here() of an earlier run of this turn was given; empty: it begins now. The files are
  // those of then.
  [[nodiscard]] const std::string& progress() const { return progress_; }
  // For a body that is about to fail and could go on: when the execution is run again, the turn has
  // this, and the files as they are now.
  void stop_here(std::string progress) { stopped_ = std::move(progress); }

  // Runs `body`, or takes what the same call returned before (granularity kCall): same turn key,
  // same number in the turn, same kind, name and arguments, and it succeeded. An error of `body` is
  // recorded and returned. With kCall the result is on disk before this returns.
  struct Called {
    CallOutcome outcome;
    How how = How::kLive;
  };
  Result<Called> call(const CallSubject& subject, const std::function<Result<CallOutcome>()>& body);

  // Kept with the turn when it finishes, and not before. kConflict for a name that the turn has
  // saved already; kInvalid for an empty name or one with '/'; kResource above 16 MiB.
  Status save(const std::string& name, ArtifactKind kind, std::string value);

 private:
  friend class Run;
  Turn(Run& run, TurnRow row, const TurnSubject& subject);
  Result<Called> take_call(const CallSubject& subject, StoredCall& call, const StoredCall& known);

  Run& run_;
  TurnRow row_;
  const TurnSubject& subject_;
  std::vector<Artifact> saved_;
  std::int64_t calls_ = 0;
  std::string progress_;
  std::optional<std::string> stopped_;
};

// What a turn does when it is not in the record. An error fails the attempt.
using TurnBody = std::function<Result<TurnOutput>(Turn& turn)>;

// One run of one execution, for one thread. Only one process at a time can have it: kConflict.
// While it lives the execution counts as running; without finish() it has failed.
class Run {
 public:
  // Takes the first snapshot of a new execution. `files` and `journal` outlive the run.
  static Result<std::unique_ptr<Run>> begin(Journal& journal, Files& files, RunOptions options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

  [[nodiscard]] const std::string& execution() const { return execution_.id; }
  [[nodiscard]] bool is_replay() const { return !execution_.source.empty(); }

  // The next turn: from the record if its key is there, otherwise by `body`. When it returns a
  // result, that and the files it left are on disk. Before a body runs, the workspace is what the
  // turn before it left. kUnavailable between the first turn and the second if FORCE_FAILURE is on;
  // kConflict if a recorded replay has no such turn.
  Result<TurnResult> turn(const TurnSubject& subject, const TurnBody& body) {
    return turn(subject, TurnOptions{}, body);
  }
  Result<TurnResult> turn(const TurnSubject& subject, const TurnOptions& options,
                          const TurnBody& body);

  // Takes every turn of a replay's source from the record as it is, without anything that could be
  // run, and looks at whether the files are those that the last one left. kConflict where an output
  // is another and turns come after it.
  Status repeat();

  // Adds to the log of the turn that runs, or else of the execution: members of a JSON object.
  // Objects are merged, everything else is replaced. kConflict after finish().
  Status log(const std::string& json_object);
  // What an execution's turn saved: NAME or TURN/NAME; of this one too, as soon as it is finished.
  Result<Artifact> load(const std::string& execution, const std::string& name);
  // Asks, and waits for the answer: its JSON. One that was asked before, here or in the source of a
  // replay, has its answer at once. kTimeout: nobody has answered yet, and the wait stays open; the
  // same execution run again comes back to it. kConflict: it was aborted.
  Result<std::string> wait(const WaitRequest& request);
  // The next number for wait_name() in this run.
  std::size_t next_question() { return questions_++; }

  // The end. The workspace is what the last turn left, also if that came from the record.
  Status finish();
  Status fail(const Error& why);

 private:
  friend class Turn;
  Run(Journal& journal, Files& files, RunOptions options);
  struct Parts;
  Status take_up();
  Status take_up_new();
  Status take_up_again(ExecutionRow known);
  Status keep_first();
  Result<TurnResult> choose(TurnRow& row, const TurnSubject& given, const TurnOptions& options,
                            const TurnBody& body);
  void set_key(TurnRow& row, const TurnSubject& subject);
  // Where a turn may have been recorded: in any execution, or in an earlier run of this one.
  enum class Recorded { kAnywhere, kEarlierRuns };
  Result<std::optional<TurnRow>> look_up(const std::string& key, Recorded from);
  Result<std::optional<TurnRow>> look_up_stopped(const std::string& key);
  Result<bool> has_files(const TurnRow& turn);
  Result<TurnResult> take_from(TurnRow& row, TurnRow source,
                               const std::optional<std::string>& output);
  Status use_files_as_they_are(const TurnRow& row);
  Result<TurnResult> run_body(TurnRow& row, const TurnSubject& subject, const TurnOptions& options,
                              const TurnBody& body);
  Status put_files_back_to(const std::optional<TurnRow>& stopped);
  Status begin_turn(const TurnRow& row);
  Status keep_turn(TurnRow& row, const TurnOutput& output, const std::vector<Artifact>& saved);
  Status put_files_back();
  Status put_back(const std::string& snapshot);
  Status keep_stopped(TurnRow& row, const std::string& progress);
  Result<FilesMark> keep_files(const std::string& turn);
  Status ask(const WaitRequest& request);
  Status end(const std::string& state, const std::string& error);
  void warn(std::string text);
  void tell(const RunEvent& event);

  Journal& journal_;
  Files& files_;
  RunOptions options_;
  ExecutionRow execution_;
  UniqueFd owner_;  // the lock that says that somebody is at it
  std::size_t questions_ = 0;
  std::unique_ptr<Parts> parts_;
};

}  // namespace carrel::journal
