#include "server/routes.h"

#include <array>

#include "server/handlers.h"

namespace carrel::server {
namespace {

constexpr std::string_view kJsonType = "application/json";
constexpr std::string_view kEventsType = "text/event-stream";
constexpr std::string_view kBytesType = "application/octet-stream";
constexpr std::span<const Parameter> kNothing{};

constexpr auto kRequired = Parameter::Need::kRequired;

constexpr std::array kListQuery = {
    Parameter{"limit", "integer", "how many at the most, 100 without"},
    Parameter{"cursor", "string", "next_cursor of the page before"},
    Parameter{"all", "boolean", "those that have ended, too"},
    Parameter{"name", "string", "the one of this name"}};
constexpr std::array kDeleteQuery = {
    Parameter{"grace_ms", "integer", "how long its processes have to end by themselves"}};
constexpr std::array kOutputQuery = {Parameter{"offset", "integer", "from which byte on"},
                                     Parameter{"stream", "string", "stdout or stderr"}};
constexpr std::array kFollowQuery = {
    Parameter{"stdout", "integer", "from which byte of stdout on"},
    Parameter{"stderr", "integer", "from which byte of stderr on"}};
constexpr std::array kTerminalQuery = {
    Parameter{"offset", "integer", "from which byte of the output on"}};
constexpr std::array kStdinQuery = {
    Parameter{"close", "boolean", "whether this was the last of it"}};
constexpr std::array kEventsQuery = {
    Parameter{"sandbox", "string", "of this sandbox alone"},
    Parameter{"past", "boolean", "what is known of the past first"}};

constexpr std::array kServicesQuery = {
    Parameter{"wait_ms", "integer", "how long to wait until all of them are ready"}};
constexpr std::array kPathQuery = {
    Parameter{"path", "string", "in the sandbox; relative ones from its work dir", kRequired}};
constexpr std::array kReadQuery = {
    Parameter{"path", "string", "in the sandbox; relative ones from its work dir", kRequired},
    Parameter{"offset", "integer", "from which byte on"},
    Parameter{"count", "integer", "how many bytes at the most"}};
constexpr std::array kWriteQuery = {
    Parameter{"path", "string", "in the sandbox; relative ones from its work dir", kRequired},
    Parameter{"mode", "string", "octal digits"},
    Parameter{"exists", "string", "replace, fail, need or append"},
    Parameter{
        "offset", "integer",
        "for append: how many bytes it has, or 409; so an upload goes on where it broke off"}};
constexpr std::array kDiffQuery = {
    Parameter{"from", "string", "a snapshot of it; without: the last one"},
    Parameter{"to", "string", "a snapshot of it; without: what is there now"}};
constexpr std::array kWatchQuery = {
    Parameter{"path", "string", "in the sandbox; relative ones from its work dir", kRequired},
    Parameter{"recursive", "boolean", "with all that is below"}};
constexpr std::array kFilesQuery = {
    Parameter{"path", "string", "in the sandbox; relative ones from its work dir", kRequired},
    Parameter{"recursive", "boolean", "with all that is below"},
    Parameter{"pattern", "string", "names like this, with * ? and []"},
    Parameter{"limit", "integer", "at most so many, 10000 without"}};

#define SANDBOX "/v1/sandboxes/{id}"
#define COMMAND SANDBOX "/commands/{command}"

constexpr std::array kRoutes = {
    Route{"GET", "/v1/health", "getHealth", "Whether the daemon is there", Scope::kOpen,
          Body::kNone, "", 200, kJsonType, "Status", kNothing, get_health},
    Route{"GET", "/v1/ready", "getReady", "Whether it can serve", Scope::kOpen, Body::kNone, "",
          200, kJsonType, "Status", kNothing, get_ready},
    Route{"GET", "/v1/version", "getVersion", "Which version it is", Scope::kRead, Body::kNone, "",
          200, kJsonType, "Version", kNothing, get_version},
    Route{"GET", "/v1/openapi.json", "getOpenapi", "This document", Scope::kRead, Body::kNone, "",
          200, kJsonType, "Anything", kNothing, get_openapi},
    Route{"GET", "/metrics", "getMetrics", "Numbers in the form of Prometheus", Scope::kRead,
          Body::kNone, "", 200, "text/plain", "Text", kNothing, get_metrics},

    Route{"POST", "/v1/run", "runOnce", "Runs a command in a fresh sandbox", Scope::kWrite,
          Body::kJson, "RunRequest", 200, kJsonType, "Result", kNothing, run_once},

    Route{"POST", "/v1/sandboxes", "createSandbox", "Makes a sandbox", Scope::kWrite, Body::kJson,
          "CreateRequest", 201, kJsonType, "Sandbox", kNothing, create_sandbox},
    Route{"GET", "/v1/sandboxes", "listSandboxes", "The sandboxes, oldest first", Scope::kRead,
          Body::kNone, "", 200, kJsonType, "SandboxPage", kListQuery, list_sandboxes},
    Route{"GET", SANDBOX, "getSandbox", "One sandbox, also after its end", Scope::kRead,
          Body::kNone, "", 200, kJsonType, "Sandbox", kNothing, get_sandbox},
    Route{"DELETE", SANDBOX, "deleteSandbox", "Ends a sandbox and removes what belongs to it",
          Scope::kWrite, Body::kNone, "", 204, "", "", kDeleteQuery, delete_sandbox},
    Route{"PUT", SANDBOX "/lease", "putLease", "When it ends unless that is put off again",
          Scope::kWrite, Body::kJson, "LeaseRequest", 200, kJsonType, "Sandbox", kNothing,
          put_lease},

    Route{"POST", SANDBOX "/pause", "pauseSandbox",
          "Makes it stand still, with what is in its memory", Scope::kWrite, Body::kNone, "", 200,
          kJsonType, "Sandbox", kNothing, pause_sandbox},
    Route{"POST", SANDBOX "/resume", "resumeSandbox", "Lets a paused one go on", Scope::kWrite,
          Body::kNone, "", 200, kJsonType, "Sandbox", kNothing, resume_sandbox},

    Route{"POST", SANDBOX "/stop", "stopSandbox",
          "Ends what runs in it and keeps its settings and its workspace", Scope::kWrite,
          Body::kNone, "", 200, kJsonType, "Sandbox", kDeleteQuery, stop_sandbox},
    Route{"POST", SANDBOX "/start", "startSandbox", "Starts a stopped one again, under its id",
          Scope::kWrite, Body::kNone, "", 200, kJsonType, "Sandbox", kNothing, start_sandbox},

    Route{"POST", SANDBOX "/shell", "runShell", "Runs a command in the long-lived shell",
          Scope::kWrite, Body::kJson, "ShellRequest", 200, kJsonType, "Result", kNothing,
          run_shell},
    Route{"POST", SANDBOX "/exec", "runExec", "Runs a program of its own", Scope::kWrite,
          Body::kJson, "ExecRequest", 200, kJsonType, "Result", kNothing, run_exec},

    Route{"POST", SANDBOX "/commands", "startCommand", "Starts a command in the background",
          Scope::kWrite, Body::kJson, "CommandRequest", 201, kJsonType, "CommandId", kNothing,
          start_background},
    Route{"GET", SANDBOX "/commands", "listCommands", "The commands that the sandbox knows",
          Scope::kRead, Body::kNone, "", 200, kJsonType, "CommandList", kNothing, list_background},
    Route{"GET", COMMAND, "getCommand", "One command, and how it ended", Scope::kRead, Body::kNone,
          "", 200, kJsonType, "Command", kNothing, get_background},
    Route{"GET", COMMAND "/output", "getOutput", "What there is of its output", Scope::kRead,
          Body::kNone, "", 200, kBytesType, "Bytes", kOutputQuery, get_output},
    Route{"GET", COMMAND "/events", "followCommand", "Its output as it comes, and its end",
          Scope::kRead, Body::kNone, "", 200, kEventsType, "StreamEvent", kFollowQuery,
          get_output_events},
    Route{"GET", COMMAND "/terminal", "openTerminal",
          "Its input and output over a WebSocket: bytes as binary messages, JSON as texts",
          Scope::kWrite, Body::kNone, "", 101, "", "", kTerminalQuery, open_terminal},
    Route{"POST", COMMAND "/stdin", "giveInput", "Input for it", Scope::kWrite, Body::kBytes, "",
          204, "", "", kStdinQuery, post_stdin},
    Route{"POST", COMMAND "/signal", "sendSignal", "A signal for its processes", Scope::kWrite,
          Body::kJson, "SignalRequest", 204, "", "", kNothing, post_signal},
    Route{"DELETE", COMMAND, "killCommand", "Ends it and everything that it started", Scope::kWrite,
          Body::kNone, "", 204, "", "", kNothing, delete_background},

    Route{"GET", SANDBOX "/files", "readFile",
          "The bytes of a file; with a header 'Range' a part of them (206)", Scope::kRead,
          Body::kNone, "", 200, kBytesType, "Bytes", kReadQuery, read_file},
    Route{"PUT", SANDBOX "/files", "writeFile", "Writes a file, whole or not at all", Scope::kWrite,
          Body::kBytes, "", 200, kJsonType, "FileSummary", kWriteQuery, write_file},
    Route{"GET", SANDBOX "/files/list", "listFiles", "What is in a directory", Scope::kRead,
          Body::kNone, "", 200, kJsonType, "FileList", kFilesQuery, list_files},
    Route{"GET", SANDBOX "/files/stat", "statFile", "What is known of one file", Scope::kRead,
          Body::kNone, "", 200, kJsonType, "File", kPathQuery, stat_file},
    Route{"GET", SANDBOX "/files/watch", "watchFiles",
          "What changes in a directory, as it changes: 'watching' first, then a 'change' each",
          Scope::kRead, Body::kNone, "", 200, kEventsType, "StreamEvent", kWatchQuery, watch_files},
    Route{"POST", SANDBOX "/files/search", "searchFiles", "Lines with a text", Scope::kRead,
          Body::kJson, "SearchRequest", 200, kJsonType, "MatchList", kNothing, search_files},
    Route{"POST", SANDBOX "/files/mkdir", "makeDirectory", "Makes a directory, and those above it",
          Scope::kWrite, Body::kJson, "ModeRequest", 200, kJsonType, "FileSummary", kNothing,
          change_files},
    Route{"POST", SANDBOX "/files/chmod", "changeMode", "Changes the mode of a file", Scope::kWrite,
          Body::kJson, "ModeRequest", 200, kJsonType, "FileSummary", kNothing, change_files},
    Route{"POST", SANDBOX "/files/move", "moveFile", "Moves a file or a directory", Scope::kWrite,
          Body::kJson, "TwoPathsRequest", 200, kJsonType, "FileSummary", kNothing, change_files},
    Route{"POST", SANDBOX "/files/copy", "copyFile", "Copies a file or a directory", Scope::kWrite,
          Body::kJson, "TwoPathsRequest", 200, kJsonType, "FileSummary", kNothing, change_files},
    Route{"POST", SANDBOX "/files/remove", "removeFile", "Removes a file or a directory",
          Scope::kWrite, Body::kJson, "RemoveRequest", 200, kJsonType, "FileSummary", kNothing,
          change_files},
    Route{"POST", SANDBOX "/files/replace", "replaceText", "Replaces the only occurrence of a text",
          Scope::kWrite, Body::kJson, "ReplaceRequest", 200, kJsonType, "FileSummary", kNothing,
          change_files},
    Route{"GET", SANDBOX "/archive", "getArchive", "A directory as a tar", Scope::kRead,
          Body::kNone, "", 200, "application/x-tar", "Bytes", kPathQuery, get_archive},
    Route{"PUT", SANDBOX "/archive", "putArchive", "Unpacks a tar below a directory", Scope::kWrite,
          Body::kBytes, "", 200, kJsonType, "FileSummary", kPathQuery, put_archive},

    Route{"POST", SANDBOX "/forks", "forkSandbox",
          "Another sandbox like it, with a copy of its workspace", Scope::kWrite, Body::kJson,
          "ForkRequest", 201, kJsonType, "Sandbox", kNothing, fork_sandbox},
    Route{"GET", SANDBOX "/usage", "getUsage", "What it uses now", Scope::kRead, Body::kNone, "",
          200, kJsonType, "Usage", kNothing, get_usage},

    Route{"GET", SANDBOX "/services", "listServices", "How its services are", Scope::kRead,
          Body::kNone, "", 200, kJsonType, "ServiceList", kServicesQuery, get_services},

    Route{"GET", SANDBOX "/ports", "listPorts", "The ports that everybody may reach", Scope::kRead,
          Body::kNone, "", 200, kJsonType, "PortList", kNothing, list_ports},
    Route{"PUT", SANDBOX "/ports/{port}", "putPort", "Whether everybody may reach a port",
          Scope::kWrite, Body::kJson, "PortRequest", 200, kJsonType, "Port", kNothing, put_port},

    Route{"POST", SANDBOX "/snapshots", "takeSnapshot", "Keeps what the workspace holds now",
          Scope::kWrite, Body::kJson, "SnapshotRequest", 201, kJsonType, "Anything", kNothing,
          take_snapshot},
    Route{"POST", SANDBOX "/restore", "restoreSnapshot",
          "Makes the workspace what it was in a snapshot", Scope::kWrite, Body::kJson,
          "RestoreRequest", 200, kJsonType, "Anything", kNothing, restore_snapshot},
    Route{"GET", SANDBOX "/diff", "getDiff", "What changed in the workspace", Scope::kRead,
          Body::kNone, "", 200, kJsonType, "Anything", kDiffQuery, get_diff},

    Route{"GET", "/v1/workspaces", "listWorkspaces",
          "What there is on the disk beside sandboxes, and what is charged for it", Scope::kRead,
          Body::kNone, "", 200, kJsonType, "WorkspaceList", kNothing, list_workspaces},
    Route{"DELETE", "/v1/workspaces/{workspace}", "deleteWorkspace",
          "Removes a workspace that no sandbox has, with its snapshots", Scope::kWrite, Body::kNone,
          "", 204, "", "", kNothing, delete_workspace},
    Route{"DELETE", "/v1/snapshots/{snapshot}", "deleteSnapshot", "Removes a snapshot",
          Scope::kWrite, Body::kNone, "", 204, "", "", kNothing, delete_snapshot},

    Route{"GET", "/v1/events", "followEvents", "What happens to sandboxes, as it happens",
          Scope::kRead, Body::kNone, "", 200, kEventsType, "StreamEvent", kEventsQuery, get_events},
};

#undef SANDBOX
#undef COMMAND

}  // namespace

std::span<const Route> routes() { return kRoutes; }

}  // namespace carrel::server
