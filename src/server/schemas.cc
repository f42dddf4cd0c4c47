#include "server/schemas.h"

#include <algorithm>
#include <string_view>

#include "policy/settings.h"
#include "server/spec_input.h"

namespace carrel::server {
namespace {

// Those that no table of the program tells.
constexpr std::string_view kFixed = R"({
"Anything": {"type": "object"},
"Text": {"type": "string"},
"StreamEvent": {"type": "object", "description": "one event of the stream, of its lines `id`, `event` and `data`",
  "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
  "required": ["data"]},
"Bytes": {"type": "string", "format": "binary"},
"Status": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}},
"Version": {"type": "object", "required": ["version", "api"],
  "properties": {"version": {"type": "string"}, "api": {"type": "string"}}},
"Problem": {"type": "object", "required": ["type", "title", "status", "code", "detail"],
  "description": "RFC 9457. The code is stable; the detail is for people.",
  "properties": {
    "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
    "code": {"type": "string", "enum": ["invalid", "not_found", "conflict", "denied", "unsupported",
      "unavailable", "resource", "timeout", "gone", "system", "unauthenticated",
      "method_not_allowed", "too_large", "unsupported_media_type",
      "precondition_failed"]},
    "detail": {"type": "string"}}},
"Duration": {"oneOf": [{"type": "number", "minimum": 0.001, "maximum": 2592000},
  {"type": "string"}], "description": "seconds, or a text such as \"2m\""},
"Result": {"type": "object",
  "required": ["exit_code", "signal", "stdout", "stderr", "cwd", "success", "timed_out",
    "oom_killed", "truncated", "shell_restarted", "duration_ms", "reason", "causes"],
  "properties": {
    "exit_code": {"type": "integer"}, "signal": {"type": "integer"},
    "stdout": {"type": "string"}, "stderr": {"type": "string"},
    "stdout_b64": {"type": "string", "description": "where stdout is not UTF-8"},
    "stderr_b64": {"type": "string", "description": "where stderr is not UTF-8"},
    "cwd": {"type": "string"}, "success": {"type": "boolean"}, "timed_out": {"type": "boolean"},
    "oom_killed": {"type": "boolean"}, "truncated": {"type": "boolean"},
    "shell_restarted": {"type": "boolean"}, "duration_ms": {"type": "integer"},
    "reason": {"type": "string"},
    "causes": {"type": "array", "items": {"$ref": "#/components/schemas/Cause"},
      "description": "what is known to have hindered a command that failed"}}},
"Cause": {"type": "object", "required": ["kind", "message", "option"],
  "properties": {
    "kind": {"type": "string", "enum": ["timeout", "memory", "processes", "disk", "no_network",
      "denied"]},
    "message": {"type": "string"},
    "option": {"type": "string", "description": "what changes it, as the command line calls it"}}},
"Sandbox": {"type": "object",
  "required": ["id", "name", "state", "desired_state", "created_ms", "ended_ms", "lease_ends_ms",
    "reason"],
  "properties": {
    "id": {"type": "string", "format": "uuid"}, "name": {"type": "string"},
    "state": {"type": "string", "enum": ["creating", "running", "paused", "stopped", "ended"]},
    "desired_state": {"type": "string", "enum": ["running", "paused", "stopped", "ended"]},
    "created_ms": {"type": "integer"}, "ended_ms": {"type": ["integer", "null"]},
    "lease_ends_ms": {"type": ["integer", "null"]},
    "reason": {"type": "string", "description": "why it is so: paused, stopped or ended"},
    "backend": {"type": "string"},
    "held_by": {"type": "array", "items": {"$ref": "#/components/schemas/Holder"},
      "description": "what keeps it up, where one sandbox is asked for"},
    "services": {"type": "array", "items": {"$ref": "#/components/schemas/Service"}},
    "links": {"type": "object", "required": ["website", "vnc"],
      "properties": {"website": {"type": "string"}, "vnc": {"type": "string"}},
      "description": "where its ports 8080 and 6080 are to be seen: a URL, or a path of this API without TCP"},
    "result": {"oneOf": [{"$ref": "#/components/schemas/Result"}, {"type": "null"}],
      "description": "of the command that it was made with; null: it was made before, with the same key"},
    "settings": {"type": "object", "additionalProperties": {"type": "string"}},
    "enforcement": {"type": "array", "items": {"type": "object"}}}},
