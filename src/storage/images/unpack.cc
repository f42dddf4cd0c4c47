#include "storage/images/unpack.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/sha256.h"
#include "kernel/descriptors_child.h"
#include "storage/images/unpack_room.h"

namespace carrel::storage {

namespace {

constexpr std::size_t kPiece = 256 << 10;
constexpr std::size_t kLongestText = 2048;

// How the unpacker ended, in one write to its pipe. It is a stranger's word: bounds are checked,
// and the text is only shown.
struct Ending {
  std::uint32_t failed = 0;
  std::uint32_t code = 0;
  std::int32_t error_number = 0;
  std::uint32_t text_size = 0;
  std::uint32_t hint_size = 0;
  std::uint32_t padding = 0;
  Unpacked contents;
};

// The unpacker's own process. It shares nothing that can be written with its parent, and has the
// descriptors of `job` and `report` only.
class UnpackerProcess {
 public:
  UnpackerProcess() = default;
  UnpackerProcess(const UnpackerProcess&) = delete;
  UnpackerProcess& operator=(const UnpackerProcess&) = delete;
  ~UnpackerProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }

  Status start(const Unpacking& job, int report) {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) {
      return system_error("start the unpacker");
    }
    if (pid_ == 0) {
      work(job, report, parent);
    }
    return {};
  }

  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  [[noreturn]] static void work(Unpacking job, int report, pid_t parent) {
    Ending ending;
    const Status done = unpack(job, report, parent, ending.contents);
    std::string text;
    if (!done.ok()) {
      const Error& error = done.error();
      ending.failed = 1;
      ending.code = static_cast<std::uint32_t>(error.code);
      ending.error_number = error.error_number;
      const std::string message = error.message.substr(0, kLongestText);
      const std::string hint = error.hint.substr(0, kLongestText);
      ending.text_size = static_cast<std::uint32_t>(message.size());
      ending.hint_size = static_cast<std::uint32_t>(hint.size());
      text = message + hint;
    }
    std::string all(sizeof ending, '\0');
    std::memcpy(all.data(), &ending, sizeof ending);
    (void)write_all(report, all + text);
    ::_exit(0);
  }

  static Status unpack(Unpacking& job, int& report, pid_t parent, Unpacked& contents) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != parent) {
      ::_exit(1);
    }
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) {
      ::signal(signal, signal == SIGPIPE || signal == SIGXFSZ ? SIG_IGN : SIG_DFL);
    }
    // Onto fixed numbers, so that everything else can be closed.
    std::array<int, 4> wanted = {job.input, job.tree, job.whiteouts, report};
    for (int& fd : wanted) {
      fd = ::fcntl(fd, F_DUPFD, 64);
      if (fd < 0) {
        return system_error("prepare the unpacker's descriptors");
      }
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const int fixed = static_cast<int>(i) + 3;
      if (::dup2(wanted[i], fixed) != fixed) {
        return system_error("prepare the unpacker's descriptors");
      }
      wanted[i] = fixed;
    }
    job.input = wanted[0];
    job.tree = wanted[1];
    job.whiteouts = wanted[2];
    report = wanted[3];
    const int nothing = ::open("/dev/null", O_RDWR);
    for (int standard : {0, 1, 2}) {
      if (::dup2(nothing, standard) != standard) {
        return system_error("prepare the unpacker's descriptors");
      }
    }
    // CRITICAL: a descriptor of a directory that stayed open would lead out of the room.
    if (const long closed = kernel::close_descriptors(7, ~0U); closed != 0) {
      return system_error(static_cast<int>(-closed), "close the unpacker's descriptors");
    }
    CARREL_TRY(enter_unpack_room({.tree = job.tree, .largest_file = job.limits.bytes}));
    return unpack_archive(job, contents);
  }

  pid_t pid_ = -1;
};

// Sends the archive to the unpacker and hashes it; stops quietly when that reads no more.
class Pump {
 public:
  Pump(int source, int to, std::uint64_t limit) : source_(source), to_(to), limit_(limit) {}

