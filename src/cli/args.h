#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "policy/spec.h"

namespace carrel::cli {

// The words of one command, sorted out. Everything is borrowed from argv.
struct Arguments {
  struct GivenOption {
    OptionId id;
    std::string_view value;  // empty for a flag
  };
  struct GivenSetting {
    const policy::Setting* setting;
    std::string_view name;   // as it was written, with its dashes
    std::string_view value;  // "true" for a flag
  };

  const Command* command = nullptr;
  std::vector<GivenOption> options;
  std::vector<GivenSetting> settings;
  std::vector<std::string_view> operands;      // ids, file, text
  std::vector<std::string_view> command_line;  // of `run` and `exec`: the program and its words

  [[nodiscard]] bool has(OptionId id) const { return value(id).has_value(); }
  [[nodiscard]] std::optional<std::string_view> value(OptionId id) const;
  // Of one that can be given several times, all of them.
  [[nodiscard]] std::vector<std::string_view> values(OptionId id) const;
  // Whether the setting of this name was given as an option.
  [[nodiscard]] bool has_setting(std::string_view name) const;
};

// The command that argv[1] names; `--help`, `-h`, `--version` and `-V` are commands too. The error
// names the nearest. `words` is argv without the program's own name and not empty.
Result<const Command*> select_command(std::span<const std::string_view> words);

// The words after the command's name. Options are `--name value`, `--name=value`, `-x` and `-xy`;
// `--` ends them, and so does the first word of a command to run. An option is an error when it is
// unknown, lacks its value, has one too many or is given twice. Values of settings are checked as
// far as that needs no host. With `--help` among the words nothing else is checked.
Result<Arguments> parse_arguments(const Command& command, std::span<const std::string_view> words);

// Puts the settings that were given over those of `spec`.
Status apply_settings(const Arguments& arguments, policy::Spec& spec);

// The exit status for an error of parse_arguments, apply_settings, parse_config or validate.
int status_of(const Command& command, const Error& error);

}  // namespace carrel::cli
