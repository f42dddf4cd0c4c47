#include <array>
#include <limits>

#include "cli/operands.h"
#include "cli/options.h"

namespace carrel::cli {
namespace {

using policy::Operation;

constexpr std::size_t kMany = std::numeric_limits<std::size_t>::max();

constexpr std::array kCommands = {
    Command{CommandId::kRun, "run", "run a command in a fresh sandbox, then remove it",
            CommandGroup::kOnce, kNone, 0, 0, Trailing::kCommand, kCarrelFailed, Operation::kRun,
            "The command gets a read-only root, an empty /workspace, a /tmp of its own and no "
            "network. Its exit status is passed on. Options end at the first word of the command; "
            "a -- before it keeps the two apart. With -t somebody types at a terminal, which the "
            "standard input has to be: then there is no time limit but one that --timeout or a "
            "configuration gives, and when the session is ended from outside, by a limit or with "
            "the sandbox, the bell rings and what was typed ahead is thrown away.",
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
    Command{CommandId::kTasks, "tasks",
            "run the commands of a file side by side, each in a sandbox", CommandGroup::kOnce,
            kFile, 1, 1, Trailing::kNothing, kCarrelFailed, std::nullopt,
            "FILE is TOML. Each [tasks.NAME] has command, a text for bash, or argv; perhaps stdin; "
            "and settings of `carrel run` for itself alone, such as mount and network. Settings at "
            "the top hold for all of them, and at_once says how many run at a time (16). Nothing "
            "runs if one of them is refused. Exit status 1: one of them failed.",
            "carrel tasks plan.toml\twhat each printed, and a table\n"
            "carrel tasks --json plan.toml\tfor programs\n",
            Visibility::kListed},
    Command{
        CommandId::kCreate, "create", "make a long-lived sandbox and print its id",
        CommandGroup::kLongLived, kNone, 0, 0, Trailing::kNothing, kUsageFailed, Operation::kCreate,
        "The sandbox stays until it is removed or its lease ends. Its limits hold for "
        "everything that runs in it together.",
        "id=$(carrel create)\twith the defaults\n"
        "carrel create --name build --lease 2h --memory 2g\tnamed, ends by itself\n"
        "carrel create --service web:8000='python3 -m http.server 8000' --wait-ready 10\twith a "
        "service\n",
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
    Command{
        CommandId::kExec, "exec", "run a separate process in a sandbox", CommandGroup::kLongLived,
        kSandbox, 1, 1, Trailing::kCommand, kCarrelFailed, Operation::kExec,
        "The process does not see the shell's folder or variables. Options end at the first "
        "word of the command, after ID; a -- before it keeps the two apart. With -t there is no "
        "time limit but one that is given here or was when the sandbox was made; else as for "
        "`carrel run -t`.",
        "carrel exec $id -- ls -l\tone process\n"
        "carrel exec -t $id -- vi notes\twith a terminal\n"
        "carrel exec --detach $id -- ./server\tin the background\n",
        Visibility::kListed},
    Command{CommandId::kAttach, "attach", "open an interactive shell in a sandbox",
            CommandGroup::kLongLived, kSandbox, 1, 1, Trailing::kNothing, kUsageFailed,
            std::nullopt,
            "A shell of its own, without a time limit, at this terminal, which the standard input "
            "has to be; the sandbox stays when it ends.",
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
    Command{
        CommandId::kPause, "pause", "make a sandbox stand still, with its memory",
        CommandGroup::kLongLived, kSandbox, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt,
        "Nothing in it runs until `carrel resume`, and commands for it are refused. The time "
        "of its commands does not pass; its lease's does.",
        "carrel pause $id\tas it is\ncarrel resume $id\tand on from there\n", Visibility::kListed},
    Command{CommandId::kResume, "resume", "let a paused sandbox go on", CommandGroup::kLongLived,
            kSandbox, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "carrel resume $id\tfrom where it stood\n", Visibility::kListed},
    Command{CommandId::kStop, "stop", "end what runs in a sandbox and keep the rest",
            CommandGroup::kLongLived, kSandbox, 1, 1, Trailing::kNothing, kUsageFailed,
            std::nullopt,
            "Its settings, its name and its workspace stay, until `carrel start` or `carrel rm`. "
            "It needs a workspace of a name: what else there is in it goes.",
            "id=$(carrel create --workspace notes)\tone that can be stopped\n"
            "carrel stop $id\tno processes and no memory\ncarrel start $id\tthe same again\n",
            Visibility::kListed},
    Command{CommandId::kStart, "start", "start a stopped sandbox again", CommandGroup::kLongLived,
            kSandbox, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "carrel start $id\twith its settings and its workspace\n", Visibility::kListed},
    Command{CommandId::kTop, "top", "show sandboxes and what they use, as it changes",
            CommandGroup::kLongLived, kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt,
            "In a terminal until Ctrl-C, the busiest first; elsewhere once.",
            "carrel top\tlive\ncarrel top --json\tfor programs\n", Visibility::kListed},
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
        "carrel image import docker:python:3.12-slim\tfrom a Docker engine on this host\n"
        "docker save python:3.12-slim | carrel image import -\tfrom another one\n"
        "carrel image import rootfs.tar.gz --name debian\ta tar with a root file system\n"
        "carrel image build --debian --name tools python3 git\tfrom Debian packages\n"
        "carrel run --image debian -- cat /etc/os-release\trun in it\n"
        "carrel image ls\twhat there is\ncarrel image rm debian\tremove it\n",
        Visibility::kListed},
    Command{
        CommandId::kWorkspace, "workspace", "look after workspaces and their snapshots",
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
    Command{
        CommandId::kSnapshot, "snapshot", "keep what a workspace holds now", CommandGroup::kFiles,
        kWorkspaceName, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt,
        "ID is a sandbox or the name of a workspace. Prints the snapshot's id. A running sandbox "
        "stands still while its files are read. Only what changed since the snapshot before is "
        "copied.",
        "carrel snapshot $id --name before\twith a name\n", Visibility::kListed},
    Command{
        CommandId::kRestore, "restore", "make a workspace what it was in a snapshot",
        CommandGroup::kFiles, kWorkspaceAndSnapshot, 2, 2, Trailing::kNothing, kUsageFailed,
        std::nullopt,
        "What is in the workspace now and in no snapshot is lost. Everything is checked against "
        "its hash first. A running sandbox stands still meanwhile. SNAPSHOT is one of this "
        "workspace; WORKSPACE/SNAPSHOT is one of another.",
        "carrel restore $id before\tby its name\n", Visibility::kListed},
    Command{
        CommandId::kFork, "fork", "make another sandbox with the same files", CommandGroup::kFiles,
        kWorkspaceName, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt,
        "Takes a snapshot and prints the id of a new sandbox that continues from it, with the "
        "same settings and a workspace of its own, which goes with it unless you name it or take a "
        "snapshot of it. Values of variables are not stored, and so "
        "not passed on. With --from no snapshot is taken: SNAPSHOT is one of its own, and "
        "WORKSPACE/SNAPSHOT one of another. A workspace that is named has the settings of the "
        "sandbox that is in it, or the usual ones.",
        "copy=$(carrel fork $id)\ttry something in a copy\n"
        "carrel fork $id --from before\tgo on from an earlier moment\n",
        Visibility::kListed},
    Command{CommandId::kDiff, "diff", "show what changed in a workspace", CommandGroup::kFiles,
            kWorkspaceName, 1, 1, Trailing::kNothing, kUsageFailed, std::nullopt,
            "Without --from: since its last snapshot, or since it began. Without --to: until now. "
            "A snapshot of another workspace is WORKSPACE/SNAPSHOT. The text is in the form that "
            "`git apply` reads.",
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
    Command{
        CommandId::kFlow, "flow", "look at what agents did, turn by turn, and go back to it",
        CommandGroup::kFiles, kFlowWords, 1, kMany, Trailing::kNothing, kUsageFailed, std::nullopt,
        "ACTION is ls, turns, show EXECUTION, explain EXECUTION TURN, diff EXECUTION TURN [TURN], "
        "fork EXECUTION TURN, rollback EXECUTION TURN, replay EXECUTION, waits, answer EXECUTION "
        "WAIT JSON, abort EXECUTION WAIT or rm EXECUTION... TURN is a turn's number, its name or "
        "its id. explain tells why a turn was run and not taken from the record; diff what it "
        "changed in the workspace; fork makes a sandbox with the files that it left; rollback "
        "makes the workspace what it was after it, and keeps what it was before as a snapshot; "
        "replay makes a new execution and a new workspace from what is recorded, runs "
        "nothing, and fails where the record has nothing; with --live it runs the turns from "
        "--from on anew; rm forgets an execution, and with it snapshots that nothing else needs.",
        "carrel flow show demo\tits turns, commands and files\n"
        "carrel flow diff demo 2\twhat the second turn changed\n"
        "carrel flow rollback demo default\tback to the first turn\n"
        "carrel flow replay demo --live --from 2 --set 2.prompt='in French'\tanother way\n"
        "carrel flow answer demo ask_question:0:0a4d55a8 '\"yes\"'\tlet it go on\n",
        Visibility::kListed},
    Command{
        CommandId::kSetup, "setup", "prepare this host for the first sandbox", CommandGroup::kOther,
        kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt,
        "Makes the state directory and tries a sandbox in it. Every other command makes what it "
        "needs by itself: this one is for scripts that install, and for seeing early that "
        "something is missing. Where everything is there, it changes nothing.",
        "carrel setup\tonce, or as often as you like\n", Visibility::kListed},
    Command{CommandId::kDoctor, "doctor", "say what this host can enforce, and what is missing",
            CommandGroup::kOther, kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "carrel doctor\tcheck this host\n", Visibility::kListed},
    Command{
        CommandId::kDf, "df", "print what Carrel takes of this host's disk", CommandGroup::kOther,
        kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt,
        "A line for each kind of thing that is kept below CARREL_HOME, with what the disk holds "
        "of it, and one for each client of the daemon that has workspaces. Several clients that "
        "share a snapshot's files each have the whole of it.",
        "carrel df\twhere the room has gone\n"
        "carrel prune --dry-run\twhat nobody needs of it\n",
        Visibility::kListed},
    Command{
        CommandId::kPrune, "prune", "remove what nothing refers to any more", CommandGroup::kOther,
        kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt,
        "Workspaces that nobody named and whose sandbox, run or flow is gone, and downloads of "
        "images that nobody goes on with. Workspaces that stay give back the room that their files "
        "do "
        "not need. With --flows also executions that ended before "
        "--older-than, with what they kept; with --snapshots also snapshots without a name that "
        "are older. What has a name, or is in use, stays.",
        "carrel prune --dry-run\tsay what it would remove\n"
        "carrel prune\tremove it\n"
        "carrel prune --flows --snapshots --older-than 30d\tand what is a month old\n",
        Visibility::kListed},
    Command{CommandId::kEnv, "env", "print the places and the settings in force",
            CommandGroup::kOther, kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt,
            "A line for each: what it is, its value, and where that comes from. home is the folder "
            "that CARREL_HOME names, by default /var/lib/carrel for root and $XDG_DATA_HOME/carrel "
            "or ~/.local/share/carrel for others; socket is where `carrel serve` listens. Settings "
            "are there if a carrel.toml says something else than the default, with --json all of "
            "them. Variables named CARREL_ that nothing reads are told, too.",
            "carrel env\twhat holds here\n"
            "eval \"$(carrel env --shell)\"\tsets CARREL_HOME in this shell\n",
            Visibility::kListed},
    Command{CommandId::kVerify, "verify", "attack a sandbox of this host, and say what held",
            CommandGroup::kOther, kNone, 0, 0, Trailing::kNothing, kCarrelFailed, Operation::kRun,
            "Makes sandboxes with the given policy, as `carrel run` does, and attacks each from "
            "inside: files, network, processes, resources, limits, what stays, privileges, system "
            "calls, the shell's protocol. Success is looked for on the host as well: in files that "
            "were planted there, at listeners, among its processes. What the policy grants is told "
            "and is no hole. Nothing of the host is changed and nothing is left. Exit status: 0 if "
            "everything held, 1 if something got through or is unclear, 125 if it could not be "
            "tried.",
            "carrel verify\tthe default policy\n"
            "carrel verify --policy carrel.toml --backend bubblewrap\tyour policy, other walls\n"
            "carrel verify --only net --json\tone group, for programs\n"
            "carrel verify --junit results.xml\tfor CI\n",
            Visibility::kListed},
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
    Command{
        CommandId::kNet, "net", "what may leave a sandbox, what did, and why", CommandGroup::kOther,
        kNetWords, 2, 3, Trailing::kNothing, kUsageFailed, std::nullopt,
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
    Command{
        CommandId::kPort, "port", "reach a port inside a sandbox from this host",
        CommandGroup::kLongLived, kSandboxAndPort, 2, 2, Trailing::kNothing, kUsageFailed,
        std::nullopt,
        "Whoever connects to the port that is printed reaches the TCP port PORT at the loopback "
        "of the sandbox, until this command or the sandbox ends. The sandbox needs no network "
        "for it. It is for programs of this host alone, but for all of them, and for pages in "
        "a browser here: --bind with another address needs --allow-remote.",
        "carrel port $id 8080\ta web server inside\n"
        "carrel port $id 5432 --host-port 15432\tat a port of your choice\n",
        Visibility::kListed},
    Command{CommandId::kServe, "serve", "serve the API for many clients", CommandGroup::kOther,
            kNone, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt,
            "An HTTP API for the sandboxes of this home, the same that the command line sees. On "
            "its unix socket it serves this user and root. TCP needs tokens: a client with one has "
            "the sandboxes that were made with it, and can only narrow what --config gives. "
            "Sandboxes and background commands stay when it ends, and the next one has them.",
            "carrel serve\ton a socket in CARREL_HOME\n"
            "carrel serve --new-token ci --token-file tokens\ta token for a client\n"
            "carrel serve --listen tcp:127.0.0.1:8080 --token-file tokens\tover TCP\n"
            "carrel serve --openapi\twhat it can do\n",
            Visibility::kListed},
    Command{
        CommandId::kAgent, "agent", "let a model do a task in a sandbox, turn by turn",
        CommandGroup::kOnce, kAgentWords, 1, 2, Trailing::kNothing, kCarrelFailed,
        Operation::kCreate,
        "Asks a model, runs the tools that it calls in a sandbox, and goes on until it is done. "
        "Each finished turn is in the journal with the files it left before it is reported: the "
        "same execution run again takes finished turns from there (see `carrel flow`). TASK is "
        "one turn; --file has several; without either each line that is typed is one. Ctrl-C ends "
        "a turn. "
        "--profile names a TOML file with name, system_prompt, tools, sandboxed (all, code, files "
        "or none), skills, allowed_services and tables [model], [limits], [sandbox], [services] "
        "and [mcp]; options go over it. The model's key is in ANTHROPIC_API_KEY or OPENAI_API_KEY, "
        "or a secret (`carrel secret set anthropic`). DISABLE_CACHE=1 runs every turn anew, "
        "FORCE_FAILURE=1 fails after the first. Exit status: 0 when all turns are done, 1 when "
        "one failed, 130 when it was cancelled.",
        "carrel agent run 'find the bug in main.c' --workspace-from .\ta task\n"
        "carrel agent run --file report.toml\tseveral turns\n"
        "carrel agent run --resume 3fa91c04d1e2\tgo on after a crash\n"
        "carrel agent run --model openai:qwen3 --profile local.toml 'hi'\tanother model\n",
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
    Command{CommandId::kDiskWatch, "disk-watch",
            "keep the host's disk able to hold what workspaces were promised; started by itself",
            CommandGroup::kOther, kWords, 0, 0, Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "", Visibility::kHidden},
    Command{CommandId::kPorch, "porch", "lay out a room for an OCI runtime; started by itself",
            CommandGroup::kOther, kWords, 0, 1, Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "", Visibility::kHidden},
    Command{CommandId::kHall, "hall", "stand beside a virtual machine; started by itself",
            CommandGroup::kOther, kWords, 0, 1, Trailing::kNothing, kUsageFailed, std::nullopt, "",
            "", Visibility::kHidden},
    Command{CommandId::kEgress, "egress",
            "serve the networks of a user's sandboxes; started by itself", CommandGroup::kOther,
            kWords, 0, kMany, Trailing::kNothing, kUsageFailed, std::nullopt, "", "",
            Visibility::kHidden},
    Command{CommandId::kCheckpoint, "checkpoint",
            "keep the files of a turn, or put them back; started by itself", CommandGroup::kOther,
            kWords, 2, 3, Trailing::kNothing, kUsageFailed, std::nullopt, "", "",
            Visibility::kHidden},
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

}  // namespace carrel::cli