  Status run(std::string_view what, const ProgressListener& listener) {
    struct stat info{};
    const bool sized = ::fstat(source_, &info) == 0 && S_ISREG(info.st_mode);
    Progress progress{what, 0, sized ? static_cast<std::uint64_t>(info.st_size) : 0};
    std::string buffer(kPiece, '\0');
    for (;;) {
      const ssize_t n = ::read(source_, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n < 0) {
        return system_error("read " + std::string(what));
      }
      if (n == 0) {
        return {};
      }
      const std::string_view piece(buffer.data(), static_cast<std::size_t>(n));
      progress.done += piece.size();
      if (progress.done > limit_) {
        return Error{Code::kResource,
                     0,
                     std::string(what) + " is larger than " + std::to_string(limit_ >> 20) + " MiB",
                     {}};
      }
      hash_.update(piece);
      if (!send(piece)) {
        return {};
      }
      if (listener) {
        listener(progress);
      }
    }
  }

  [[nodiscard]] std::string digest() { return hash_.finish(); }

 private:
  bool send(std::string_view piece) const {
    while (!piece.empty()) {
      const ssize_t n = ::send(to_, piece.data(), piece.size(), MSG_NOSIGNAL);
      if (n < 0 && errno != EINTR) {
        return false;
      }
      piece.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    }
    return true;
  }

  int source_;
  int to_;
  std::uint64_t limit_;
  Sha256 hash_;
};

Result<Unpacked> read_ending(const std::string& said, int status) {
  Ending ending;
  if (said.size() < sizeof ending) {
    const std::string how = WIFSIGNALED(status)
                                ? "ended by signal " + std::to_string(WTERMSIG(status))
                                : "ended without a word";
    return Error{Code::kDenied, 0, "the unpacker " + how, "the archive may be hostile"};
  }
  std::memcpy(&ending, said.data(), sizeof ending);
  if (ending.failed == 0) {
    return ending.contents;
  }
  const std::string_view text = std::string_view(said).substr(sizeof ending);
  const std::size_t split = std::min<std::size_t>(ending.text_size, text.size());
  const auto code = ending.code == static_cast<std::uint32_t>(Code::kResource) ? Code::kResource
                    : ending.code == static_cast<std::uint32_t>(Code::kUnsupported)
                        ? Code::kUnsupported
                    : ending.code == static_cast<std::uint32_t>(Code::kSystem) ? Code::kSystem
                                                                               : Code::kDenied;
  return Error{code, ending.error_number & 0xfff, std::string(text.substr(0, split)),
               std::string(text.substr(split, ending.hint_size))};
}

}  // namespace

Result<UnpackedLayer> unpack_layer(int source, int layer, const TreeLimits& limits,
                                   std::string_view what, const ProgressListener& listener) {
  if (::mkdirat(layer, "tree", 0755) != 0) {
    return system_error("make the layer's tree");
  }
  CARREL_ASSIGN(UniqueFd tree, open_at(layer, "tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  CARREL_ASSIGN(UniqueFd whiteouts, open_at(layer, "whiteouts", O_WRONLY | O_CREAT | O_EXCL, 0600));
  std::array<int, 2> data{};
  std::array<int, 2> report{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, data.data()) != 0) {
    return system_error("start the unpacker");
  }
  UniqueFd data_out(data[0]);
  UniqueFd data_in(data[1]);
  if (::pipe2(report.data(), O_CLOEXEC) != 0) {
    return system_error("start the unpacker");
  }
  UniqueFd report_in(report[0]);
  UniqueFd report_out(report[1]);
  UnpackerProcess unpacker;
  CARREL_TRY(
      unpacker.start({data_in.get(), tree.get(), whiteouts.get(), limits}, report_out.get()));
  data_in.reset();
  report_out.reset();
  Pump pump(source, data_out.get(), limits.bytes);
  CARREL_TRY(pump.run(what, listener));
  data_out.reset();
  CARREL_ASSIGN(const std::string said, read_all(report_in.get(), 64 << 10));
  CARREL_ASSIGN(Unpacked contents, read_ending(said, unpacker.wait()));
  return UnpackedLayer{pump.digest(), contents};
}

}  // namespace carrel::storage
