#include "storage/box_use.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/files.h"
#include "storage/state.h"

namespace carrel::storage {

namespace {

// Of the record itself: a file that was made for it could come into a box that is being removed.
constexpr const char* kRecord = "/record";
constexpr const char* kPaused = "/paused";
constexpr const char* kLease = "/lease";
constexpr char kUntilUsed = 'u';
constexpr char kUntilResumed = 'r';

Result<UniqueFd> open_record(const Home& home, const std::string& id) {
  auto file = open_at(home.boxes(), id + kRecord, O_RDWR | O_NOFOLLOW);
  if (!file.ok() && file.error().error_number == ENOENT) {
    return Error{Code::kGone, 0, "sandbox " + id + " has ended", "'carrel info' says why"};
  }
  return file;
}

}  // namespace

Result<BoxUse> BoxUse::begin(const Home& home, const std::string& id) {
  CARREL_ASSIGN(UniqueFd file, open_record(home, id));
  while (::flock(file.get(), LOCK_SH) != 0) {
    if (errno != EINTR) {
      return system_error("use sandbox " + id);
    }
  }
  return BoxUse(std::move(file));
}

BoxUse& BoxUse::operator=(BoxUse&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

BoxUse::~BoxUse() {
  if (file_.valid()) {
    (void)::futimens(file_.get(), nullptr);
  }
}

Result<UniqueFd> keep_unused(const Home& home, const std::string& id) {
  CARREL_ASSIGN(UniqueFd file, open_record(home, id));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{Code::kConflict, 0, "sandbox " + id + " is in use", {}};
  }
  return file;
}

bool is_used(const Home& home, const std::string& id) {
  auto unused = keep_unused(home, id);
  return !unused.ok() && unused.error().code == Code::kConflict;
}

std::int64_t last_use(const Home& home, const std::string& id) {
  struct stat info{};
  if (::fstatat(home.boxes(), (id + kRecord).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return 0;
  }
  return std::int64_t{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / 1'000'000;
}

void touch_use(const Home& home, const std::string& id) {
  (void)::utimensat(home.boxes(), (id + kRecord).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

void note_lease(const Home& home, const std::string& id, std::uint64_t lease_ms) {
  const std::int64_t end =
      lease_ms == 0 ? 0 : wall_clock_ms() + static_cast<std::int64_t>(lease_ms);
  (void)replace_file_at(home.boxes(), id + kLease, std::to_string(end), 0600);
}

std::int64_t noted_lease(const Home& home, const std::string& id) {
  auto text = read_file_at(home.boxes(), id + kLease, 32);
  std::int64_t end = 0;
  if (text.ok()) {
    std::from_chars(text.value().data(), text.value().data() + text.value().size(), end);
  }
  return end;
}

Status note_pause(const Home& home, const std::string& id, const Pause& pause) {
  const char until = pause.until == Pause::Until::kUsed ? kUntilUsed : kUntilResumed;
  return replace_file_at(home.boxes(), id + kPaused, until + pause.reason, 0600);
}

Status drop_pause(const Home& home, const std::string& id) {
  if (::unlinkat(home.boxes(), (id + kPaused).c_str(), 0) != 0 && errno != ENOENT) {
    return system_error("note that sandbox " + id + " goes on");
  }
  return {};
}

std::optional<Pause> noted_pause(const Home& home, const std::string& id) {
  auto text = read_file_at(home.boxes(), id + kPaused, 4096);
  if (!text.ok() || text.value().empty()) {
    return std::nullopt;
  }
  Pause pause;
  pause.until = text.value().front() == kUntilUsed ? Pause::Until::kUsed : Pause::Until::kResumed;
  pause.reason = text.value().substr(1);
  return pause;
}

Result<UniqueFd> lock_standstill(const Home& home, const std::string& id, int patience_ms) {
  constexpr int kStepMs = 5;
  CARREL_ASSIGN(UniqueFd file, open_record(home, id));
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  // Another kind of lock than that of a use, which it does not meet.
  for (int waited = 0; ::fcntl(file.get(), F_OFD_SETLK, &whole) != 0; waited += kStepMs) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
      return system_error("lock the standstill of sandbox " + id);
    }
    if (waited >= patience_ms) {
      return Error{Code::kConflict, 0, "sandbox " + id + " is being paused or copied",
                   "try again in a moment"};
    }
    ::usleep(kStepMs * 1000);
  }
  return file;
}

}  // namespace carrel::storage
