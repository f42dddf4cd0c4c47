#include "sandbox/exec_result.h"

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

void add_process_limit(ExecResult& result, std::uint32_t limit) {
  if (result.exit_code == 0 || result.timed_out || result.oom_killed) {
    return;
  }
  result.reason += (result.reason.empty() ? "" : "; ") + std::string("the limit of ") +
                   std::to_string(limit) + " processes was reached";
}

void add_disk_limit(ExecResult& result, std::uint64_t limit) {
  result.reason = "the workspace is full: its limit is " + std::to_string(limit >> 20) + " MiB";
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
