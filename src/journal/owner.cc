#include "journal/owner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/files.h"
#include "storage/box.h"

namespace carrel::journal {
namespace {

std::string path_of(const std::string& execution) { return "flows/" + execution; }

// Whether the file that the lock is on still has its name.
bool is_named(const storage::Home& home, const std::string& execution, int file) {
  struct stat own{};
  struct stat there{};
  return ::fstat(file, &own) == 0 &&
         ::fstatat(home.directory(), path_of(execution).c_str(), &there, AT_SYMLINK_NOFOLLOW) ==
             0 &&
         own.st_ino == there.st_ino && own.st_dev == there.st_dev;
}

// Whether the process that the file names still lives. One that has not written it yet does not
// count: it is asked again.
bool owner_lives(int file) {
  char text[64];
  const ssize_t size = ::pread(file, text, sizeof text, 0);
  const char* end = text + (size > 0 ? size : 0);
  int pid = 0;
  std::uint64_t started = 0;
  const auto [next, bad] = std::from_chars(text, end, pid);
  return bad == std::errc() && next != end &&
         std::from_chars(next + 1, end, started).ec == std::errc() && started != 0 &&
         storage::start_time_of(pid) == started;
}

struct Tried {
  UniqueFd lock;
  enum class Outcome { kTaken, kBusy, kAgain } outcome = Outcome::kAgain;
};

Result<Tried> try_once(const storage::Home& home, const std::string& execution) {
  if (::mkdirat(home.directory(), "flows", 0700) != 0 && errno != EEXIST) {
    return system_error("make a place for the owners of executions");
  }
  Tried tried;
  CARREL_ASSIGN(tried.lock,
                open_at(home.directory(), path_of(execution), O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  if (::flock(tried.lock.get(), LOCK_EX | LOCK_NB) != 0) {
    tried.outcome = Tried::Outcome::kBusy;
  } else if (is_named(home, execution, tried.lock.get())) {
    tried.outcome = Tried::Outcome::kTaken;
  }
  return tried;
}

Status write_owner(int file) {
  const std::string text =
      std::to_string(::getpid()) + " " + std::to_string(storage::start_time_of(::getpid())) + "\n";
  return ::ftruncate(file, 0) == 0 &&
                 ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())
             ? Status{}
             : Status{system_error("say whose execution it is")};
}

}  // namespace

Result<UniqueFd> claim(const storage::Home& home, const std::string& execution) {
  constexpr int kRounds = 6000;  // a minute
  for (int round = 0; round < kRounds; ++round) {
    CARREL_ASSIGN(Tried tried, try_once(home, execution));
    if (tried.outcome == Tried::Outcome::kTaken) {
      CARREL_TRY(write_owner(tried.lock.get()));
      return std::move(tried.lock);
    }
    if (tried.outcome == Tried::Outcome::kBusy && owner_lives(tried.lock.get())) {
      break;
    }
    ::usleep(10'000);
  }
  return Error{Code::kConflict, 0, "the execution '" + execution + "' is running",
               "wait for it, or start another one"};
}

UniqueFd try_claim(const storage::Home& home, const std::string& execution) {
  auto tried = try_once(home, execution);
  return tried.ok() && tried->outcome == Tried::Outcome::kTaken ? std::move(tried->lock)
                                                                : UniqueFd();
}

bool is_claimed(const storage::Home& home, const std::string& execution) {
  const UniqueFd file(
      ::openat(home.directory(), path_of(execution).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  return file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void release(const storage::Home& home, const std::string& execution, UniqueFd owner) {
  if (owner.valid()) {
    ::unlinkat(home.directory(), path_of(execution).c_str(), 0);
    owner.reset();
  }
}

}  // namespace carrel::journal
