#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "verify/probes/descriptors.h"
#include "verify/probes/probe.h"

// What can be reached, changed or made in the file tree.
namespace carrel::probe {
namespace {

std::vector<int> open_at_start;

bool is_canary(std::string_view name) {
  return name.starts_with("CANARY") || name.starts_with("id_canary");
}

// Walks a directory by descriptor, follows no link and does not enter proc.
void walk(int directory, const std::string& path, Report& report, std::size_t& seen) {
  DIR* stream = ::fdopendir(directory);
  if (stream == nullptr) {
    ::close(directory);
    return;
  }
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") {
      continue;
    }
    ++seen;
    const std::string whole = path + "/" + name;
    if (is_canary(name)) {
      report.open("found " + whole + " with " + read_some(whole, 200));
    }
    if (entry->d_type == DT_DIR && whole != "/proc") {
      const int next =
          ::openat(::dirfd(stream), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (next >= 0) {
        walk(next, whole, report, seen);
      }
    }
  }
  ::closedir(stream);
}

void find_canaries(Report& report, Arguments) {
  std::size_t seen = 0;
  walk(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "", report, seen);
  for (const char* directory : {"/root", "/home", "/home/carrel-test", "/home/carrel-test/.ssh",
                                "/root/.ssh", "/..", "/../root", "/proc/self/root/../root"}) {
    for (const std::string& name : names_in(directory)) {
      if (is_canary(name)) {
        report.open(std::string("found ") + directory + "/" + name);
      }
    }
  }
  report.expect("the walk saw the tree (" + std::to_string(seen) + " names)", seen > 0);
}

void find_roots_in_proc(Report& report, Arguments) {
  for (const std::string& pid : names_in("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    for (const char* link : {"/root", "/cwd", "/root/..", "/cwd/..", "/cwd/../../../../.."}) {
      for (const char* below : {"", "/root", "/home", "/home/carrel-test/.ssh"}) {
        const std::string place = "/proc/" + pid + link + below;
        for (const std::string& name : names_in(place)) {
          if (is_canary(name)) {
            report.open("found " + place + "/" + name);
          }
        }
      }
    }
    report.held("looked through process " + pid);
  }
}

void list_descriptors(Report& report, Arguments) {
  for (const int fd : open_at_start) {
    if (fd > 2) {
      std::array<char, PATH_MAX> target{};
      const std::string link = "/proc/self/fd/" + std::to_string(fd);
      const ssize_t n = ::readlink(link.c_str(), target.data(), target.size() - 1);
      report.open("descriptor " + std::to_string(fd) + " is " + (n > 0 ? target.data() : "open"));
      if (::chdir(link.c_str()) == 0) {
        report.open("and it is a directory to go out by");
      }
    }
  }
  report.held(std::to_string(open_at_start.size()) + " descriptors are open");
}

// What protects them besides their owner: a mount that is read-only, whoever asks.
void look_at_mounts(Report& report) {
  for (const char* place : {"/", "/usr", "/dev", "/proc/sys"}) {
    struct statvfs info{};
    if (::statvfs(place, &info) == 0) {
      report.expect(std::string(place) + " is mounted read-only", (info.f_flag & ST_RDONLY) != 0);
    }
  }
}

void write_system_files(Report& report, Arguments) {
  look_at_mounts(report);
  for (const char* directory : {"", "/usr", "/usr/bin", "/etc", "/bin", "/sbin", "/lib", "/root",
                                "/opt", "/mnt", "/srv", "/var", "/home", "/dev", "/sys"}) {
    const std::string path = std::string(directory) + "/carrel-probe";
    report.must_fail("create " + path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    report.must_fail("mkdir " + path + ".d", ::mkdir((path + ".d").c_str(), 0755));
  }
  for (const char* file : {"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf",
                           "/etc/machine-id", "/usr/bin/env", "/etc/ld.so.cache"}) {
    const std::string name = file;
    report.must_fail("write " + name, ::open(file, O_WRONLY | O_CLOEXEC));
    report.must_fail("truncate " + name, ::truncate(file, 0));
    report.must_fail("chmod " + name, ::chmod(file, 04777));
    report.must_fail("chown " + name, ::chown(file, ::getuid(), ::getgid()));
    report.must_fail("utimes " + name, ::utimensat(AT_FDCWD, file, nullptr, 0));
    report.must_fail("rename " + name, ::rename(file, (name + ".old").c_str()));
    report.must_fail("unlink " + name, ::unlink(file));
  }
  for (const char* place : {"/", "/usr", "/etc/ssl/certs", "/proc", "/proc/sys"}) {
    const std::string name = place;
    report.must_fail("remount " + name, ::mount(nullptr, place, nullptr, MS_REMOUNT, nullptr));
    report.must_fail("bind-remount " + name,
                     ::mount(nullptr, place, nullptr, MS_REMOUNT | MS_BIND, nullptr));
    report.must_fail("unmount " + name, ::umount2(place, MNT_DETACH));
    report.must_fail("mount over " + name, ::mount("none", place, "tmpfs", 0, nullptr));
  }
}

// Uncovers what a mount hides: a namespace of one's own, another root, the old one detached, and
// then a removal through a descriptor that was kept.
void uncover_by_namespaces(Report& report, Arguments) {
  const char* base = "/tmp";
  const int kept = ::open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  report.must_fail("unshare(NEWUSER|NEWNS)", ::unshare(CLONE_NEWUSER | CLONE_NEWNS));
  report.must_fail("unshare(NEWNS)", ::unshare(CLONE_NEWNS));
  report.must_fail("mount tmpfs", ::mount("none", base, "tmpfs", 0, nullptr));
  ::mkdir("/tmp/old", 0700);
  report.must_fail("pivot_root", ::syscall(SYS_pivot_root, "/tmp", "/tmp/old"));
  report.must_fail("umount2(old)", ::umount2("/old", MNT_DETACH));
  report.must_fail("chroot", ::chroot("."));
  for (const char* name : {"etc", "usr", "proc"}) {
    report.must_fail(std::string("unlinkat(kept, ") + name + ")",
                     ::unlinkat(kept, name, AT_REMOVEDIR));
  }
}

void make_devices(Report& report, Arguments) {
  constexpr auto kNode = "/tmp/probe-node";
  struct Kind {
    const char* name;
    mode_t mode;
    dev_t device;
  };
  const Kind kinds[] = {{"b 8:0", S_IFBLK | 0600, makedev(8, 0)},
                        {"b 254:0", S_IFBLK | 0600, makedev(254, 0)},
                        {"c 1:1", S_IFCHR | 0600, makedev(1, 1)},
                        {"c 10:229", S_IFCHR | 0600, makedev(10, 229)},
                        {"c 0:0", S_IFCHR | 0600, makedev(0, 0)}};
  for (const Kind& kind : kinds) {
    for (const char* directory : {"/tmp", "/workspace", "/dev/shm", "/run", "/dev"}) {
      const std::string path = std::string(directory) + "/probe-node";
      const std::string what = std::string(kind.name) + " in " + directory;
      report.must_fail("mknod " + what, ::mknod(path.c_str(), kind.mode, kind.device));
      report.must_fail("mknodat " + what,
                       ::mknodat(AT_FDCWD, path.c_str(), kind.mode, kind.device));
      report.must_fail("open " + what, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      ::unlink(path.c_str());
    }
  }
  constexpr unsigned kWhiteout = 4;
  ::close(::open(kNode, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  report.must_fail("rename that leaves a whiteout",
                   ::syscall(SYS_renameat2, AT_FDCWD, kNode, AT_FDCWD, "/tmp/moved", kWhiteout));
}

void list_devices(Report& report, Arguments) {
  const std::array kHarmless = {makedev(1, 3), makedev(1, 5), makedev(1, 7), makedev(1, 8),
                                makedev(1, 9), makedev(5, 0), makedev(5, 2)};
  for (const char* directory : {"/dev", "/dev/pts", "/dev/net", "/dev/dri", "/dev/mapper"}) {
    for (const std::string& name : names_in(directory)) {
      const std::string path = std::string(directory) + "/" + name;
      struct stat info{};
      if (::lstat(path.c_str(), &info) != 0 || (!S_ISCHR(info.st_mode) && !S_ISBLK(info.st_mode))) {
        continue;
      }
      bool harmless = S_ISCHR(info.st_mode) && major(info.st_rdev) == 136;
      for (const dev_t device : kHarmless) {
        harmless = harmless || (S_ISCHR(info.st_mode) && info.st_rdev == device);
      }
      report.expect(path + " is harmless", harmless);
    }
  }
  for (const char* name :
       {"mem",     "kmem",      "port",        "kmsg",        "kvm",           "fuse",
        "net/tun", "vhost-net", "vhost-vsock", "dri",         "loop-control",  "mapper/control",
        "sda",     "vda",       "nvme0n1",     "userfaultfd", "uinput",        "cuse",
        "hpet",    "console",   "tty0",        "autofs",      "btrfs-control", "snd",
        "input",   "vsock",     "hwrng",       "nvram"}) {
    const std::string path = std::string("/dev/") + name;
    report.must_fail("find " + path, ::access(path.c_str(), F_OK));
  }
}

void hard_link_system_files(Report& report, Arguments) {
  for (const char* directory : {"/workspace", "/tmp", "/dev/shm", "/home/agent"}) {
    for (const char* source : {"/usr/bin/env", "/etc/passwd"}) {
      const std::string target = std::string(directory) + "/linked";
      const std::string what = std::string(source) + " to " + target;
      report.must_fail("link " + what, ::link(source, target.c_str()));
      ::unlink(target.c_str());
      const int fd = ::open(source, O_PATH | O_CLOEXEC);
      report.must_fail("link by descriptor " + what,
                       ::linkat(fd, "", AT_FDCWD, target.c_str(), AT_EMPTY_PATH));
      ::unlink(target.c_str());
      const std::string magic = "/proc/self/fd/" + std::to_string(fd);
      report.must_fail("link by proc " + what, ::linkat(AT_FDCWD, magic.c_str(), AT_FDCWD,
                                                        target.c_str(), AT_SYMLINK_FOLLOW));
      ::unlink(target.c_str());
      report.must_fail("rename " + what, ::rename(source, target.c_str()));
      ::close(fd);
    }
  }
}

// A page of a read-only file is moved into a pipe, and the pipe is written to: the file must not
// change. The socket family that lets the kernel decrypt in place must not exist.
void write_through_page_cache(Report& report, Arguments) {
  constexpr int kAlgorithms = 38;
  report.must_fail("socket(AF_ALG)", ::socket(kAlgorithms, SOCK_SEQPACKET, 0));
  const char* file = "/usr/bin/env";
  const std::string before = read_some(file, 1U << 20);
  std::array<int, 2> pipe{};
  const int fd = ::open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    report.not_applicable("there is no file to try");
    return;
  }
  // Every buffer of the pipe was used once, so that a flag of an old buffer could still be set.
  std::array<char, 4096> block{};
  const int capacity = ::fcntl(pipe[1], F_GETPIPE_SZ);
  for (int done = 0; done + 4096 <= capacity; done += 4096) {
    if (::write(pipe[1], block.data(), block.size()) < 0) {
      break;
    }
  }
  for (int done = 0; done + 4096 <= capacity; done += 4096) {
    if (::read(pipe[0], block.data(), block.size()) < 0) {
      break;
    }
  }
  loff_t offset = 3;
  const ssize_t moved = ::splice(fd, &offset, pipe[1], nullptr, 1, 0);
  const char evil[] = "carrel-probe-was-here";
  const ssize_t written = ::write(pipe[1], evil, sizeof evil);
  struct iovec data{const_cast<char*>(evil), sizeof evil};
  const ssize_t spliced = ::vmsplice(pipe[1], &data, 1, 0);
  report.expect("the pipe took the page (" + std::to_string(moved + written + spliced) + ")",
                moved == 1);
  report.expect("the file is unchanged", read_some(file, 1U << 20) == before);
  report.must_fail("map it shared and writable", ::open(file, O_RDWR | O_CLOEXEC));
}

constexpr Probe kProbes[] = {
    {"A01_NoCanaryIsFoundInTheTree", find_canaries},
    {"A02_NoOtherRootIsReachableThroughProc", find_roots_in_proc},
    {"A03_OnlyThreeDescriptorsAreOpen", list_descriptors},
    {"A05_SystemFilesCannotBeChanged", write_system_files},
    {"A07_MountsCannotBeUncoveredByANamespace", uncover_by_namespaces},
    {"A09_DeviceNodesCannotBeMade", make_devices},
    {"A10_OnlyHarmlessDevicesExist", list_devices},
    {"A17_SystemFilesCannotBeHardLinked", hard_link_system_files},
    {"A18_ThePageCacheCannotBeWrittenThrough", write_through_page_cache},
};

}  // namespace

void note_descriptors() {
  for (int fd = 0; fd < 65536; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) {
      open_at_start.push_back(fd);
    }
  }
}

std::span<const Probe> file_probes() { return kProbes; }

}  // namespace carrel::probe
