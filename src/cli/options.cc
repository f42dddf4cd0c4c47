#include "cli/options.h"

#include <array>
#include <limits>

#include "cli/operands.h"
#include "policy/address_class.h"
#include "policy/names.h"
#include "policy/size.h"

namespace carrel::cli {
namespace {

using policy::Given;
using policy::Operation;

constexpr std::size_t kMany = std::numeric_limits<std::size_t>::max();

constexpr std::array kCommands = {
    Command{CommandId::kRun, "run", "run a command in a fresh sandbox, then remove it",
            CommandGroup::kOnce, kNone, 0, 0, Trailing::kCommand, kCarrelFailed, Operation::kRun,
            "The command gets a read-only root, an empty /workspace, a /tmp of its own and no "
            "network. Its exit status is passed on. Options end at the first word of the command; "
            "a -- before it keeps the two apart.",
            "carrel run -- python3 -c 'print(42)'\tone command\n"
            "carrel run --memory 1g --timeout 5 -- make test\twith other limits\n"
            "echo hi | carrel run -- tr a-z A-Z\tinput is passed through\n"
            "carrel run --mount .:/src --mount ./out:/out:rw -- make -C /src\twith folders of the "
            "host\n",
            Visibility::kListed},
    Command{CommandId::kCode, "code", "run source text in a fresh sandbox, then remove it",
            CommandGroup::kOnce, kFile, 1, 1, Trailing::kNothing, kCarrelFailed, Operation::kCode,
            "FILE is read on the host and shown inside, read-only, as /workspace/code; - reads the "
            "standard input.",
            "carrel code script.py\ta file\n"
            "echo 'print(42)' | carrel code -\tfrom a pipe\n"
            "carrel code --lang bash - <<< 'echo $((6*7))'\tanother language\n",
            Visibility::kListed},
    Command{CommandId::kCreate, "create", "make a long-lived sandbox and print its id",
            CommandGroup::kLongLived, kNone, 0, 0, Trailing::kNothing, kUsageFailed,
            Operation::kCreate,
            "The sandbox stays until it is removed or its lease ends. Its limits hold for "
            "everything that runs in it together.",
            "id=$(carrel create)\twith the defaults\n"
            "carrel create --name build --lease 2h --memory 2g\tnamed, ends by itself\n",
            Visibility::kListed},
    Command{CommandId::kShell, "sh", "run a command in the sandbox's long-lived shell",
            CommandGroup::kLongLived, kSandboxAndText, 2, 2, Trailing::kNothing, kCarrelFailed,
            Operation::kShell,
            "Folder, variables and functions stay from one command to the next. COMMAND is one "
            "word: quote it; - reads it from the standard input, up to 3 MiB. Its own standard "
            "input is empty unless --stdin is given.",
            "carrel sh $id 'cd /tmp && export A=1'\tchange the shell\n"
            "carrel sh $id 'pwd; echo $A'\tand find it changed\n"
            "carrel sh --session two $id 'make -j2'\ta second shell\n",
            Visibility::kListed},
    Command{CommandId::kExec, "exec", "run a separate process in a sandbox",
            CommandGroup::kLongLived, kSandbox, 1, 1, Trailing::kCommand, kCarrelFailed,
            Operation::kExec,
            "The process does not see the shell's folder or variables. Options end at the first "
            "word of the command, after ID; a -- before it keeps the two apart.",
            "carrel exec $id -- ls -l\tone process\n"
            "carrel exec -t $id -- vi notes\twith a terminal\n"
            "carrel exec --detach $id -- ./server\tin the background\n",
            Visibility::kListed},
    Command{CommandId::kAttach, "attach", "open an interactive shell in a sandbox",
            CommandGroup::kLongLived, kSandbox, 1, 1, Trailing::kNothing, kUsageFailed,
            std::nullopt, "A shell of its own with a terminal; the sandbox stays when it ends.",
            "carrel attach $id\tlook around\n", Visibility::kListed},
    Command{CommandId::kList, "ls", "list sandboxes", CommandGroup::kLongLived, kNone, 0, 0,
            Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "carrel ls\twhat is running\ncarrel ls --json\tfor programs\n", Visibility::kListed},
    Command{CommandId::kInfo, "info", "show the settings and the state of a sandbox",
            CommandGroup::kLongLived, kSandbox, 1, 1, Trailing::kNothing, kUsageFailed,
            std::nullopt, "",
            "carrel info $id\tits settings\ncarrel info --enforcement $id\twhat holds it\n",
            Visibility::kListed},
    Command{CommandId::kStats, "stats", "show what a sandbox uses now", CommandGroup::kLongLived,
            kSandbox, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "carrel stats $id\tcpu, memory, processes, disk\n", Visibility::kListed},
    Command{CommandId::kLogs, "logs", "show what a sandbox did, or one command's output",
            CommandGroup::kLongLived, kSandbox, 1, 1, Trailing::kNothing, kUsageFailed,
            std::nullopt,
            "Without --command: a line for each command and its end. With it: the newest output of "
            "that command, whose number `exec --detach` printed.",
            "carrel logs $id\twhat was run in it\n"
            "carrel logs $id --command 3 -f\tthe output of command 3, as it comes\n",
            Visibility::kListed},
    Command{CommandId::kRemove, "rm", "end and remove sandboxes", CommandGroup::kLongLived,
            kSandbox, 0, kMany, Trailing::kNothing, kUsageFailed, std::nullopt,
            "Everything that runs in them is ended, and their files are removed.",
            "carrel rm $id\tone\ncarrel rm --all\tall of them\n", Visibility::kListed},
    Command{CommandId::kCopy, "cp", "copy files into a sandbox or out of it",
            CommandGroup::kLongLived, kCopyEnds, 2, 2, Trailing::kNothing, kCarrelFailed,
            std::nullopt,
            "One of SRC and DST is a path in a sandbox, ID:PATH; a relative one starts at its "
            "working folder. A file goes to DST, or into DST if that is a directory; so does a "
            "directory with all that is in it, and SRC/. is what is in it alone. Modes, times and "
            "links are kept. - is the standard input or output: the bytes of a file, or a tar "
            "where the other side is a directory (written DIR/ if it is to be made). What is "
            "copied out is written below DST and nowhere else.",
            "carrel cp ./project $id:/workspace\ta directory in\n"
            "carrel cp $id:/workspace/report.pdf .\ta file out\n"
            "tar c src | carrel cp - $id:/workspace/\ta tar in\n"
            "carrel cp $id:/workspace - > workspace.tar\ta tar out\n",
            Visibility::kListed},
    Command{CommandId::kFile, "file", "read, write, list, search and change files of a sandbox",
            CommandGroup::kLongLived, kFileWords, 2, 5, Trailing::kNothing, kCarrelFailed,
            std::nullopt,
            "ACTION is read, write, append, create (it must not exist), rewrite (it must), "
            "str-replace ID PATH OLD NEW (OLD must occur once), delete, ls, stat, find, "
            "grep ID PATH TEXT, mv ID PATH TO, cp ID PATH TO, rm, chmod ID PATH MODE, mkdir or "
            "watch. What is written comes from the standard input or --text. Relative paths start "
            "at the sandbox's working folder; '..' is refused. Everything is done with the rights "
            "of the sandbox.",
            "carrel file read $id main.c --lines 10:20\tsome lines\n"
            "echo hi | carrel file write $id notes/today.txt\twrite, with its folders\n"
            "carrel file str-replace $id main.c 'int x' 'long x'\tchange one place\n"
            "carrel file grep $id src main --exclude .git\tsearch\n"
            "carrel file watch $id . -r\tsee what changes\n",
            Visibility::kListed},
    Command{
        CommandId::kImage, "image", "pull, import, build, list and remove images",
        CommandGroup::kOther, kImageWords, 1, kMany, Trailing::kNothing, kCarrelFailed,
        std::nullopt,
        "ACTION is pull REFERENCE, import SOURCE, build --debian PACKAGE..., ls, rm NAME... or "
        "prune. REFERENCE is an image of a registry, such as debian:12, HOST:PORT/NAME:TAG or "
        "NAME@sha256:HEX; credentials are read from Docker's configuration, proxies from the "
        "environment, and a pull that broke off goes on where it stopped. SOURCE is a directory "
        "or a tar (plain, gzip or zstd) with the files of a system, an OCI layout, or what "
        "`docker save` writes; - is the standard input. What SOURCE is, its contents tell. build "
        "needs mmdebstrap and takes the packages from the host's apt sources. `--image NAME` then "
        "runs in it, `--image NAME@sha256:HEX` only if it is that one. prune removes what no "
        "image needs any more, and downloads that broke off.",
        "carrel image pull debian:12\tfrom a registry\n"
        "docker save python:3.12-slim | carrel image import -\tfrom Docker\n"
        "carrel image import rootfs.tar.gz --name debian\ta tar with a root file system\n"
        "carrel image build --debian --name tools python3 git\tfrom Debian packages\n"
        "carrel run --image debian -- cat /etc/os-release\trun in it\n"
        "carrel image ls\twhat there is\ncarrel image rm debian\tremove it\n",
        Visibility::kListed},
    Command{CommandId::kWorkspace, "workspace", "look after workspaces and their snapshots",
            CommandGroup::kFiles, kWorkspaceWords, 1, kMany, Trailing::kNothing, kCarrelFailed,
            std::nullopt,
            "ACTION is ls, history NAME, rm NAME..., prune --older-than TIME, forget SNAPSHOT... or "
            "fsck. A workspace is made by `--workspace NAME`, shown at /workspace, and stays until "
            "it is removed. prune removes those that no sandbox had for so long; forget removes "
            "snapshots, in any order; fsck reads everything that is stored and compares it with "
            "its hashes.",
            "carrel run --workspace notes -- sh -c 'date >> log'\tkeep what it writes\n"
            "carrel workspace ls\twhat there is, and how large\n"
            "carrel workspace history notes\tits snapshots\n"
            "carrel workspace prune --older-than 30d\tremove what nobody used for a month\n",
            Visibility::kListed},
    Command{CommandId::kSnapshot, "snapshot", "keep what a workspace holds now", CommandGroup::kFiles,
            kWorkspaceName, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt,
            "ID is a sandbox or the name of a workspace. Prints the snapshot's id. A running sandbox "
            "stands still while its files are read. Only what changed since the snapshot before is "
            "copied.",
            "carrel snapshot $id --name before\twith a name\n", Visibility::kListed},
    Command{CommandId::kRestore, "restore", "make a workspace what it was in a snapshot",
            CommandGroup::kFiles, kWorkspaceAndSnapshot, 2, 2, Trailing::kNothing, kUsageFailed,
            std::nullopt,
            "What is in the workspace now and in no snapshot is lost. Everything is checked against "
            "its hash first. A running sandbox stands still meanwhile.",
            "carrel restore $id before\tby its name\n", Visibility::kListed},
    Command{CommandId::kFork, "fork", "make another sandbox with the same files",
            CommandGroup::kFiles, kWorkspaceName, 1, 1, Trailing::kNothing, kUsageFailed,
            std::nullopt,
            "Takes a snapshot and prints the id of a new sandbox that continues from it, with the "
            "same settings and a workspace of its own. Values of variables are not stored, and so "
            "not passed on. With --from no snapshot is taken.",
            "copy=$(carrel fork $id)\ttry something in a copy\n"
            "carrel fork $id --from before\tgo on from an earlier moment\n",
            Visibility::kListed},
    Command{CommandId::kDiff, "diff", "show what changed in a workspace", CommandGroup::kFiles,
            kWorkspaceName, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt,
            "Without --from: since its last snapshot, or since it began. Without --to: until now. "
            "The text is in the form that `git apply` reads.",
            "carrel diff $id\tsince the last snapshot\n"
            "carrel diff $id --from before --names\tonly which files\n",
            Visibility::kListed},
    Command{CommandId::kApply, "apply", "carry changes back to where a workspace came from",
            CommandGroup::kFiles, kWorkspaceAndPaths, 1, kMany, Trailing::kNothing, kCarrelFailed,
            std::nullopt,
            "For a workspace that --workspace-from made: what changed in it since, or only what is "
            "at or below each PATH, is written to that directory. It asks first. If one of the "
            "files was changed there as well, nothing is written at all. Changes in .git are left "
            "out unless they are named.",
            "id=$(carrel create --workspace-from .)\ta copy to work in\n"
            "carrel diff $id --from origin\twhat the agent did\n"
            "carrel apply $id src README.md\ttake over some of it\n",
            Visibility::kListed},
    Command{CommandId::kSetup, "setup", "prepare this host for the first sandbox",
            CommandGroup::kOther, kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt,
            "Makes the state directory and tries a sandbox in it. Every other command makes what it "
            "needs by itself: this one is for scripts that install, and for seeing early that "
            "something is missing. Where everything is there, it changes nothing.",
            "carrel setup\tonce, or as often as you like\n", Visibility::kListed},
    Command{CommandId::kDoctor, "doctor", "say what this host can enforce, and what is missing",
            CommandGroup::kOther, kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "carrel doctor\tcheck this host\n", Visibility::kListed},
    Command{CommandId::kMount, "mount", "say whether a host path may be mounted, and why",
            CommandGroup::kOther, kCheckPath, 2, 2, Trailing::kNothing, kUsageFailed, std::nullopt,
            "Shows the verdict, the rule behind it, where PATH really is, how it would be mounted "
            "and what in it would be hidden. The lists allowed_read_paths and allowed_write_paths "
            "of a carrel.toml decide; without them, naming a path grants it. Keys, accounts, "
            "devices, sockets and what contains them are never mounted. Exit status: 0 if it may "
            "be mounted, 125 if not.",
            "carrel mount check ./project\tread-only\n"
            "carrel mount check --rw --config lists.toml /srv/out\twritable, by these lists\n",
            Visibility::kListed},
    Command{CommandId::kNet, "net", "what may leave a sandbox, what did, and why",
            CommandGroup::kOther, kNetWords, 2, 3, Trailing::kNothing, kUsageFailed, std::nullopt,
            "ACTION is explain ID URL, log ID, usage ID or set ID POLICY. explain says whether a "
            "connection would be allowed and which rule decides (exit status 125: denied). log "
            "shows every lookup and connection with its verdict, --follow goes on. set changes the "
            "policy of a running sandbox: connections that it does not allow end at once. POLICY is "
            "what --network takes. A sandbox that was made with `--network none` cannot be given "
            "a network later.",
            "id=$(carrel create --network allow=pypi)\tPyPI and nothing else\n"
            "carrel net explain $id https://example.org/\twould it get there?\n"
            "carrel net log $id -f\twhat it tries\n"
            "carrel net set $id allow=\tnothing any more\n",
            Visibility::kListed},
    Command{CommandId::kSecret, "secret", "keep secrets that requests get outside of a sandbox",
            CommandGroup::kOther, kSecretWords, 1, kMany, Trailing::kNothing, kUsageFailed,
            std::nullopt,
            "ACTION is set NAME, ls or rm NAME... . set reads the value from the standard input, "
            "or from where an option says; it never is a word of the command line, and is never "
            "shown. A sandbox made with --credential has a header added to its requests by the "
            "egress process, in which {{ secret.NAME }} is the value; inside there is none of it. "
            "Running sandboxes use a new value, and lose one that is removed, with their next "
            "request.",
            "carrel secret set github < token\tstore one\n"
            "carrel secret set npm --from-command 'pass npm'\tfrom what a command prints\n"
            "carrel create --network allow=a.io --credential 'a.io=Key: {{ secret.npm }}'\tuse it\n"
            "carrel secret rm github\ttake it back\n",
            Visibility::kListed},
    Command{CommandId::kPort, "port", "reach a port inside a sandbox from this host",
            CommandGroup::kLongLived, kSandboxAndPort, 2, 2, Trailing::kNothing, kUsageFailed,
            std::nullopt,
            "Whoever connects to the port that is printed reaches the TCP port PORT at the loopback "
            "of the sandbox, until this command or the sandbox ends. The sandbox needs no network "
            "for it. It is for programs of this host alone, but for all of them, and for pages in "
            "a browser here: --bind with another address needs --allow-remote.",
            "carrel port $id 8080\ta web server inside\n"
            "carrel port $id 5432 --host-port 15432\tat a port of your choice\n",
            Visibility::kListed},
    Command{CommandId::kCompletion, "completion", "print a completion script for a shell",
            CommandGroup::kOther, kShellName, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt,
            "SHELL is bash, zsh or fish.",
            "source <(carrel completion bash)\tfor this shell\n"
            "carrel completion zsh > ~/.zfunc/_carrel\tfor zsh\n",
            Visibility::kListed},
    Command{CommandId::kVersion, "version", "print the version", CommandGroup::kOther, kNone, 0, 0,
            Trailing::kNothing, kUsageFailed, std::nullopt, "", "", Visibility::kListed},
    Command{CommandId::kHelp, "help", "explain carrel, or one of its commands",
            CommandGroup::kOther, kCommandName, 0, 1, Trailing::kNothing, kUsageFailed,
            std::nullopt, "",
            "carrel help run\tabout run\ncarrel help --man | man -l -\tthe manual\n",
            Visibility::kListed},
    Command{CommandId::kKeeper, "keeper", "look after the sandboxes of a user; started by itself",
            CommandGroup::kOther, kWords, 0, kMany, Trailing::kNothing, kUsageFailed, std::nullopt,
            "", "", Visibility::kHidden},
    Command{CommandId::kEgress, "egress", "serve the networks of a user's sandboxes; started by itself",
            CommandGroup::kOther, kWords, 0, kMany, Trailing::kNothing, kUsageFailed, std::nullopt,
            "", "", Visibility::kHidden},
};

template <typename... Ids>
constexpr std::uint64_t of(Ids... ids) {
  return ((std::uint64_t{1} << static_cast<unsigned>(ids)) | ...);
}
constexpr std::uint64_t kAllCommands = (std::uint64_t{1} << kCommands.size()) - 1;

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

Status check_language(const Given& given) {
  if (given.text == "python" || given.text == "bash" || given.text == "node") {
    return {};
  }
  return policy::bad_value(given, "unknown language", "one of python, bash, node");
}

constexpr std::array kOptions = {
    Option{OptionId::kTty, 't', "tty", "", "give the command a terminal", "",
           of(CommandId::kRun, CommandId::kExec), nullptr},
    Option{OptionId::kMergeOutput, 0, "merge-output", "",
           "one stream for both outputs, in the order they were written", "",
           of(CommandId::kRun, CommandId::kCode), nullptr},
    Option{OptionId::kNoStdin, 0, "no-stdin", "", "give the command an empty standard input", "",
           of(CommandId::kRun, CommandId::kCode), nullptr},
    Option{OptionId::kLanguage, 0, "lang", "NAME",
           "python, bash or node (by the file's ending, else python)", "python bash node",
           of(CommandId::kCode), check_language},
    Option{OptionId::kName, 0, "name", "NAME", "a name to use in place of the id", "",
           of(CommandId::kCreate, CommandId::kFork), policy::check_name},
    Option{OptionId::kImageName, 0, "name", "NAME", "the name of the image", "",
           of(CommandId::kImage), policy::check_image_name},
    Option{OptionId::kSnapshotName, 0, "name", "NAME", "a name for the snapshot", "",
           of(CommandId::kSnapshot), policy::check_name},
    Option{OptionId::kNewWorkspace, 0, "workspace", "NAME", "the name of the new workspace", "",
           of(CommandId::kFork), policy::check_name},
    Option{OptionId::kForkFrom, 0, "from", "SNAPSHOT",
           "continue from this snapshot, not from what it is now", "", of(CommandId::kFork),
           nullptr},
    Option{OptionId::kWorkspaceFrom, 0, "workspace-from", "DIR",
           "begin with a copy of this host directory, which stays as it is", "",
           of(CommandId::kRun, CommandId::kCode, CommandId::kCreate), nullptr},
    Option{OptionId::kYes, 'y', "yes", "", "do not ask", "", of(CommandId::kApply), nullptr},
    Option{OptionId::kFromSnapshot, 0, "from", "SNAPSHOT", "compare with this one", "",
           of(CommandId::kDiff), nullptr},
    Option{OptionId::kToSnapshot, 0, "to", "SNAPSHOT", "and not with what it is now", "",
           of(CommandId::kDiff), nullptr},
    Option{OptionId::kNamesOnly, 0, "names", "", "only which files, not what in them", "",
           of(CommandId::kDiff), nullptr},
    Option{OptionId::kOlderThan, 0, "older-than", "TIME", "that no sandbox had for this long", "",
           of(CommandId::kWorkspace), check_lease},
    Option{OptionId::kInsecureHttp, 0, "insecure-http", "",
           "pull without encryption from a registry that has none", "", of(CommandId::kImage),
           nullptr},
    Option{OptionId::kDebian, 0, "debian", "", "build the image from Debian packages", "",
           of(CommandId::kImage), nullptr},
    Option{OptionId::kSuite, 0, "suite", "NAME", "the release of Debian (bookworm)", "",
           of(CommandId::kImage), policy::check_name},
    Option{OptionId::kLease, 0, "lease", "TIME", "end by itself after this long", "",
           of(CommandId::kCreate), check_lease},
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
    Option{OptionId::kHostPort, 0, "host-port", "NUMBER", "the port of this host [any that is free]",
           "", of(CommandId::kPort), check_port},
    Option{OptionId::kBind, 0, "bind", "ADDRESS", "the address of this host [127.0.0.1]", "",
           of(CommandId::kPort), check_address},
    Option{OptionId::kAllowRemote, 0, "allow-remote", "",
           "let --bind be an address that other machines can reach", "", of(CommandId::kPort),
           nullptr},
    Option{OptionId::kMan, 0, "man", "", "print the manual page (roff)", "", of(CommandId::kHelp),
           nullptr},
    Option{OptionId::kJson, 0, "json", "", "print one JSON object", "", kAllCommands, nullptr},
    Option{OptionId::kConfig, 0, "config", "FILE", "read settings from this carrel.toml", "",
           kAllCommands, nullptr},
    Option{OptionId::kHelp, 'h', "help", "", "explain this command", "", kAllCommands, nullptr},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

const Command* find_command(std::string_view name) {
  for (const Command& row : kCommands) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

const Command& command(CommandId id) { return kCommands[static_cast<std::size_t>(id)]; }

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
