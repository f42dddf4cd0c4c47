// The far end of what Carrel says to Firecracker: a program that is started in its place, takes its
// arguments and its file of settings as strictly as it does, and uses what they name. It makes no
// machine of its own. With QEMU beside it (kBeside) it has that one make the machine which the
// settings describe, with a device for sockets of vhost-device-vsock, whose sockets are like
// Firecracker's. Otherwise it says what it found and ends.
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "protocol/awakening.h"
#include "protocol/trunk.h"

namespace {

using nlohmann::json;

const std::string kBeside = "/usr/lib/x86_64-linux-gnu/qemu/";
constexpr char kPort[] = "_1024";

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "far end: %s\n", what.c_str());
  std::_Exit(1);
}

void expect(bool holds, const std::string& what) {
  if (!holds) {
    fail(what);
  }
}

// Firecracker refuses a field that it does not know.
void only(const json& object, const std::set<std::string>& known) {
  expect(object.is_object(), "an object was expected");
  for (const auto& [name, value] : object.items()) {
    expect(known.contains(name), "the field '" + name + "' is unknown");
  }
}

int open_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  expect(fd >= 0, path + " cannot be opened: " + std::strerror(errno));
  return fd;
}

std::string head_of(const std::string& path, off_t at, std::size_t size) {
  const int fd = open_file(path);
  std::string bytes(size, '\0');
  const ssize_t n = ::pread(fd, bytes.data(), size, at);
  ::close(fd);
  expect(n == static_cast<ssize_t>(size), path + " cannot be read: " + std::strerror(errno));
  return bytes;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  expect(path.size() < sizeof address.sun_path, "the path of a socket is too long");
  path.copy(address.sun_path, path.size());
  return address;
}

