#include "cli/options.h"

#include <array>
#include <string>

#include "policy/address_class.h"
#include "policy/names.h"
#include "policy/size.h"
#include "verify/attack_table.h"

namespace carrel::cli {
namespace {

using policy::Given;

template <typename... Ids>
constexpr std::uint64_t of(Ids... ids) {
  return ((std::uint64_t{1} << static_cast<unsigned>(ids)) | ...);
}
constexpr std::uint64_t kAllCommands = ~std::uint64_t{0};

Status check_lease(const Given& given) {
  CARREL_TRY(policy::parse_duration(given));
  return {};
}

Status check_offset(const Given& given) {
  CARREL_TRY(policy::parse_count(given, {.least = 0, .most = INT64_MAX}));
  return {};
}

Status check_port(const Given& given) {
  CARREL_TRY(policy::parse_count(given, {.least = 1, .most = 65535}));
  return {};
}

Status check_address(const Given& given) {
  if (!policy::IpAddress::parse(given.text).has_value()) {
    return policy::bad_value(given, "not an address", "such as 127.0.0.1 or ::1");
  }
  return {};
}

Status check_number(const Given& given) {
  CARREL_TRY(policy::parse_count(given, {.least = 1, .most = INT64_MAX}));
  return {};
}

// TURN.NAME=TEXT, where a turn's name may have dots.
Status check_replay_set(const Given& given) {
  const std::size_t sign = given.text.find('=');
  const std::size_t dot = given.text.substr(0, sign).rfind('.');
  const std::string_view name =
      sign == std::string_view::npos || dot == std::string_view::npos || dot == 0
          ? std::string_view()
          : given.text.substr(dot + 1, sign - dot - 1);
  return name == "prompt" || name == "output"
             ? Status()
             : Status(Error{Code::kInvalid, 0,
                            std::string(given.name) + " '" + std::string(given.text) +
                                "' is not TURN.prompt=TEXT or TURN.output=TEXT",
                            "for example 2.prompt='in French'"});
}

Status check_warm(const Given& given) {
  CARREL_TRY(policy::parse_count(given, {.least = 0, .most = 64}));
  return {};
}

// OFFSET:COUNT or FIRST:LAST, either of which may be missing.
Status check_range(const Given& given) {
  const std::size_t colon = given.text.find(':');
  for (const std::string_view part :
       {given.text.substr(0, colon),
        colon == std::string_view::npos ? std::string_view() : given.text.substr(colon + 1)}) {
    if (!part.empty()) {
      CARREL_TRY(policy::parse_count({given.name, part}, {.least = 0, .most = INT64_MAX}));
    }
  }
  return {};
}

Status check_mode(const Given& given) {
  if (given.text.empty() || given.text.size() > 4 ||
      given.text.find_first_not_of("01234567") != std::string_view::npos ||
      (given.text.size() == 4 && given.text.front() > '1')) {
    return policy::bad_value(given, "not a mode", "octal digits up to 1777, such as 644");
  }
  return {};
}

Status check_cached_files(const Given& given) {
  return given.text == "restore" || given.text == "keep"
             ? Status()
             : Status(policy::bad_value(given, "unknown word", "one of restore, keep"));
}

Status check_language(const Given& given) {
  if (given.text == "python" || given.text == "bash" || given.text == "node") {
    return {};
  }
  return policy::bad_value(given, "unknown language", "one of python, bash, node");
}

Status check_group(const Given& given) {
  return verify::selection_named(given.text).has_value()
             ? Status()
             : policy::bad_value(
                   given, "unknown group or attack",
                   "one of " + std::string(verify::kGroupNames) + ", or the name of an attack");
}

constexpr std::array kOptions = {
    Option{OptionId::kTty, 't', "tty", "", "give the command a terminal, this one", "",
           of(CommandId::kRun, CommandId::kExec), nullptr},
    Option{OptionId::kMergeOutput, 0, "merge-output", "",
           "one stream for both outputs, in the order they were written", "",
           of(CommandId::kRun, CommandId::kCode), nullptr},
    Option{OptionId::kNoStdin, 0, "no-stdin", "", "give the command an empty standard input", "",
           of(CommandId::kRun, CommandId::kCode, CommandId::kExec), nullptr},
    Option{OptionId::kLanguage, 0, "lang", "NAME",
           "python, bash or node (by the file's ending, else python)", "python bash node",
           of(CommandId::kCode), check_language},
    Option{OptionId::kName, 0, "name", "NAME", "a name to use in place of the id", "",
           of(CommandId::kCreate, CommandId::kFork, CommandId::kFlow), policy::check_name},
    Option{OptionId::kImageName, 0, "name", "NAME", "the name of the image", "",
           of(CommandId::kImage), policy::check_image_name},
    Option{OptionId::kSnapshotName, 0, "name", "NAME", "a name for the snapshot", "",
           of(CommandId::kSnapshot), policy::check_name},
    Option{OptionId::kMostBytes, 0, "most", "BYTES",
           "that the snapshot may take of the disk, or it is refused", "",
           of(CommandId::kSnapshot, CommandId::kFork), check_offset},
    Option{OptionId::kForClient, 0, "for", "CLIENT", "whose of a daemon's clients it is", "",
           of(CommandId::kFork), nullptr},
    Option{OptionId::kNewWorkspace, 0, "workspace", "NAME", "the name of the new workspace", "",
           of(CommandId::kFork, CommandId::kFlow), policy::check_name},
    Option{OptionId::kForkFrom, 0, "from", "SNAPSHOT",
           "continue from this snapshot, not from what it is now", "", of(CommandId::kFork),
           nullptr},
    Option{OptionId::kWorkspaceFrom, 0, "workspace-from", "DIR",
           "begin with a copy of this host directory; without --workspace it goes with the sandbox",
           "", of(CommandId::kRun, CommandId::kCode, CommandId::kCreate, CommandId::kAgent),
           nullptr},
    Option{OptionId::kYes, 'y', "yes", "", "do not ask", "", of(CommandId::kApply), nullptr},
    Option{OptionId::kFromSnapshot, 0, "from", "SNAPSHOT", "compare with this one", "",
           of(CommandId::kDiff), nullptr},
    Option{OptionId::kToSnapshot, 0, "to", "SNAPSHOT", "and not with what it is now", "",
           of(CommandId::kDiff), nullptr},
    Option{OptionId::kNamesOnly, 0, "names", "", "only which files, not what in them", "",
           of(CommandId::kDiff, CommandId::kFlow), nullptr},
    Option{OptionId::kOlderThan, 0, "older-than", "TIME", "what nobody had, or ended, so long ago",
           "", of(CommandId::kWorkspace, CommandId::kPrune), check_lease},
    Option{OptionId::kDryRun, 0, "dry-run", "", "only say what would be removed", "",
           of(CommandId::kPrune), nullptr},
    Option{OptionId::kFlows, 0, "flows", "", "also executions of flows that have ended", "",
           of(CommandId::kPrune), nullptr},
    Option{OptionId::kSnapshots, 0, "snapshots", "", "also snapshots that have no name", "",
           of(CommandId::kPrune), nullptr},
    Option{OptionId::kInsecureHttp, 0, "insecure-http", "",
           "pull without encryption from a registry that has none", "", of(CommandId::kImage),
           nullptr},
    Option{OptionId::kDebian, 0, "debian", "", "build the image from Debian packages", "",
           of(CommandId::kImage), nullptr},
    Option{OptionId::kSuite, 0, "suite", "NAME", "the release of Debian (bookworm)", "",
           of(CommandId::kImage), policy::check_name},
    Option{OptionId::kLease, 0, "lease", "TIME", "end by itself after this long", "",
           of(CommandId::kCreate), check_lease},
    Option{OptionId::kWaitReady, 0, "wait-ready", "TIME",
           "wait until its services are ready, but not longer than this", "",
           of(CommandId::kCreate, CommandId::kStart), check_lease},
    Option{OptionId::kSession, 0, "session", "NAME", "use the shell of this name, made at need", "",
           of(CommandId::kShell), policy::check_name},
    Option{OptionId::kStdin, 0, "stdin", "", "pass the standard input to the command", "",
           of(CommandId::kShell), nullptr},
    Option{OptionId::kDetach, 0, "detach", "", "do not wait; print the command's number", "",
           of(CommandId::kExec), nullptr},
    Option{OptionId::kFollow, 'f', "follow", "", "go on as output arrives", "",
           of(CommandId::kLogs, CommandId::kNet), nullptr},
    Option{OptionId::kFrom, 0, "from", "OFFSET", "start at this byte of the output", "",
           of(CommandId::kLogs), check_offset},
    Option{OptionId::kCommand, 0, "command", "NUMBER", "the output of this command only", "",
           of(CommandId::kLogs), check_number},
    Option{OptionId::kForce, 0, "force", "", "kill at once; a missing sandbox is no error", "",
           of(CommandId::kRemove), nullptr},
    Option{OptionId::kAll, 0, "all", "", "every sandbox, those that have ended too", "",
           of(CommandId::kRemove, CommandId::kList), nullptr},
    Option{OptionId::kEnforcement, 0, "enforcement", "", "what is really enforced, and how", "",
           of(CommandId::kInfo), nullptr},
    Option{OptionId::kWritable, 0, "rw", "", "ask for a mount that can be changed", "",
           of(CommandId::kMount), nullptr},
    Option{OptionId::kFileTimeout, 0, "timeout", "TIME", "give up after this long [1h]", "",
           of(CommandId::kCopy, CommandId::kFile), check_lease},
    Option{OptionId::kLines, 0, "lines", "FIRST:LAST", "read: these lines; the first is 1", "",
           of(CommandId::kFile), check_range},
    Option{OptionId::kBytes, 0, "bytes", "OFFSET:COUNT", "read: these bytes", "",
           of(CommandId::kFile), check_range},
    Option{OptionId::kMode, 0, "mode", "MODE", "write, create, mkdir: the mode, in octal", "",
           of(CommandId::kFile), check_mode},
    Option{OptionId::kText, 0, "text", "TEXT", "write this and not the standard input", "",
           of(CommandId::kFile), nullptr},
    Option{OptionId::kRecursive, 'r', "recursive", "", "ls, rm, watch: with all that is below", "",
           of(CommandId::kFile), nullptr},
    Option{OptionId::kPattern, 0, "name", "GLOB", "ls, find: names like this, with * ? and []", "",
           of(CommandId::kFile), nullptr},
    Option{OptionId::kExclude, 0, "exclude", "GLOB,...",
           "ls, find, grep: without these names and what is below them", "", of(CommandId::kFile),
           nullptr},
    Option{OptionId::kSkipUsual, 0, "skip-usual", "",
           "ls, find, grep: without node_modules, .git, build, images and the like", "",
           of(CommandId::kFile), nullptr},
    Option{OptionId::kIgnoreCase, 'i', "ignore-case", "", "grep: capital letters are like others",
           "", of(CommandId::kFile), nullptr},
    Option{OptionId::kLimit, 0, "limit", "NUMBER", "ls, find, grep: at most so many", "",
           of(CommandId::kFile), check_number},
    Option{OptionId::kFromFile, 0, "from-file", "FILE", "set: the value is what the file has", "",
           of(CommandId::kSecret), nullptr},
    Option{OptionId::kFromEnv, 0, "from-env", "NAME", "set: the value of this variable", "",
           of(CommandId::kSecret), nullptr},
    Option{OptionId::kFromCommand, 0, "from-command", "COMMAND",
           "set: what this shell command prints", "", of(CommandId::kSecret), nullptr},
    Option{OptionId::kHostPort, 0, "host-port", "NUMBER",
           "the port of this host [any that is free]", "", of(CommandId::kPort), check_port},
    Option{OptionId::kBind, 0, "bind", "ADDRESS", "the address of this host [127.0.0.1]", "",
           of(CommandId::kPort), check_address},
    Option{OptionId::kAllowRemote, 0, "allow-remote", "",
           "let --bind be an address that other machines can reach", "", of(CommandId::kPort),
           nullptr},
    Option{OptionId::kListen, 0, "listen", "PLACE,...",
           "unix:PATH or tcp:HOST:PORT [a socket in CARREL_HOME]", "", of(CommandId::kServe),
           nullptr},
    Option{OptionId::kTokenFile, 0, "token-file", "FILE", "who may come over TCP", "",
           of(CommandId::kServe), nullptr},
    Option{OptionId::kTlsCertificate, 0, "tls-cert", "FILE",
           "over TCP speak TLS with this certificate and its chain", "", of(CommandId::kServe),
           nullptr},
    Option{OptionId::kTlsKey, 0, "tls-key", "FILE", "the certificate's key", "",
           of(CommandId::kServe), nullptr},
    Option{OptionId::kNewToken, 0, "new-token", "NAME", "make a token, print it, and be done", "",
           of(CommandId::kServe), nullptr},
    Option{OptionId::kReadOnly, 0, "read-only", "", "the new token may only look", "",
           of(CommandId::kServe), nullptr},
    Option{OptionId::kServedHosts, 0, "host", "NAME,...", "names by which clients may call it", "",
           of(CommandId::kServe), nullptr},
    Option{OptionId::kIdleExit, 0, "idle-exit", "TIME", "leave after so long without a client", "",
           of(CommandId::kServe), check_lease},
    Option{OptionId::kOnce, 0, "once", "", "show it once", "", of(CommandId::kTop), nullptr},
    Option{OptionId::kWebhook, 0, "webhook", "URL", "tell every event to this address, signed", "",
           of(CommandId::kServe), nullptr},
    Option{OptionId::kWebhookSecret, 0, "webhook-secret-file", "FILE",
           "what the events are signed with", "", of(CommandId::kServe), nullptr},
    Option{OptionId::kQuota, 0, "quota", "WHAT=MOST,...",
           "of the new token: sandboxes, cpus, memory, disk", "", of(CommandId::kServe), nullptr},
    Option{OptionId::kReserve, 0, "reserve", "WHAT=SIZE,...",
           "of this host's, and no new sandbox with less [memory=128m,disk=256m]", "",
           of(CommandId::kServe), nullptr},
    Option{OptionId::kMostSandboxes, 0, "max-sandboxes", "NUMBER", "how many there may be [100]",
           "", of(CommandId::kServe), check_number},
    Option{OptionId::kWarm, 0, "warm", "NUMBER",
           "sandboxes that are kept ready for the next ones, 64 at most", "", of(CommandId::kServe),
           check_warm},
    Option{OptionId::kOtlp, 0, "otlp", "URL",
           "tell an OpenTelemetry collector about requests and commands", "", of(CommandId::kServe),
           nullptr},
    Option{OptionId::kOpenapi, 0, "openapi", "", "print the API's OpenAPI document", "",
           of(CommandId::kServe), nullptr},
    Option{OptionId::kProfile, 0, "profile", "FILE", "what the agent is and may do", "",
           of(CommandId::kAgent), nullptr},
    Option{OptionId::kModel, 0, "model", "PROVIDER:NAME",
           "anthropic or openai, and the model [CARREL_MODEL]", "",
           of(CommandId::kAgent, CommandId::kFlow), nullptr},
    Option{OptionId::kScript, 0, "script", "FILE", "no model: the answers are in this file", "",
           of(CommandId::kAgent, CommandId::kFlow), nullptr},
    Option{OptionId::kFlowFile, 0, "file", "FILE", "a flow of several turns, TOML", "",
           of(CommandId::kAgent), nullptr},
    Option{OptionId::kExecution, 0, "execution", "ID",
           "the execution's id; what one of that id has finished is not done again", "",
           of(CommandId::kAgent), policy::check_name},
    Option{OptionId::kResume, 0, "resume", "ID", "go on with this execution where it stopped", "",
           of(CommandId::kAgent), nullptr},
    Option{OptionId::kCached, 0, "cached", "",
           "take turns from other executions, too, if nothing that counts differs", "",
           of(CommandId::kAgent), nullptr},
    Option{OptionId::kCachedFiles, 0, "files", "restore|keep",
           "after a turn from the journal: its files, or what there is [restore]", "restore keep",
           of(CommandId::kAgent), check_cached_files},
    Option{OptionId::kMostSteps, 0, "max-steps", "NUMBER", "answers of the model in one turn [50]",
           "", of(CommandId::kAgent), check_number},
    Option{OptionId::kMostTokens, 0, "max-tokens", "NUMBER", "tokens in all [2000000]", "",
           of(CommandId::kAgent), check_number},
    Option{OptionId::kMostTime, 0, "max-time", "TIME", "for all turns together [1h]", "",
           of(CommandId::kAgent), check_lease},
    Option{OptionId::kFlowName, 0, "flow", "NAME", "ls: of this flow only", "",
           of(CommandId::kFlow), policy::check_name},
    Option{OptionId::kMost, 0, "limit", "NUMBER", "ls, turns: at most so many [20]", "",
           of(CommandId::kFlow), check_number},
    Option{OptionId::kRunNumber, 0, "run", "NUMBER", "show: this run and not the last one", "",
           of(CommandId::kFlow), check_number},
    Option{OptionId::kReplayFrom, 0, "from", "TURN",
           "replay: those before it are taken as they were [the first]", "", of(CommandId::kFlow),
           nullptr},
    Option{OptionId::kLive, 0, "live", "",
           "replay: run it and what follows anew, with the model and its tools", "",
           of(CommandId::kFlow), nullptr},
    Option{OptionId::kReplaySet, 0, "set", "TURN.NAME=TEXT",
           "replay: with another prompt or output of that turn; several times", "",
           of(CommandId::kFlow), check_replay_set, Option::Times::kSeveral},
    Option{OptionId::kPolicy, 0, "policy", "FILE", "attack a sandbox of this carrel.toml", "",
           of(CommandId::kVerify), nullptr},
    Option{OptionId::kJunit, 0, "junit", "FILE", "write the results for CI to this file", "",
           of(CommandId::kVerify), nullptr},
    Option{OptionId::kOnly, 0, "only", "GROUP", "only these attacks, or the one of this name",
           verify::kGroupNames, of(CommandId::kVerify), check_group},
    Option{OptionId::kForShell, 0, "shell", "", "print what a shell can evaluate", "",
           of(CommandId::kEnv), nullptr},
    Option{OptionId::kMan, 0, "man", "", "print the manual page (roff)", "", of(CommandId::kHelp),
           nullptr},
    Option{OptionId::kJson, 0, "json", "", "print one JSON object", "", kAllCommands, nullptr},
    Option{OptionId::kConfig, 0, "config", "FILE", "read settings from this carrel.toml", "",
           kAllCommands, nullptr},
    Option{OptionId::kHelp, 'h', "help", "", "explain this command", "", kAllCommands, nullptr},
};

}  // namespace

std::span<const Option> options() { return kOptions; }

const Option& option(OptionId id) {
  for (const Option& row : kOptions) {
    if (row.id == id) {
      return row;
    }
  }
  return kOptions.back();
}

std::vector<OfferedOption> offered_options(const Command& command) {
  std::vector<OfferedOption> offered;
  for (const Option& row : kOptions) {
    if (row.belongs_to(command)) {
      offered.push_back(
          {"Options", row.short_name, row.name, row.placeholder, row.help, row.choices});
    }
  }
  const auto add_group = [&](policy::SettingGroup group, std::string_view section) {
    for (const policy::Setting& setting : policy::settings()) {
      if (setting.group == group && setting.offered == policy::Offered::kEverywhere &&
          takes_setting(command, setting)) {
        offered.push_back(
            {section, 0, setting.name, setting.placeholder, setting.help, setting.choices});
      }
    }
  };
  add_group(policy::SettingGroup::kLimits, "Limits");
  add_group(policy::SettingGroup::kInside, "What it looks like inside");
  add_group(policy::SettingGroup::kHost, "How the host builds it");
  return offered;
}

bool takes_setting(const Command& command, const policy::Setting& setting) {
  return command.operation.has_value() && setting.offered != policy::Offered::kConfigOnly &&
         setting.operations.has(*command.operation);
}

}  // namespace carrel::cli
