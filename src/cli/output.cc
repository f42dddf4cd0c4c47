#include "cli/output.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/utf8.h"
#include "cli/terminal_filter.h"

namespace carrel::cli {

std::string base64(std::string_view data) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < data.size(); i += 3) {
    unsigned value = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      value = value << 8 | (i + j < data.size() ? static_cast<unsigned char>(data[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j <= data.size() ? kDigits[value >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

namespace {

void add_stream(nlohmann::ordered_json& object, const char* name, const std::string& bytes) {
  object[name] = valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
  if (!valid_utf8(bytes)) {
    object[std::string(name) + "_b64"] = base64(bytes);
  }
}

}  // namespace

void print(std::string_view text) {
  if (!write_all(STDOUT_FILENO, text).ok()) {
    ::_exit(1);
  }
}

void print_error(std::string_view text) {
  if (!write_all(STDERR_FILENO, text).ok()) {
    ::_exit(1);
  }
}

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not_found";
    case Code::kConflict:
      return "conflict";
    case Code::kDenied:
      return "denied";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kResource:
      return "resource";
    case Code::kTimeout:
      return "timeout";
    case Code::kGone:
      return "gone";
    case Code::kSystem:
      return "system";
  }
  return "system";
}

int fail(const Context& context, const Error& error) {
  int status = status_of(*context.arguments.command, error);
  if (context.json()) {
    nlohmann::ordered_json object;
    object["error"]["code"] = code_name(error.code);
    object["error"]["message"] = replace_invalid_utf8(error.to_string());
    object["error"]["hint"] = replace_invalid_utf8(error.hint);
    object["exit_code"] = status;
    print(object.dump() + "\n");
  } else {
    print_error("carrel: " + printable(error.to_string()) + "\n");
  }
  return status;
}

std::string to_json(const sandbox::ExecResult& result) {
  nlohmann::ordered_json object;
  object["exit_code"] = result.exit_code;
  object["signal"] = result.signal;
  add_stream(object, "stdout", result.standard_output);
  add_stream(object, "stderr", result.standard_error);
  object["cwd"] = replace_invalid_utf8(result.cwd);
  object["success"] = result.success();
  object["timed_out"] = result.timed_out;
  object["oom_killed"] = result.oom_killed;
  object["truncated"] = result.truncated;
  object["shell_restarted"] = result.shell_restarted;
  object["duration_ms"] = result.duration_ms;
  object["reason"] = result.reason;
  return object.dump();
}

std::string printable(std::string_view text) {
  const std::string valid = replace_invalid_utf8(text);
  std::string shown;
  std::size_t hidden_end = 0;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const unsigned char byte = static_cast<unsigned char>(valid[i]);
    if (i >= hidden_end) {
      hidden_end = i + hidden_character(std::string_view(valid).substr(i));
    }
    if (byte < 0x20 || byte == 0x7f || i < hidden_end) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      shown += "\\x";
      shown += kDigits[byte >> 4];
      shown += kDigits[byte & 15];
    } else {
      shown += valid[i];
    }
  }
  return shown;
}

std::string json_string(std::string_view text) {
  return nlohmann::json(replace_invalid_utf8(text)).dump();
}

}  // namespace carrel::cli
