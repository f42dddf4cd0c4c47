#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/spec.h"

namespace carrel::agent {

// Which tools work inside of the sandbox. Those of code are exec, run_code and the sessions; those
// of files are the six that read and write them. Others are the operator's own by their nature.
enum class Sandboxed { kAll, kCode, kFiles, kNone };

// A program of this host that the agent may use, with typed arguments.
struct ServiceSpec {
  std::string name;
  std::string description;
  std::vector<std::string> command;
  std::chrono::milliseconds timeout{30'000};
  std::string arguments;  // a JSON schema
  bool operator==(const ServiceSpec&) const = default;
};

struct ModelChoice {
  std::string provider;  // anthropic, openai or scripted; empty: what there is a key for
  std::string name;      // of the model; the file of a scripted one
  std::string base_url;
  std::string key;  // "env:NAME" or "secret:NAME", never the key itself; empty: the usual places
  std::uint64_t max_tokens = 8192;
  std::optional<double> temperature = {};
  std::uint64_t retries = 5;
  std::chrono::milliseconds retry_delay{500};
  double input_price = 0;  // of a million tokens, in whatever the operator pays with
  double output_price = 0;
  bool operator==(const ModelChoice&) const = default;
};

struct AgentLimits {
  std::uint64_t steps = 50;                   // answers of the model in one turn
  std::uint64_t tokens = 2'000'000;           // in one run
  std::chrono::milliseconds time{3'600'000};  // of one run
  bool operator==(const AgentLimits&) const = default;
};

// What an agent is and what it may do. An operator writes it. Nothing that a model, a tool or a
// sandbox says changes it, or anything that was made from it.
struct Profile {
  std::string name = "default";
  std::string system_prompt;
  ModelChoice model;
  std::vector<std::string> tools = {"exec", "files", "run_code"};  // names, or groups of them
  Sandboxed sandboxed = Sandboxed::kAll;
  std::string skills;   // a folder of this host; empty: none
  std::string folder;   // of this host, for tools that are not sandboxed; empty: the current one
  std::string sandbox;  // a JSON object: the settings of `carrel create`, by their names
  std::string mcp;      // a JSON object: servers by their names
  std::vector<ServiceSpec> services;
  std::vector<std::string> allowed_services;  // of those, the ones that this agent has
  AgentLimits limits;
  bool operator==(const Profile&) const = default;
};

// TOML, or JSON as profile_to_json() writes it. `path` is for the errors. Unknown keys are errors,
// and so is a service that is allowed and not there.
Result<Profile> parse_profile(std::string_view text, std::string_view path);
std::string profile_to_json(const Profile& profile);

// Puts the profile's settings of the sandbox over those of `spec`.
Status apply_sandbox_settings(const Profile& profile, policy::Spec& spec);

}  // namespace carrel::agent
