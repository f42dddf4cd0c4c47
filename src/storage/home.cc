#include "storage/home.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/files.h"

namespace carrel::storage {

namespace {

Result<UniqueFd> open_directory(int parent, const std::string& name) {
  auto fd = open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (fd.ok() || fd.error().error_number != ENOENT) {
    return fd;
  }
  if (::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("create directory '" + name + "'");
  }
  return open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<std::string> read_label(int directory) {
  auto label = read_file_at(directory, "installation", 64);
  if (!label.ok() && label.error().error_number == ENOENT) {
    // Two first commands at once: one of the two links wins, and both read the same.
    const std::string own =
        "installation." + random_hex(8) + "." + std::to_string(::getpid()) + ".new";
    CARREL_TRY(replace_file_at(directory, own, random_hex(8), 0600));
    if (::linkat(directory, own.c_str(), directory, "installation", 0) != 0 && errno != EEXIST) {
      return system_error("create 'installation'");
    }
    ::unlinkat(directory, own.c_str(), 0);
    label = read_file_at(directory, "installation", 64);
  }
  if (!label.ok()) {
    return label;
  }
  if (label.value().size() != 8 ||
      label.value().find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Error{Code::kConflict, 0, "the file 'installation' is damaged", {}};
  }
  return label;
}

}  // namespace

Result<std::string> home_path() {
  if (const char* given = std::getenv("CARREL_HOME"); given != nullptr && *given != '\0') {
    if (*given != '/') {
      return Error{Code::kInvalid, 0, std::string("CARREL_HOME is '") + given + "'",
                   "it must be an absolute path"};
    }
    return std::string(given);
  }
  if (::geteuid() == 0) {
    return std::string("/var/lib/carrel");
  }
  if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data == '/') {
    return std::string(data) + "/carrel";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::string(home) + "/.local/share/carrel";
  }
  return Error{Code::kInvalid, 0, "there is no place for Carrel's state",
               "set CARREL_HOME to an absolute path"};
}

Result<Home> Home::open() {
  CARREL_ASSIGN(std::string path, home_path());
  return open_at(path);
}

Result<Home> Home::open_at(const std::string& path) {
  Home home;
  home.path_ = path;
  auto directory = carrel::open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  if (!directory.ok() && directory.error().error_number == ENOENT) {
    Status made = make_directories(path, 0700);
    if (!made.ok()) {
      made.error().message = "the state directory '" + path + "': " + made.error().message;
      made.error().hint = "set CARREL_HOME to a directory that you can write to";
      return made.error();
    }
    directory = carrel::open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  }
  if (!directory.ok()) {
    return directory.error();
  }
  home.directory_ = std::move(directory.value());
  struct stat info{};
  if (::fstat(home.directory_.get(), &info) != 0) {
    return system_error("look at '" + path + "'");
  }
  if (info.st_uid != ::geteuid()) {
    return Error{Code::kDenied, 0, "the state directory '" + path + "' belongs to another user",
                 "set CARREL_HOME to a directory of your own"};
  }
  if ((info.st_mode & 022) != 0) {
    return Error{Code::kDenied, 0, "the state directory '" + path + "' can be written by others",
                 "chmod go-w it, or set CARREL_HOME"};
  }
  auto finish = [&]() -> Status {
    CARREL_ASSIGN(home.label_, read_label(home.directory_.get()));
    CARREL_ASSIGN(UniqueFd run, open_directory(home.directory_.get(), "run"));
    CARREL_ASSIGN(home.once_, open_directory(run.get(), "once"));
    CARREL_ASSIGN(home.boxes_, open_directory(run.get(), "box"));
    CARREL_ASSIGN(home.ids_, open_directory(run.get(), "ids"));
    return {};
  };
  Status finished = finish();
  if (!finished.ok()) {
    finished.error().message = "the state directory '" + path + "': " + finished.error().message;
    finished.error().hint = "set CARREL_HOME to a directory that you can write to";
    return finished.error();
  }
  return home;
}

bool Home::is_removed() const {
  constexpr int kNewfstatat = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;  // the call that egress has
  struct stat own{};
  struct stat there{};
  // There are file systems that count no links, so that its path has to agree.
  return ::fstat(directory_.get(), &own) == 0 && own.st_nlink == 0 &&
         (::fstatat(AT_FDCWD, path_.c_str(), &there, kNewfstatat) != 0
              ? errno == ENOENT || errno == ENOTDIR
              : there.st_ino != own.st_ino);
}

Result<UniqueFd> Home::claim_once(const std::string& id) {
  // A sweep can find the mark before the lock is on it, and then takes it away: the next one stays.
  for (;;) {
    CARREL_ASSIGN(UniqueFd lock, carrel::open_at(once_.get(), id, O_RDWR | O_CREAT | O_EXCL, 0600));
    struct stat info{};
    if (::flock(lock.get(), LOCK_EX) != 0 || ::fstat(lock.get(), &info) != 0) {
      return system_error("lock the sandbox's mark");
    }
    if (info.st_nlink > 0) {
      return lock;
    }
  }
}

void Home::release_once(const std::string& id) { ::unlinkat(once_.get(), id.c_str(), 0); }

std::vector<Home::Abandoned> Home::abandoned() {
  std::vector<Abandoned> found;
  (void)each_visible_entry_at(once_.get(), ".", [&](const dirent& entry) {
    auto lock = carrel::open_at(once_.get(), entry.d_name, O_RDWR);
    if (!lock.ok() || ::flock(lock.value().get(), LOCK_EX | LOCK_NB) != 0) {
      return;
    }
    struct stat info{};
    if (::fstat(lock.value().get(), &info) == 0 && info.st_nlink > 0) {
      found.push_back({entry.d_name, std::move(lock.value())});
    }
  });
  return found;
}

Result<std::uint32_t> Home::claim_ids(const std::string& id, std::uint32_t limit) {
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) {
    return system_error("get random bytes");
  }
  for (std::uint32_t tries = 0; tries < limit; ++tries) {
    number = (number + 1) % limit;
    if (::symlinkat(id.c_str(), ids_.get(), std::to_string(number).c_str()) == 0) {
      return number;
    }
    if (errno != EEXIST) {
      return system_error("take a range of user ids");
    }
  }
  return Error{Code::kResource, 0,
               "all " + std::to_string(limit) + " ranges of user ids are in use",
               "remove sandboxes that are not needed"};
}