"Holder": {"type": "object", "required": ["by", "what", "command", "until_ms"],
  "properties": {
    "by": {"type": "string", "enum": ["command", "connection", "lease", "idle_time", "keep"]},
    "what": {"type": "string"}, "command": {"type": ["string", "null"]},
    "until_ms": {"type": ["integer", "null"]}}},
"Service": {"type": "object", "required": ["name", "state", "restarts", "command", "last_exit"],
  "properties": {
    "name": {"type": "string"},
    "state": {"type": "string", "enum": ["waiting", "starting", "ready"]},
    "restarts": {"type": "integer"},
    "command": {"type": ["string", "null"], "description": "whose output is its output"},
    "last_exit": {"type": ["integer", "null"]}}},
"ServiceList": {"type": "object", "required": ["ready", "services"],
  "properties": {"ready": {"type": "boolean", "description": "whether all of them are"},
    "services": {"type": "array", "items": {"$ref": "#/components/schemas/Service"}}}},
"SandboxPage": {"type": "object", "required": ["sandboxes", "next_cursor"],
  "properties": {
    "sandboxes": {"type": "array", "items": {"$ref": "#/components/schemas/Sandbox"}},
    "next_cursor": {"type": ["string", "null"]}}},
"WorkspaceList": {"type": "object",
  "required": ["workspaces", "workspaces_bytes", "snapshots_bytes", "quota_bytes"],
  "properties": {
    "workspaces": {"type": "array", "items": {"$ref": "#/components/schemas/Workspace"}},
    "workspaces_bytes": {"type": "integer", "description": "charged for all of them"},
    "snapshots_bytes": {"type": "integer",
      "description": "charged for what snapshots and forks have in common or alone, each of it once"},
    "quota_bytes": {"type": ["integer", "null"], "description": "of the disk, sandboxes included"}}},
"Workspace": {"type": "object",
  "required": ["name", "owner", "goes_with", "created_ms", "used_ms", "limit_bytes", "charged_bytes",
    "fork_of", "snapshots"],
  "properties": {
    "name": {"type": "string"},
    "owner": {"type": "string", "description": "the client's name; empty: the operator"},
    "goes_with": {"type": ["string", "null"],
      "description": "the sandbox, or flow:EXECUTION, with which it is removed, unless somebody asked for one of its snapshots"},
    "created_ms": {"type": "integer"}, "used_ms": {"type": "integer"},
    "limit_bytes": {"type": "integer"}, "charged_bytes": {"type": "integer"},
    "fork_of": {"type": "string", "description": "a snapshot; empty: it is none"},
    "snapshots": {"type": "array", "items": {"$ref": "#/components/schemas/Snapshot"}}}},
"Snapshot": {"type": "object",
  "required": ["id", "name", "created_ms", "changed", "copied_bytes", "asked_for"],
  "properties": {
    "id": {"type": "string"}, "name": {"type": "string"}, "created_ms": {"type": "integer"},
    "changed": {"type": "integer"}, "copied_bytes": {"type": "integer"},
    "asked_for": {"type": "boolean", "description": "false: a fork took it for itself"}}},
"LeaseRequest": {"type": "object", "required": ["seconds"], "additionalProperties": false,
  "properties": {"seconds": {"oneOf": [{"$ref": "#/components/schemas/Duration"},
    {"type": "null"}], "description": "from now on; null: no deadline"}}},
"ShellRequest": {"type": "object", "required": ["command"], "additionalProperties": false,
  "properties": {
    "command": {"type": "string"}, "session": {"type": "string", "maxLength": 64},
    "timeout": {"$ref": "#/components/schemas/Duration"}, "stdin": {"type": "string"},
    "merged": {"type": "boolean", "description": "stderr in stdout, in the order it came"}}},
"ExecRequest": {"type": "object", "required": ["argv"], "additionalProperties": false,
  "properties": {
    "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "env": {"type": "object", "additionalProperties": {"type": "string"}},
    "workdir": {"type": "string"}, "timeout": {"$ref": "#/components/schemas/Duration"},
    "stdin": {"type": "string"}, "merged": {"type": "boolean"}}},
