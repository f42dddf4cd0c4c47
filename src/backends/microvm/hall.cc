#include "backends/microvm/hall.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <utility>

#include "backends/microvm/clerk.h"
#include "backends/microvm/drive.h"
#include "backends/microvm/jail.h"
#include "backends/microvm/line.h"
#include "backends/microvm/nbd.h"
#include "backends/microvm/porter.h"
#include "backends/microvm/saver.h"
#include "backends/microvm/shelf.h"
#include "backends/microvm/vmm_program.h"
#include "base/files.h"
#include "guest/machine.h"
#include "kernel/rights.h"
#include "sandbox/builder.h"

namespace carrel::microvm {

namespace {

constexpr std::size_t kLargestRequest = 4U << 20;

struct Ends {
  UniqueFd one;
  UniqueFd other;
};
Result<Ends> make_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("make a socket pair");
  }
  return Ends{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool is_folder(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// What the machine sees of the host. Everything is open before the host's root is left.
Status fill_shelf(const HallRequest& request, Shelf& shelf) {
  for (const std::string& path : request.folders) {
    CARREL_TRY(shelf.make_folder(path));
  }
  for (const std::string& path : request.shown) {
    auto source = is_folder(path) ? copy_mount(path)
                                  : open_at(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (source.ok()) {
      CARREL_TRY(shelf.show(path, std::move(source.value())));
    } else if (source.error().error_number != ENOENT && source.error().error_number != ELOOP) {
      return source.error();
    }
  }
  return {};
}

UniqueFd watch(pid_t child) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
}

int listener_of(const HallRequest& request) {
  return request.listens.empty() ? -1 : kTrees + static_cast<int>(request.trees.size());
}

int network_of(const HallRequest& request) {
  const int next = kTrees + static_cast<int>(request.trees.size());
  return request.network.empty() ? -1 : next + (request.listens.empty() ? 0 : 1);
}

int snapshot_of(const HallRequest& request) {
  const int next = kTrees + static_cast<int>(request.trees.size());
  return request.snapshot.empty()
             ? -1
             : next + (request.listens.empty() ? 0 : 1) + (request.network.empty() ? 0 : 1);
}

void leave_to_porter(const HallRequest& request) {
  for (const int fd : {int{kRequest}, int{kTell}, int{kStream}, int{kKernel}, int{kFirstFiles},
                       listener_of(request), network_of(request), snapshot_of(request)}) {
    ::close(fd);
  }
}

// What the VMM is given, and the other ends: two pairs of sockets, or a mount and a socket.
struct Supplies {
  Ends line;
  Ends blocks;
  UniqueFd drive;
  UniqueFd listener;  // for the one connection of the machine's first process
};

// CRITICAL: it has its own socket and what it shows, and nothing of the sandbox's.
[[noreturn]] void become_librarian(const HallRequest& request, Supplies own, UniqueFd next,
                                   Shelf& shelf) {
  own.line = {};
  own.listener.reset();
  own.blocks.one.reset();
  leave_to_porter(request);
  if (!lock_in(Post::kBesideMachine).ok()) {
    ::_exit(0);
  }
  if (own.drive.valid()) {
    serve_drive(own.drive.get(), shelf);
  } else {
    serve_blocks(own.blocks.other.get(), shelf);
  }
  if (next.valid()) {  // the spare VMM's
    own.blocks.other.reset();
    serve_blocks(next.get(), shelf);
  }
  ::_exit(0);
}

// The process that keeps the machine's trees, and the ends of its sockets.
struct Clerk {
  UniqueFd process;
  UniqueFd word;  // what it waits for before it begins
  std::vector<UniqueFd> trees;
};

std::vector<std::string> hidden_in(const HallRequest& request, std::size_t tree) {
  const std::string prefix = std::to_string(tree) + ":";
  std::vector<std::string> paths;
  for (const std::string& text : request.hidden) {
    if (text.starts_with(prefix)) {
      paths.push_back(text.substr(prefix.size()));
    }
  }
  return paths;
}

// What the machine is given, by descriptors out of which no path leads.
Result<std::vector<ClerkTree>> open_trees(const HallRequest& request, Clerk& clerk) {
  std::vector<ClerkTree> trees;
  for (std::size_t i = 0; i < request.trees.size(); ++i) {
    const ShareMode mode =
        request.trees[i] == kWritableTree ? ShareMode::kReadWrite : ShareMode::kReadOnly;
    UniqueFd top(kTrees + static_cast<int>(i));
    if (!request.sources[i].empty()) {
      CARREL_ASSIGN(top, copy_given(request.sources[i], top.get()));
    }
    CARREL_ASSIGN(Ends ends, make_pair());
    ::fcntl(ends.one.get(), F_SETFL, O_NONBLOCK);
    clerk.trees.push_back(std::move(ends.one));
    trees.push_back({std::move(ends.other), std::move(top), mode, hidden_in(request, i)});
  }
  return trees;
}

// CRITICAL: it has what the machine is given, and nothing of the sandbox's.
[[noreturn]] void become_clerk(const HallRequest& request, std::vector<ClerkTree> trees,
                               UniqueFd word) {
  constexpr rlim_t kFiles = 8192;
  leave_to_porter(request);
  ::umask(0);  // the machine's kernel has seen to that
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min(kFiles, files.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &files);
  auto descriptors = own_descriptors();
  char byte = 0;
  // The host's root is left while it waits: all of these processes have the same one.
  if (descriptors.ok() && write_all(word.get(), "r").ok() && ::read(word.get(), &byte, 1) == 1 &&
      lock_in(Post::kClerk).ok()) {
    word.reset();
    keep_trees(std::move(trees), descriptors.value().get());
  }
  ::_exit(0);
}

// Nobody, where nothing is given. Before the host's root is left, and before anything
// of the librarian's is open.
Result<Clerk> start_clerk(const HallRequest& request, const UniqueFd& ready) {
  Clerk clerk;
  CARREL_ASSIGN(std::vector<ClerkTree> trees, open_trees(request, clerk));
  if (trees.empty()) {
    return clerk;
  }
  CARREL_ASSIGN(Ends word, make_pair());
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ready.get());
    word.one.reset();
    clerk = {};
    become_clerk(request, std::move(trees), std::move(word.other));
  }
  word.other.reset();
  char byte = 0;
  if (child < 0 || ::read(word.one.get(), &byte, 1) != 1) {
    return Error{Code::kUnsupported, 0, "the trees of a machine cannot be served here", {}};
  }
  clerk.process = watch(child);
  clerk.word = std::move(word.one);
  return clerk;
}

[[noreturn]] void become_vmm(const HallRequest& request, const std::vector<int>& descriptors) {
  // QEMU is told to filter, and Firecracker only does so when it was built with filters.
  if ((request.files.empty() ? kernel::drop_rights() : lock_in(Post::kVmm)).ok()) {
    execute_vmm(request.vmm, descriptors);
  }
  ::_exit(127);
}

// Waits for a word of the porter's, ends the VMM that did not begin, and takes its place.
[[noreturn]] void become_spare(const HallRequest& request, const UniqueFd& word,
                               const UniqueFd& vmm, const std::vector<int>& descriptors) {
  leave_to_porter(request);
  char byte = 0;
  if (kernel::drop_rights().ok() && ::read(word.get(), &byte, 1) == 1) {
    ::syscall(SYS_pidfd_send_signal, vmm.get(), SIGKILL, nullptr, 0);
    pollfd ended{vmm.get(), POLLIN, 0};
    (void)::poll(&ended, 1, -1);
    execute_vmm(request.spare, descriptors);
  }
  ::_exit(0);
}

std::chrono::milliseconds patience_of(const HallRequest& request) {
  int ms = 0;
  std::from_chars(request.boot_ms.data(), request.boot_ms.data() + request.boot_ms.size(), ms);
  return std::chrono::milliseconds(ms);
}

// A machine that nobody talks to, and that ends by itself if it works.
int await_end(const HallRequest& request, pid_t vmm) {
  const UniqueFd ended = watch(vmm);
  pollfd look{ended.get(), POLLIN, 0};
  const int ready = ::poll(&look, 1, static_cast<int>(patience_of(request).count()));
  int status = 0;
  return ready == 1 && ::waitpid(vmm, &status, 0) == vmm && status == 0 ? 0 : 1;
}

const char* words_of(PorterEnd end) {
  switch (end) {
    case PorterEnd::kNeverBegan:
      return "the virtual machine ended before its guest began\n";
    case PorterEnd::kTooSlow:
      return "the virtual machine's kernel did not start in time\n";
    case PorterEnd::kBroken:
    case PorterEnd::kEnded:
      break;
  }
  return "";
}

// The root in which the VMM finds its files. `drive` is what a VMM has that is supplied by files.
Status enter_vmms_root(const HallRequest& request, const UniqueFd& drive) {
  std::vector<JailFile> files = {{kKernelPlace, kKernel}, {kFirstFilesPlace, kFirstFiles}};
  UniqueFd settings;
  if (!request.settings.empty()) {
    CARREL_ASSIGN(settings, sandbox::memory_file(request.settings));
    files.push_back({kSettingsPlace, settings.get()});
  }
  if (drive.valid()) {
    files.push_back({kDrivePlace});
  }
  return enter_root(request.stage, request.needed, files, drive.valid() ? kLineFolder : "");
}

// By descriptors.
Result<Supplies> make_wires() {
  Supplies wires;
  CARREL_ASSIGN(wires.line, make_pair());
  CARREL_ASSIGN(wires.blocks, make_pair());
  return wires;
}

// In the VMM's root, which is entered on the way.
Result<Supplies> prepare_supplies(const HallRequest& request) {
  const bool alone = !request.probes.empty();
  if (request.files.empty() || alone) {
    CARREL_TRY(enter_vmms_root(request, {}));
    return alone ? Result<Supplies>(Supplies{}) : make_wires();
  }
  Supplies supplies;
  CARREL_ASSIGN(supplies.drive, open_drive());
  CARREL_TRY(enter_vmms_root(request, supplies.drive));
  CARREL_TRY(mount_drive(supplies.drive.get(), kDrivePlace));
  CARREL_ASSIGN(supplies.listener, listen_for_machine());
  return supplies;
}

// The machine is saved, and ends with this process.
Result<int> save(const HallRequest& request, const UniqueFd& vmm, const UniqueFd& line,
                 const UniqueFd& monitor) {
  SaveTerms terms;
  ::fcntl(line.get(), F_SETFL, O_NONBLOCK);
  terms.sleeper = {line.get(), vmm.get(), std::chrono::steady_clock::now() + patience_of(request)};
  terms.monitor = monitor.get();
  terms.file = snapshot_of(request);
  CARREL_TRY(lock_in(Post::kBesideMachine));
  CARREL_TRY(save_machine(terms));
  return 0;
}

// The life of the porter, the first process of the PID namespace.
Result<int> live(const HallRequest& request, UniqueFd ready) {
  CARREL_ASSIGN(Clerk clerk, start_clerk(request, ready));
  Shelf shelf;
  CARREL_TRY(fill_shelf(request, shelf));
  CARREL_ASSIGN(Supplies supplies, prepare_supplies(request));
  const bool saves = request.snapshot == kSavesSnapshot;
  const bool restores = request.snapshot == kGoesOn;
  Ends monitor;
  Supplies further;  // of the spare VMM
  Ends word;
  if (saves) {
    CARREL_ASSIGN(monitor, make_pair());
  } else if (restores) {
    CARREL_ASSIGN(further, make_wires());
    CARREL_ASSIGN(word, make_pair());
  }
  PorterTerms terms;
  const pid_t librarian = ::fork();
  if (librarian == 0) {
    Supplies own = std::exchange(supplies, {});
    UniqueFd next = std::move(further.blocks.other);
    further = {};
    monitor = {};
    word = {};
    clerk = {};
    ready.reset();
    become_librarian(request, std::move(own), std::move(next), shelf);
  }
  const pid_t vmm = librarian < 0 ? -1 : ::fork();
  if (vmm == 0) {
    std::vector<int> descriptors;
    if (supplies.line.other.valid()) {
      descriptors = {supplies.line.other.get(), supplies.blocks.one.get(),
                     saves ? monitor.other.get() : snapshot_of(request)};
    }
    become_vmm(request, descriptors);
  }
  // With the librarian ends what it serves.
  supplies.drive.reset();
  if (vmm < 0) {
    return system_error("start the processes of a virtual machine");
  }
  terms.vmm = watch(vmm);
  terms.librarian = watch(librarian);
  if (saves) {
    return save(request, terms.vmm, supplies.line.one, monitor.one);
  }
  UniqueFd line = std::move(supplies.line.one);
  // It is over when the VMM ends.
  supplies.line = {};
  supplies.blocks = {};
  if (restores) {
    const pid_t spare = ::fork();
    if (spare == 0) {
      line.reset();
      clerk = {};
      word.one.reset();
      ready.reset();
      become_spare(request, word.other, terms.vmm,
                   {further.line.other.get(), further.blocks.one.get()});
    }
    if (spare < 0) {
      return system_error("start the processes of a virtual machine");
    }
    ::fcntl(further.line.one.get(), F_SETFL, O_NONBLOCK);
    terms.spare = {std::move(word.one), std::move(further.line.one), watch(spare)};
    further = {};
    word = {};
  }
  if (clerk.process.valid()) {
    CARREL_TRY(write_all(clerk.word.get(), "g"));
    terms.clerk = std::move(clerk.process);
    terms.trees = std::move(clerk.trees);
  }
  if (!request.probes.empty()) {
    return await_end(request, vmm);
  }
  terms.line = std::move(line);
  terms.terms = request.terms;
  terms.stream = UniqueFd(kStream);
  if (!request.listens.empty()) {
    terms.listener = UniqueFd(listener_of(request));
    // Whoever connects finds this process there.
    if (::listen(terms.listener.get(), 64) != 0) {
      return system_error("listen for the sandbox");
    }
    ::fcntl(terms.listener.get(), F_SETFL, O_NONBLOCK);
  }
  if (!request.network.empty()) {
    terms.network = UniqueFd(network_of(request));
    if (::listen(terms.network.get(), 4) != 0) {
      return system_error("listen for the egress process");
    }
    ::fcntl(terms.network.get(), F_SETFL, O_NONBLOCK);
  }
  terms.boot = patience_of(request);
  if (terms.line.valid()) {
    ::fcntl(terms.line.get(), F_SETFL, O_NONBLOCK);
  }
  for (const int fd :
       {int{kRequest}, int{kTell}, int{kKernel}, int{kFirstFiles}, snapshot_of(request)}) {
    ::close(fd);
  }
  ::signal(SIGCHLD, SIG_IGN);  // nobody waits for them: they are watched
  ::prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
  CARREL_TRY(lock_in(Post::kPorter));
  CARREL_TRY(write_all(ready.get(), "r"));
  ready.reset();
  const std::optional<PorterEnd> missed =
      supplies.listener.valid() ? await_line(terms, std::move(supplies.listener)) : std::nullopt;
  (void)write_all(STDERR_FILENO, words_of(missed ? *missed : carry(std::move(terms))));
  return 0;
}

Status open_hall() {
  CARREL_ASSIGN(const std::string text, read_file_at(AT_FDCWD, "/proc/self/fd/3", kLargestRequest));
  CARREL_ASSIGN(const HallRequest request, decode_hall(text));
  CARREL_TRY(enter_namespaces());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd is_ready(ends[0]);
  UniqueFd ready(ends[1]);
  const pid_t first = ::fork();
  if (first == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    const auto lived = live(request, std::move(ready));
    if (!lived.ok()) {
      (void)write_all(STDERR_FILENO, lived.error().to_string() + "\n");
    }
    ::_exit(lived.ok() ? lived.value() : 1);
  }
  ready.reset();
  if (first < 0) {
    return system_error("start the first process of a virtual machine");
  }
  if (!request.probes.empty() || request.snapshot == kSavesSnapshot) {
    int status = 0;
    while (::waitpid(first, &status, 0) < 0 && errno == EINTR) {
    }
    ::_exit(status == 0 ? 0 : 1);
  }
  char byte = 0;
  ssize_t n = 0;
  do {
    n = ::read(is_ready.get(), &byte, 1);
  } while (n < 0 && errno == EINTR);
  if (n != 1) {
    ::_exit(1);  // it has said why
  }
  return write_all(kTell, std::to_string(first) + "\n");
}

}  // namespace

int run_hall() {
  const Status opened = open_hall();
  if (!opened.ok()) {
    (void)write_all(STDERR_FILENO, opened.error().to_string() + "\n");
  }
  return opened.ok() ? 0 : 1;
}

}  // namespace carrel::microvm
