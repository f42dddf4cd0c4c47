#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <cstdint>

namespace carrel::guest {

enum class Source : std::uint32_t {
  kListener = 1,
  kClient,
  kSignals,
  kSpawner,
  kOutput,        // index: command * 2 + stream
  kInput,         // index: command
  kReport,        // index: command
  kShellReport,   // index: shell
  kShellControl,  // index: shell
  kTimer,
};

// epoll with a typed source and an index for each descriptor.
class Poller {
 public:
  bool open() {
    fd_ = epoll_create1(EPOLL_CLOEXEC);
    return fd_ >= 0;
  }
  void add(int fd, std::uint32_t events, Source source, std::uint32_t index) const {
    struct epoll_event event = make(events, source, index);
    epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event);
  }
  void change(int fd, std::uint32_t events, Source source, std::uint32_t index) const {
    struct epoll_event event = make(events, source, index);
    epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &event);
  }
  // A descriptor must be removed before it is closed: another process may still hold the file.
  void remove(int fd) const { epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr); }
  // Ends the watching and closes; the descriptor becomes -1. One that is not open is fine.
  void close(int& fd) const {
    if (fd >= 0) {
      remove(fd);
      ::close(fd);
      fd = -1;
    }
  }
  int wait(struct epoll_event* events, int count, int timeout_ms) const {
    return epoll_wait(fd_, events, count, timeout_ms);
  }

  static Source source(const struct epoll_event& event) {
    return static_cast<Source>(event.data.u64 >> 32);
  }
  static std::uint32_t index(const struct epoll_event& event) {
    return static_cast<std::uint32_t>(event.data.u64);
  }

 private:
  static struct epoll_event make(std::uint32_t events, Source source, std::uint32_t index) {
    struct epoll_event event{};
    event.events = events;
    event.data.u64 = static_cast<std::uint64_t>(source) << 32 | index;
    return event;
  }
  int fd_ = -1;
};

}  // namespace carrel::guest
