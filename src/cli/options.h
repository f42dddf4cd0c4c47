#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/given.h"
#include "policy/settings.h"

namespace carrel::cli {

// The commands and the options of `carrel`, as tables. The parser, the help, the completion and the
// manual all read these; what describes a sandbox comes from policy::settings().

enum class CommandId : unsigned {
  kRun,
  kCode,
  kTasks,
  kCreate,
  kShell,
  kExec,
  kAttach,
  kList,
  kInfo,
  kStats,
  kLogs,
  kRemove,
  kPause,
  kResume,
  kStop,
  kStart,
  kTop,
  kCopy,
  kFile,
  kImage,
  kWorkspace,
  kSnapshot,
  kRestore,
  kFork,
  kDiff,
  kApply,
  kFlow,
  kSetup,
  kDoctor,
  kDf,
  kPrune,
  kEnv,
  kVerify,
  kMount,
  kNet,
  kSecret,
  kPort,
  kServe,
  kAgent,
  kCompletion,
  kVersion,
  kHelp,
  kKeeper,
  kDiskWatch,
  kPorch,
  kHall,
  kEgress,
  kCheckpoint,
};

// What a word after the options is, and so how it is checked and completed. A verb is its
// placeholder, word for word.
enum class OperandKind {
  kSandbox,
  kFile,
  kShellText,
  kShellName,
  kCommandName,
  kImageAction,
  kWorkspaceAction,
  kFlowAction,
  kFileAction,
  kNetAction,
  kSecretAction,
  kVerb,
  kAnything
};

inline constexpr std::string_view kWorkspaceActions = "ls history rm prune forget fsck";
inline constexpr std::string_view kFlowActions =
    "ls turns show explain diff fork rollback replay waits answer abort rm";

struct Operand {
  std::string_view placeholder;
  OperandKind kind = OperandKind::kAnything;
};

inline constexpr std::string_view kNetActions = "explain log set usage";
inline constexpr std::string_view kSecretActions = "set ls rm";
inline constexpr std::string_view kFileActions =
    "read write append create rewrite str-replace delete ls stat find grep mv cp rm chmod mkdir "
    "watch";

// Whether the words after the operands are a command to run, with options of its own.
enum class Trailing { kNothing, kCommand };
enum class Visibility { kListed, kHidden };
enum class CommandGroup { kOnce, kLongLived, kFiles, kOther };

// Exit statuses of wrong usage: 125 for commands whose status is that of the command inside.
inline constexpr int kCarrelFailed = 125;
inline constexpr int kUsageFailed = 2;

struct Command {
  CommandId id;
  std::string_view name;
  std::string_view summary;  // one line, no full stop
  CommandGroup group;
  std::span<const Operand> operands;  // the last one repeats if `most_operands` is larger
  std::size_t least_operands;
  std::size_t most_operands;
  Trailing trailing;
  int usage_status;
  std::optional<policy::Operation> operation;  // the settings it takes, if any
  std::string_view details;                    // paragraphs; wrapped when shown
  std::string_view examples;                   // lines of "command\tmeaning"
  Visibility visibility;
};

std::span<const Command> commands();
const Command* find_command(std::string_view name);
const Command& command(CommandId id);

enum class OptionId {
  kHelp,
  kJson,
  kConfig,
  kTty,
  kMergeOutput,
  kNoStdin,
  kLanguage,
  kName,
  kLease,
  kWaitReady,
  kSession,
  kStdin,
  kDetach,
  kFollow,
  kFrom,
  kCommand,
  kForce,
  kAll,
  kEnforcement,
  kWritable,
  kMan,
  kImageName,
  kSnapshotName,
  kMostBytes,
  kForClient,
  kFromSnapshot,
  kToSnapshot,
  kNamesOnly,
  kOlderThan,
  kDryRun,
  kFlows,
  kSnapshots,
  kNewWorkspace,
  kForkFrom,
  kWorkspaceFrom,
  kYes,
  kInsecureHttp,
  kDebian,
  kSuite,
  kFileTimeout,
  kLines,
  kBytes,
  kMode,
  kText,
  kRecursive,
  kPattern,
  kExclude,
  kSkipUsual,
  kIgnoreCase,
  kLimit,
  kFromFile,
  kFromEnv,
  kFromCommand,
  kHostPort,
  kBind,
  kAllowRemote,
  kListen,
  kTokenFile,
  kNewToken,
  kReadOnly,
  kServedHosts,
  kIdleExit,
  kMostSandboxes,
  kQuota,
  kReserve,
  kOnce,
  kWebhook,
  kWebhookSecret,
  kWarm,
  kTlsCertificate,
  kTlsKey,
  kOtlp,
  kOpenapi,
  kProfile,
  kModel,
  kScript,
  kFlowFile,
  kExecution,
  kResume,
  kCachedFiles,
  kCached,
  kMostSteps,
  kMostTokens,
  kMostTime,
  kFlowName,
  kMost,
  kRunNumber,
  kReplayFrom,
  kLive,
  kReplaySet,
  kPolicy,
  kJunit,
  kOnly,
  kForShell,
};

// An option that is about the command itself and not about the sandbox.
struct Option {
  OptionId id;
  char short_name;                              // 0: it has none
  std::string_view name;                        // without the dashes
  std::string_view placeholder;                 // empty: a flag
  std::string_view help;                        // one line, no full stop
  std::string_view choices;                     // words to complete, separated by spaces
  std::uint64_t commands;                       // a bit for each CommandId
  Status (*check)(const policy::Given& given);  // null: any value
  enum class Times { kOnce, kSeveral } times = Times::kOnce;

  [[nodiscard]] bool is_flag() const { return placeholder.empty(); }
  [[nodiscard]] bool belongs_to(const Command& command) const {
    return (commands & (std::uint64_t{1} << static_cast<unsigned>(command.id))) != 0;
  }
};

std::span<const Option> options();
const Option& option(OptionId id);

// Whether the command takes this setting as an option.
bool takes_setting(const Command& command, const policy::Setting& setting);

// An option as help, completion and manual show it, whichever table it comes from.
struct OfferedOption {
  std::string_view section;  // the heading it belongs under
  char short_name;
  std::string_view name;
  std::string_view placeholder;
  std::string_view help;
  std::string_view choices;
};

// The options of a command, section by section; those of parts that are not built are left out.
std::vector<OfferedOption> offered_options(const Command& command);

// Calls `visit` with each word of a list separated by spaces.
template <typename Visit>
void for_each_word(std::string_view words, Visit&& visit) {
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(' '));
    words.remove_prefix(word.size() < words.size() ? word.size() + 1 : word.size());
    if (!word.empty()) {
      visit(word);
    }
  }
}

}  // namespace carrel::cli
