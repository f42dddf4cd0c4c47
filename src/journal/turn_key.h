#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace carrel::journal {

// One thing that a turn's result depends on, by content.
struct KeyPart {
  std::string name;
  std::string value;
};

// What a turn is about to do: all that its result depends on and that its caller knows. The run
// adds the flow, the store, and the files at its start. Values are contents, never paths.
struct TurnSubject {
  std::string step = {};                // a name for the turn; empty: "default"
  std::string prompt = {};              // what is asked in it
  std::vector<KeyPart> inputs = {};     // parameters and earlier results, by name
  std::string model = {};               // provider, name and its parameters
  std::string system_prompt = {};       //
  std::string tools = {};               // names and schemas of what it may call
  std::vector<KeyPart> skills = {};     // path and contents of each
  std::string image = {};               // the digest of the sandbox's image
  std::string policy = {};              // the sandbox's settings (policy::spec_to_json)
  std::vector<std::string> kinds = {};  // of its outputs, such as "text" or a schema
  std::string code_version = {};        // of the program that runs it
};

// What the run itself knows.
struct TurnPlace {
  std::string store;  // which journal
  std::string flow;
  std::string files;  // identity of the workspace at the turn's start; empty: it has none
};

// A part as it is kept: enough to tell which one changed, and how as far as that may be shown.
struct RecordedPart {
  std::string name;
  std::string digest;   // SHA-256 of the value
  std::string preview;  // redacted and cut, see redact.h; empty for what is a digest anyway
};

// In a fixed order; inputs and skills as "input NAME" and "skill NAME", sorted by name.
std::vector<KeyPart> parts_of(const TurnSubject& subject, const TurnPlace& place);
// SHA-256 over names and values, each with its length: no two lists have the same text.
std::string key_of(const std::vector<KeyPart>& parts);
std::vector<RecordedPart> record_parts(const std::vector<KeyPart>& parts);
std::string parts_to_json(const std::vector<RecordedPart>& parts);
Result<std::vector<RecordedPart>> parts_from_json(std::string_view text);

// One part that is not the same in two keys.
struct PartChange {
  enum class Kind { kChanged, kAdded, kRemoved } kind = Kind::kChanged;
  std::string name;
  std::string before;  // previews; they may be the same where what differs was cut off
  std::string now;
};
std::vector<PartChange> compare_parts(const std::vector<RecordedPart>& before,
                                      const std::vector<RecordedPart>& now);

}  // namespace carrel::journal
