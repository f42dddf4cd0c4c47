#include "sandbox/result_json.h"

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/utf8.h"

namespace carrel::sandbox {

namespace {

void add_stream(nlohmann::ordered_json& object, const char* name, const std::string& bytes) {
  object[name] = valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
  if (!valid_utf8(bytes)) {
    object[std::string(name) + "_b64"] = base64(bytes);
  }
}

}  // namespace

std::string to_json(const ExecResult& result) {
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
  object["causes"] = nlohmann::ordered_json::array();
  for (const Cause& cause : result.causes) {
    nlohmann::ordered_json told;
    told["kind"] = cause.kind;
    told["message"] = replace_invalid_utf8(cause.message);
    told["option"] = cause.option;
    object["causes"].push_back(std::move(told));
  }
  return object.dump();
}

}  // namespace carrel::sandbox
