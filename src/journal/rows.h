#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "journal/turn_key.h"

namespace carrel::journal {

// What the journal knows, as rows. Times are milliseconds since 1970.

// A flow that was started once, and perhaps again after it stopped in the middle.
struct ExecutionRow {
  std::string id;
  std::string flow;
  std::string workspace;        // empty: none
  std::string first_snapshot;   // the files that it starts with, each time
  std::string first_identity;   // of those
  std::string state;            // "running", "finished" or "failed"; see is_running()
  std::string error;            // why it failed, in words
  std::int64_t runs = 0;        // how often it was started
  std::int64_t started_ms = 0;  // the first time
  std::int64_t ended_ms = 0;    // the last time; 0: not yet
  std::string source;           // of a replay: the execution that it repeats; empty: it is none
  std::string replay;           // of a replay: its plan, JSON
  std::string logs;             // a JSON object
};

enum class TurnState { kRunning, kFinished, kCached, kFailed };

struct TurnRow {
  std::string id;
  std::string execution;
  std::int64_t run = 0;       // of the execution, from 1
  std::int64_t position = 0;  // in that run, from 1
  std::int64_t attempt = 0;   // at that position, from 1
  std::string name;           // "default", "default_2", …
  TurnState state = TurnState::kRunning;
  std::string key;
  std::vector<RecordedPart> parts;
  std::string text;            // what it answered
  std::string data;            // what its program needs beside that
  std::string error;           // of one that failed
  std::string start_snapshot;  // the files before it
  std::string start_identity;
  std::string snapshot;  // and after it
  std::string identity;
  std::uint64_t changed = 0;  // files that it made, wrote or removed
  std::string source;         // of a cached one: the turn that did the work
  bool has_effects = false;   // it ran commands that may have changed something elsewhere
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  std::string logs;  // a JSON object
};

enum class CallKind { kModel, kTool };

// A call of a model or a tool within a turn. Arguments and result are for people: redacted and cut.
struct CallRow {
  std::string turn;
  std::int64_t position = 0;  // in the turn, from 1
  CallKind kind = CallKind::kTool;
  std::string name;
  std::string arguments;
  std::string result;
  std::optional<std::int64_t> exit_code;
  bool succeeded = false;
  bool cached = false;
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
};

enum class ArtifactKind { kPrompt, kResponse, kContext, kInput, kOutput, kBlob };

struct Artifact {
  std::string name;
  ArtifactKind kind = ArtifactKind::kBlob;
  std::string value;
  std::string turn;  // the name of the turn that saved it
};

struct WaitRow {
  std::string execution;
  std::string name;
  std::string question;
  std::string schema;  // JSON; empty: anything
  std::string state;   // "open", "answered" or "aborted"
  std::string answer;  // JSON
  std::int64_t asked_ms = 0;
  std::int64_t answered_ms = 0;
};

}  // namespace carrel::journal
