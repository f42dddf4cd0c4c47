#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/settings.h"
#include "policy/spec.h"

namespace carrel::policy {

// The largest carrel.toml that is read.
inline constexpr std::size_t kLargestConfig = 64 << 10;

// One key of a carrel.toml, checked and in the spelling of its setting.
struct Assignment {
  const Setting* setting = nullptr;
  std::string text;
};

// What a carrel.toml says. Keys at the top and in [sandbox] hold for every sandbox; [run] (for
// `run` and `code`) and [create] go over them. What is not mentioned keeps its default.
struct Config {
  std::vector<Assignment> common;
  std::vector<Assignment> run;
  std::vector<Assignment> create;
  // Whether allowed_read_paths or allowed_write_paths is there, be it as an empty list: then the
  // lists decide about mounts.
  bool lists_paths = false;
};

// Reads the text of a carrel.toml; `path` is for the errors only ("carrel.toml:3: unknown key
// ..."). Everything in it is checked, whichever command is about to run, except what depends on the
// host: call validate() on the Spec for that.
Result<Config> parse_config(std::string_view text, std::string_view path);

// A document of nothing but strings, by their keys.
Result<std::map<std::string, std::string>> parse_strings(std::string_view text,
                                                         std::string_view path);

// The defaults of the operation with the file's settings over them.
Result<Spec> spec_from(const Config& config, Operation operation);

}  // namespace carrel::policy
