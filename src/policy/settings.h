#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/given.h"
#include "policy/spec.h"

namespace carrel::policy {

// The one table of everything that can be set. Options, keys of carrel.toml, completion, help and
// the manual are all made from it, so that a setting has one name, one check and one sentence.

// What a setting can be given to.
enum class Operation : unsigned {
  kRun = 1,
  kCode = 2,
  kCreate = 4,
  kExec = 8,
  kShell = 16,
};

struct Operations {
  unsigned bits = 0;
  [[nodiscard]] constexpr bool has(Operation operation) const {
    return (bits & static_cast<unsigned>(operation)) != 0;
  }
};

// How a value is written, and so which types of TOML it takes.
enum class ValueKind {
  kText,         // a string
  kSize,         // "512m", or a whole number of bytes
  kDuration,     // "2m", or a number of seconds
  kCores,        // a number
  kCount,        // a whole number
  kFlag,         // an option without a value; true or false
  kWords,        // words with commas; an array of strings
  kVariables,    // NAME=VALUE, again and again; a table or an array of strings
  kMounts,       // SRC:DST[:rw], again and again; an array of strings or of tables
  kCredentials,  // RULE=HEADER: VALUE, again and again; an array of strings
  kServices,     // NAME[:PORT]=COMMAND, again and again; a table of tables or an array of strings
  kNetwork,      // a policy by a word or a list; an array of rules is what it allows
};

enum class SettingGroup { kLimits, kInside, kHost };

// Where a setting shows up. Those of parts that are not built are read, so that they can be refused
// by name, but neither offered nor completed.
enum class Offered { kEverywhere, kConfigOnly, kNotBuilt };

struct Setting {
  std::string_view name;                      // as an option: `writable-root`
  std::span<const std::string_view> aliases;  // other names for the same thing
  ValueKind kind;
  std::string_view placeholder;  // SIZE; empty for a flag
  std::string_view help;         // one line, no full stop
  std::string_view choices;      // words to complete, separated by spaces
  SettingGroup group;
  Offered offered;
  Operations operations;
  Status (*set)(Spec& spec, const Given& given);
  std::string (*get)(const Spec& spec);  // null: there is nothing to show

  // Whether it can be given again and adds to what was there.
  [[nodiscard]] constexpr bool repeats() const {
    return kind == ValueKind::kVariables || kind == ValueKind::kWords ||
           kind == ValueKind::kMounts || kind == ValueKind::kCredentials ||
           kind == ValueKind::kServices;
  }
  [[nodiscard]] constexpr bool is_flag() const { return kind == ValueKind::kFlag; }
};

std::span<const Setting> settings();

// By name or alias; '-' and '_' are the same. Null if there is none.
const Setting* find_setting(std::string_view name);

// A setting's name as a key of carrel.toml: `writable_root`.
std::string key_name(std::string_view name);

// The defaults of one-shot sandboxes or, for kCreate, of long-lived ones.
Spec default_spec(Operation operation);

// The settings in the order of the table with their values as `set` would read them. Variables show
// their names only: values can be secrets.
struct SettingValue {
  std::string_view name;
  ValueKind kind;
  std::string value;
};
std::vector<SettingValue> dump_settings(const Spec& spec);

}  // namespace carrel::policy
