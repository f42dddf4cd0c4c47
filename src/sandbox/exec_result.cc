#include "sandbox/exec_result.h"

#include <utility>

namespace carrel::sandbox {

namespace {

void append_stream(std::string& text, const std::string& stream) {
  if (stream.empty()) {
    return;
  }
  if (!text.empty() && text.back() != '\n') {
    text += '\n';
  }
  text += stream;
}

}  // namespace

void add_cause(ExecResult& result, Cause cause) {
  if (result.success()) {
    return;
  }
  for (Cause& known : result.causes) {
    if (known.kind == cause.kind) {
      known = std::move(cause);
      return;
    }
  }
  result.causes.push_back(std::move(cause));
}

void add_process_limit(ExecResult& result, std::uint32_t limit) {
  if (result.exit_code == 0 || result.timed_out || result.oom_killed) {
    return;
  }
  const std::string reached = "the limit of " + std::to_string(limit) + " processes was reached";
  result.reason += (result.reason.empty() ? "" : "; ") + reached;
  add_cause(result, {"processes", reached, "--pids"});
}

void add_disk_limit(ExecResult& result, std::uint64_t limit) {
  result.reason = "the workspace is full: its limit is " + std::to_string(limit >> 20) + " MiB";
  std::erase_if(result.causes, [](const Cause& cause) { return cause.kind == "memory"; });
  add_cause(result, {"disk", result.reason, "--disk"});
}

void add_no_network(ExecResult& result) {
  add_cause(result, {"no_network", "the sandbox has no network, and something in it wanted one",
                     "--network allow=HOST"});
}

void add_denied(ExecResult& result, const std::string& target, const std::string& rule) {
  add_cause(result, {"denied", "the sandbox's network policy does not allow " + target,
                     rule.empty() ? "--network" : "--network allow=" + rule});
}

void add_memory_limit(ExecResult& result, std::uint64_t limit) {
  add_cause(result,
            {"memory", "out of memory: the limit is " + std::to_string(limit >> 20) + " MiB",
             "--memory"});
}

void add_files_full(ExecResult& result, const std::string& sizes) {
  if (result.exit_code == 0 || result.timed_out || result.oom_killed) {
    return;
  }
  const std::string full = "a file system is full: " + sizes;
  result.reason += (result.reason.empty() ? "" : "; ") + full;
  add_cause(result, {"disk", full, "--disk, --tmp, --memory"});
}

std::string render(const ExecResult& result) {
  if (result.success()) {
    return result.standard_output;
  }
  std::string text = result.timed_out
                         ? "timed out after " + std::to_string(result.duration_ms) + " ms"
                         : "exit code " + std::to_string(result.exit_code);
  if (!result.timed_out && !result.reason.empty()) {
    text += " (" + result.reason + ")";
  }
  append_stream(text, result.standard_output);
  append_stream(text, result.standard_error);
  return text;
}

}  // namespace carrel::sandbox