int connect_to(const std::string& path) {
  const sockaddr_un address = address_of(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

void look_at_boot(const json& boot) {
  only(boot, {"kernel_image_path", "initrd_path", "boot_args"});
  expect(head_of(boot.at("kernel_image_path"), 0, 4) ==
             "\x7f"
             "ELF",
         "the kernel is compressed");
  expect(head_of(boot.at("initrd_path"), 0, 6) == "070701", "the first files are no archive");
}

void look_at_drive(const json& drive) {
  only(drive, {"drive_id", "path_on_host", "is_root_device", "is_read_only", "cache_type",
               "io_engine", "partuuid", "rate_limiter", "socket"});
  const std::string path = drive.at("path_on_host");
  const int fd = open_file(path);
  expect(::lseek(fd, 0, SEEK_END) == off_t{1} << 43, "the drive's size is another");
  ::close(fd);
  expect(head_of(path, 1024, 4) == "\xe2\xe1\xf5\xe0", "the drive is no EROFS");
  expect(::open(path.c_str(), O_RDWR | O_CLOEXEC) < 0 && errno == EROFS, "the drive is writable");
}

bool receive(int line, void* data, std::size_t size) {
  return ::recv(line, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

// What comes before the trunk: the words that wake a machine, and what its sandbox is.
void wake(int line) {
  using namespace carrel::protocol;
  for (const auto& [kind, answer] :
       {std::pair(AwakeningKind::kAsk, kStillWaiting), std::pair(AwakeningKind::kWake, kAwoken)}) {
    std::array<unsigned char, kAwakeningSize> data{};
    Awakening words;
    expect(receive(line, data.data(), data.size()) && parse_awakening(data.data(), words) &&
               words.kind == kind,
           "the machine is not woken");
    expect(::send(line, answer.data(), answer.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(answer.size()),
           "the line takes nothing");
  }
  std::array<unsigned char, 2> size{};
  expect(receive(line, size.data(), size.size()), "the machine is told nothing");
  std::string terms(size[0] + 256U * size[1], '\0');
  expect(receive(line, terms.data(), terms.size()) && terms.ends_with("\n"), "no terms");
}

// What a machine sees whose first process connects to its host.
void speak(const std::string& path) {
  using namespace carrel::protocol;
  const int line = connect_to(path + kPort);
  expect(line >= 0, "nobody listens for the machine");
  wake(line);
  std::array<unsigned char, kTrunkHeader> header{};
  write_trunk_header({TrunkKind::kHello, 0, 0}, header.data());
  expect(::send(line, header.data(), header.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(header.size()),
         "the line takes nothing");
  TrunkFrame frame;
  expect(::recv(line, header.data(), header.size(), MSG_WAITALL) ==
                 static_cast<ssize_t>(header.size()) &&
             parse_trunk_header(header.data(), TrunkEnd::kMachine, frame),
         "the line says nothing");
  expect(connect_to(path + kPort) < 0 && errno == ECONNREFUSED, "there is a second line");
  expect(connect_to(path + "_1025") < 0 && errno == ENOENT, "there is another port");
}

// As Firecracker does before the machine runs.
void listen_at(const std::string& path) {
  const sockaddr_un address = address_of(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  expect(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
             ::listen(fd, 1) == 0,
         path + " cannot be made: " + std::strerror(errno));
}

// How much can be written to files beside the socket, one after the other.
std::size_t fills_at_most(const std::string& path) {
  std::size_t written = 0;
  const std::string page(4096, 'x');
  for (int i = 0; i < 16; ++i) {
    const int fd = ::open((path + std::to_string(i)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (ssize_t n = 0; fd >= 0 && (n = ::write(fd, page.data(), page.size())) > 0;) {
      written += static_cast<std::size_t>(n);
      expect(written < 1U << 20, "much can be written");
    }
  }
  return written;
}

[[noreturn]] void execute(const std::vector<std::string>& arguments) {
  std::vector<char*> words;
  for (const std::string& word : arguments) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  ::execv(words[0], words.data());
  fail(arguments[0] + " cannot be executed");
}

[[noreturn]] void have_it_made(const json& settings) {
  const json& boot = settings.at("boot-source");
  const json& machine = settings.at("machine-config");
  const std::string uds = settings.at("vsock").at("uds_path");
  const std::string device = uds.substr(0, uds.rfind('/')) + "/device";
  if (::fork() == 0) {
    execute({kBeside + "vhost-device-vsock", "--guest-cid",
             settings.at("vsock").at("guest_cid").dump(), "--uds-path", uds, "--socket", device});
  }
  for (int i = 0; i < 500 && ::access(device.c_str(), F_OK) != 0; ++i) {
    ::usleep(10'000);
  }
  std::string words = boot.at("boot_args");
  words.insert(words.find(" -- "), " mitigations=off tsc=unstable no_timer_check");
  ::setenv("QEMU_MODULE_DIR", kBeside.c_str(), 1);
  const std::string memory = machine.at("mem_size_mib").dump() + "M";
  execute({kBeside + "qemu-system-x86_64",
           "-L",
           kBeside,
           "-nodefaults",
           "-no-user-config",
           "-display",
           "none",
           "-no-reboot",
           "-machine",
           "q35,usb=off,sata=off,vmport=off,smbus=off,memory-backend=memory",
           "-object",
           "memory-backend-memfd,id=memory,share=on,size=" + memory,
           "-m",
           memory,
           "-accel",
           "tcg,thread=multi,tb-size=64",
           "-cpu",
           "max",
           "-smp",
           machine.at("vcpu_count").dump(),
           "-kernel",
           boot.at("kernel_image_path"),
           "-initrd",
           boot.at("initrd_path"),
           "-append",
           words,
           "-blockdev",
           "driver=file,node-name=root,read-only=on,locking=off,filename=" +
               settings.at("drives").at(0).at("path_on_host").get<std::string>(),
           "-device",
           "virtio-blk-pci,drive=root",
           "-chardev",
           "socket,id=vsock,path=" + device,
           "-device",
           "vhost-user-vsock-pci,chardev=vsock"});
}

// CRITICAL: whoever breaks out of the machine is here.
void look_at_rights() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  expect(::syscall(SYS_capget, &header, sets) == 0 && sets[0].permitted == 0 &&
             sets[1].permitted == 0 && sets[0].effective == 0 && sets[1].effective == 0,
         "there are capabilities");
  expect(::getuid() == 1000 && ::getgid() == 1000, "the id is another");
  expect(::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "rights can be gained");
  // A filter that is not this program's own.
  expect(::socket(AF_VSOCK, SOCK_STREAM, 0) < 0 && errno == EPERM, "there is no filter");
  expect(::if_nameindex()[1].if_index == 0, "there is a network");
}

void look_at_root() {
  std::set<std::string> names;
  DIR* const root = ::opendir("/");
  while (const dirent* entry = ::readdir(root)) {
    names.insert(entry->d_name);
  }
  ::closedir(root);
  for (const char* const name : {".", "..", "dev", "drive", "etc", "first", "kernel", "lib",
                                 "lib64", "line", "settings", "usr"}) {
    names.erase(name);
  }
  expect(names.empty(), names.empty() ? "" : "there is /" + *names.begin());
  expect(::open("/new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0 && errno == EROFS,
         "the root is writable");
}

// A machine that has only a kernel ends by itself, if it works. Here nothing can be seen of that.
int look_at_probe(const json& settings) {
  only(settings.at("boot-source"), {"kernel_image_path", "boot_args"});
  expect(settings.at("drives").empty(), "there is a drive");
  return 0;
}

int run(const std::string& path) {
  for (int fd = 3; fd < 256; ++fd) {
    expect(::fcntl(fd, F_GETFD) < 0, "the descriptor " + std::to_string(fd) + " is open");
  }
  look_at_rights();
  look_at_root();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const json settings = json::parse(text.str(), nullptr, false);
  only(settings, {"boot-source", "drives", "machine-config", "vsock"});
  if (!settings.contains("vsock")) {
    return look_at_probe(settings);
  }
  look_at_boot(settings.at("boot-source"));
  expect(settings.at("drives").size() == 1, "there is not one drive");
  look_at_drive(settings.at("drives").at(0));
  only(settings.at("machine-config"),
       {"vcpu_count", "mem_size_mib", "smt", "track_dirty_pages", "cpu_template", "huge_pages"});
  only(settings.at("vsock"), {"guest_cid", "uds_path", "vsock_id"});
  if (::access((kBeside + "qemu-system-x86_64").c_str(), X_OK) == 0) {
    have_it_made(settings);
  }
  const std::string uds = settings.at("vsock").at("uds_path");
  listen_at(uds);
  speak(uds);
  expect(fills_at_most(uds + "_x") <= 4096, "much can be written");
  std::fprintf(stderr, "far end: everything is as it should be\n");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments == std::vector<std::string>{"--version"}) {
    // As the true one, with a line of its log.
    std::puts(
        "Firecracker v1.16.1\n\n2026-01-01T00:00:00 [anonymous-instance:main] Firecracker exiting");
    return 0;
  }
  expect(arguments.size() == 3 && arguments[0] == "--no-api" && arguments[1] == "--config-file",
         "the arguments are others");
  return run(arguments[2]);
}