"FirstCommandRequest": {"type": "object", "additionalProperties": false,
  "description": "argv for a program of its own, or command for the long-lived shell.",
  "properties": {
    "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "command": {"type": "string"}, "session": {"type": "string", "maxLength": 64},
    "env": {"type": "object", "additionalProperties": {"type": "string"}},
    "workdir": {"type": "string"}, "timeout": {"$ref": "#/components/schemas/Duration"},
    "stdin": {"type": "string"}, "merged": {"type": "boolean"}}},
"CommandRequest": {"type": "object", "additionalProperties": false,
  "description": "argv for a program of its own, or command for the long-lived shell. Without a timeout it runs as long as its sandbox does.",
  "properties": {
    "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "command": {"type": "string"}, "session": {"type": "string", "maxLength": 64},
    "env": {"type": "object", "additionalProperties": {"type": "string"}},
    "workdir": {"type": "string"}, "timeout": {"$ref": "#/components/schemas/Duration"},
    "stdin": {"type": "boolean", "description": "whether input will be given"},
    "terminal": {"type": "boolean"}, "rows": {"type": "integer"}, "columns": {"type": "integer"},
    "merged": {"type": "boolean"}}},
"CommandId": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
"Command": {"type": "object",
  "required": ["id", "state", "kind", "title", "started_ms", "stdout_start", "stdout_end",
    "stderr_start", "stderr_end"],
  "properties": {
    "id": {"type": "string"}, "state": {"type": "string", "enum": ["running", "ended"]},
    "kind": {"type": "string", "enum": ["exec", "shell", "service"]}, "title": {"type": "string"},
    "started_ms": {"type": "integer"},
    "stdout_start": {"type": "integer", "description": "the oldest byte that is kept"},
    "stdout_end": {"type": "integer"}, "stderr_start": {"type": "integer"},
    "stderr_end": {"type": "integer"},
    "result": {"type": ["object", "null"], "description": "once it has ended"}}},
"CommandList": {"type": "object", "required": ["commands"],
  "properties": {"commands": {"type": "array",
    "items": {"$ref": "#/components/schemas/Command"}}}},
"File": {"type": "object", "required": ["path", "kind", "mode", "size", "modified_ms"],
  "properties": {
    "path": {"type": "string"}, "path_b64": {"type": "string"},
    "kind": {"type": "string", "enum": ["file", "directory", "link", "other"]},
    "mode": {"type": "string"}, "size": {"type": "integer"}, "modified_ms": {"type": "integer"},
    "target": {"type": "string"}}},
"FileList": {"type": "object", "required": ["files"],
  "properties": {"files": {"type": "array", "items": {"$ref": "#/components/schemas/File"}}}},
"FileSummary": {"type": "object", "required": ["path", "entries", "bytes", "left_out"],
  "properties": {
    "path": {"type": "string"}, "entries": {"type": "integer"}, "bytes": {"type": "integer"},
    "line": {"type": "integer"}, "left_out": {"type": "array", "items": {"type": "object",
      "properties": {"path": {"type": "string"}, "reason": {"type": "string"}}}}}},
"SearchRequest": {"type": "object", "required": ["path", "text"], "additionalProperties": false,
  "properties": {
    "path": {"type": "string"}, "text": {"type": "string"}, "ignore_case": {"type": "boolean"},
    "pattern": {"type": "string"}, "exclude": {"type": "array", "items": {"type": "string"}},
    "skip_usual": {"type": "boolean"}, "limit": {"type": "integer"}}},
"MatchList": {"type": "object", "required": ["matches"],
  "properties": {"matches": {"type": "array", "items": {"type": "object",
    "required": ["path", "line", "text"], "properties": {"path": {"type": "string"},
      "line": {"type": "integer"}, "text": {"type": "string"}}}}}},
"ModeRequest": {"type": "object", "required": ["path"], "additionalProperties": false,
  "properties": {"path": {"type": "string"}, "mode": {"type": "string"}}},
"TwoPathsRequest": {"type": "object", "required": ["path", "to"], "additionalProperties": false,
  "properties": {"path": {"type": "string"}, "to": {"type": "string"}}},
"RemoveRequest": {"type": "object", "required": ["path"], "additionalProperties": false,
  "properties": {"path": {"type": "string"}, "recursive": {"type": "boolean"}}},