std::optional<std::uint32_t> Home::claim_ids_between(const std::string& id, std::uint32_t first,
                                                     std::uint32_t last) {
  for (std::uint32_t number = first; number <= last; ++number) {
    if (::symlinkat(id.c_str(), ids_.get(), std::to_string(number).c_str()) == 0) {
      return number;
    }
  }
  return std::nullopt;
}

void Home::release_ids(const std::string& id, std::uint32_t number) {
  if (owner_of(number) == id) {
    ::unlinkat(ids_.get(), std::to_string(number).c_str(), 0);
  }
}

void Home::release_ids_of(const std::string& id) {
  for (const std::uint32_t number : ids_of(id)) {
    release_ids(id, number);
  }
}

std::vector<std::uint32_t> Home::ids_of(const std::string& id) const {
  std::vector<std::uint32_t> numbers;
  (void)each_visible_entry_at(ids_.get(), ".", [&](const dirent& entry) {
    const auto number = static_cast<std::uint32_t>(std::strtoul(entry.d_name, nullptr, 10));
    if (owner_of(number) == id) {
      numbers.push_back(number);
    }
  });
  return numbers;
}

std::string Home::owner_of(std::uint32_t number) const {
  std::array<char, 64> target{};
  const ssize_t n =
      ::readlinkat(ids_.get(), std::to_string(number).c_str(), target.data(), target.size());
  return n > 0 ? std::string(target.data(), static_cast<std::size_t>(n)) : std::string();
}

std::string random_hex(std::size_t count) {
  std::string bytes(count, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::abort();  // the kernel's generator cannot fail for a few bytes
  }
  for (char& c : bytes) {
    c = "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return bytes;
}

std::string make_id() {
  std::string id = random_hex(36);
  for (std::size_t at : {8U, 13U, 18U, 23U}) {
    id[at] = '-';
  }
  id[14] = '4';
  id[19] = "89ab"[id[19] & 3];
  return id;
}

}  // namespace carrel::storage
