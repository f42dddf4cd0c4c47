#include "backends/docker/door.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>
#include <vector>

#include "backends/docker/layout.h"
#include "base/files.h"
#include "base/unix_socket.h"

namespace carrel::docker {

namespace {

constexpr char kPlace[] = "/docker";
constexpr char kEngine[] = "engine";
constexpr std::size_t kLongestAddress = 4096;

Status copy_program(int program, int directory) {
  struct stat info{};
  if (::fstat(program, &info) != 0) {
    return system_error("look at the guest's program");
  }
  CARREL_ASSIGN(const UniqueFd file,
                open_at(directory, "guest", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0500));
  for (off_t at = 0; at < info.st_size;) {
    if (::sendfile(file.get(), program, &at, static_cast<std::size_t>(info.st_size - at)) <= 0) {
      return system_error("write the guest's program");
    }
  }
  // The container's user executes it.
  return ::fchmod(file.get(), 0555) == 0 ? Status() : system_error("write the guest's program");
}

Result<UniqueFd> listen_in(int directory) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(directory, "door");
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      // The container's user may call. Nobody else can reach it: the directory is the caller's.
      ::fchmodat(directory, "door", 0666, 0) != 0 || ::listen(socket.get(), 1) != 0) {
    return system_error("listen for the sandbox's guest");
  }
  return socket;
}

}  // namespace

Door::Door(Door&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      directory_(std::move(other.directory_)),
      listener_(std::move(other.listener_)) {}

Door::~Door() {
  if (!path_.empty()) {
    const std::size_t slash = path_.rfind('/');
    if (auto place = open_at(AT_FDCWD, path_.substr(0, slash), O_PATH | O_DIRECTORY); place.ok()) {
      (void)remove_tree_at(place.value().get(), path_.substr(slash + 1));
    }
  }
}

Result<Door> Door::open(const std::string& folder, const std::string& id, const std::string& engine,
                        int program) {
  const std::string place = folder + kPlace;
  CARREL_TRY(make_directories(place, 0700));
  Door door;
  const std::string path = place + "/" + id;
  if (::mkdir(path.c_str(), 0700) != 0) {
    return system_error("make directory " + path);
  }
  door.path_ = path;
  CARREL_ASSIGN(door.directory_, open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (::flock(door.directory_.get(), LOCK_EX) != 0) {
    return system_error("lock " + path);
  }
  const int directory = door.directory_.get();
  CARREL_TRY(replace_file_at(directory, kEngine, engine, 0600, Lasting::kUnsynced));
  CARREL_TRY(copy_program(program, directory));
  CARREL_ASSIGN(door.listener_, listen_in(directory));
  return door;
}

Status Door::furnish(const Layout& layout) const {
  for (const Layout::File& file : layout.files) {
    CARREL_TRY(
        replace_file_at(directory_.get(), file.name, file.content, 0444, Lasting::kUnsynced));
  }
  for (const std::string& folder : layout.folders) {
    if (::mkdirat(directory_.get(), folder.c_str(), 0555) != 0) {
      return system_error("make directory " + folder);
    }
  }
  return {};
}

Result<Door::Caller> Door::answer(std::chrono::milliseconds patience) const {
  pollfd called{listener_.get(), POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&called, 1, static_cast<int>(patience.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) {
    return Error{Code::kTimeout, 0, "Failed to create sandbox: its guest did not call", {}};
  }
  Caller caller;
  caller.stream.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ucred who{};
  socklen_t size = sizeof who;
  if (!caller.stream.valid() ||
      ::getsockopt(caller.stream.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return system_error("answer the sandbox's guest");
  }
  caller.pid = who.pid;
  caller.user = who.uid;
  caller.group = who.gid;
  return caller;
}

std::vector<LeftDoor> left_doors(const std::string& folder) {
  std::vector<LeftDoor> found;
  auto place = open_at(AT_FDCWD, folder + kPlace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!place.ok()) {
    return found;
  }
  const auto names = list_directory(place.value().get());
  for (const std::string& name : names.ok() ? names.value() : std::vector<std::string>()) {
    auto lock = open_at(place.value().get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    struct stat info{};
    if (!lock.ok() || ::flock(lock.value().get(), LOCK_EX | LOCK_NB) != 0 ||
        ::fstat(lock.value().get(), &info) != 0) {
      continue;
    }
    auto engine = read_file_at(lock.value().get(), kEngine, kLongestAddress);
    found.push_back({name, engine.ok() ? std::move(engine.value()) : std::string(),
                     std::chrono::seconds(::time(nullptr) - info.st_mtim.tv_sec),
                     std::move(lock.value())});
  }
  return found;
}

bool has_door(const std::string& folder, const std::string& id) {
  return ::access((folder + kPlace + "/" + id).c_str(), F_OK) == 0;
}

void remove_door(const std::string& folder, const LeftDoor& door) {
  if (auto place = open_at(AT_FDCWD, folder + kPlace, O_PATH | O_DIRECTORY); place.ok()) {
    (void)remove_tree_at(place.value().get(), door.id);
  }
}

}  // namespace carrel::docker