"ReplaceRequest": {"type": "object", "required": ["path", "old", "new"],
  "additionalProperties": false,
  "properties": {"path": {"type": "string"}, "old": {"type": "string"},
    "new": {"type": "string"}}},
"SnapshotRequest": {"type": "object", "additionalProperties": false,
  "properties": {"name": {"type": "string"}}},
"RestoreRequest": {"type": "object", "required": ["snapshot"], "additionalProperties": false,
  "properties": {"snapshot": {"type": "string", "description": "its id or its name"}}},
"ForkRequest": {"type": "object", "additionalProperties": false,
  "properties": {"name": {"type": "string"},
    "workspace": {"type": "string", "description": "the name of the copy"},
    "snapshot": {"type": "string", "description": "from this one, not from what it is now"}}},
"Usage": {"type": "object", "required": ["memory_bytes", "memory_peak_bytes", "pids", "cpu_usec",
    "cpu_throttled_periods", "disk_bytes"],
  "description": "null is what nobody counts on this host",
  "properties": {
    "memory_bytes": {"type": ["integer", "null"]},
    "memory_peak_bytes": {"type": ["integer", "null"]},
    "pids": {"type": ["integer", "null"]}, "cpu_usec": {"type": ["integer", "null"]},
    "cpu_throttled_periods": {"type": ["integer", "null"]},
    "disk_bytes": {"type": ["integer", "null"],
      "description": "of /workspace and the home folder"}}},
"PortRequest": {"type": "object", "required": ["public"], "additionalProperties": false,
  "properties": {"public": {"type": "boolean", "description": "without a token, too"}}},
"Port": {"type": "object", "required": ["port", "public", "path", "url"],
  "description": "Requests for it go to the path and what is below it, or to this server with the headers carrel-sandbox and carrel-port, or to the url, which is an origin of its own.",
  "properties": {"port": {"type": "integer"}, "public": {"type": "boolean"},
    "path": {"type": "string"}, "url": {"type": ["string", "null"],
      "description": "where the daemon listens on TCP"}}},
"PortList": {"type": "object", "required": ["ports"],
  "properties": {"ports": {"type": "array", "items": {"$ref": "#/components/schemas/Port"}}}},
"SignalRequest": {"type": "object", "required": ["signal"], "additionalProperties": false,
  "properties": {"signal": {"type": "string", "description": "TERM, INT, KILL … or a number"}}}
})";

Json with_settings(policy::Operation operation, Json more) {
  Json properties = std::move(more);
  properties.update(settings_schema(operation));
  return {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
}

// What need not be there may as well be null.
void allow_null(Json& request) {
  const Json needed = request.value("required", Json::array());
  for (auto& [name, schema] : request["properties"].items()) {
    if (std::find(needed.begin(), needed.end(), name) != needed.end()) {
      continue;
    }
    if (schema.contains("type")) {
      schema["type"] = Json::array({schema["type"], "null"});
    } else if (schema.contains("oneOf")) {
      schema["oneOf"].push_back({{"type", "null"}});
    } else {
      schema = {{"oneOf", Json::array({schema, Json{{"type", "null"}}})}};
    }
  }
}

}  // namespace

Json schemas() {
  Json all = Json::parse(kFixed, nullptr, false);
  const Json duration{{"$ref", "#/components/schemas/Duration"}};
  const Json text{{"type", "string"}};
  all["CreateRequest"] = with_settings(
      policy::Operation::kCreate,
      {{"name", text},
       {"lease", duration},
       {"run",
        {{"allOf", Json::array({{{"$ref", "#/components/schemas/FirstCommandRequest"}}})},
         {"description", "runs this in it, and answers when that has ended"}}}});
  all["RunRequest"] = with_settings(
      policy::Operation::kRun,
      {{"argv", {{"type", "array"}, {"items", text}, {"minItems", 1}}},
       {"command", {{"type", "string"}, {"description", "for bash, instead of argv"}}},
       {"stdin", text},
       {"merged", {{"type", "boolean"}}}});
  for (auto& [name, schema] : all.items()) {
    if (name.ends_with("Request")) {
      allow_null(schema);
    }
  }
  return all;
}

}  // namespace carrel::server
