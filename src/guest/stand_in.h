#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "guest/failure.h"
#include "protocol/boot.h"
#include "protocol/frame.h"
#include "protocol/trunk.h"

// What the first process of a machine, or of a container that only a line leads to, does in the
// host's place for the guest that it started.
namespace carrel::guest {

// The first words between the maker and the guest. The maker's descriptors cannot come there; in
// their place come those that are known here, beside the headers of the two frames that have some.
class Opening {
 public:
  int trees[protocol::kMaxTrees] = {};
  std::size_t tree_count = 0;
  int listener = -1;

  static long write(void* self, int fd, const char* data, std::size_t size) {
    return static_cast<Opening*>(self)->take(fd, data, size);
  }

 private:
  long take(int fd, const char* data, std::size_t size);
  bool send_header(int fd);

  static constexpr int kWithDescriptors = 2;  // the plan and the boot message
  int frames_ = 0;
  std::size_t left_ = 0;  // of the payload of the last one
  unsigned char head_[protocol::kHeaderSize] = {};
  std::size_t have_ = 0;
};

// What the host says about a sandbox before its trunk begins: the size in two bytes, and text.
// The text's size, or 0.
std::size_t take_terms(int line, std::span<char> out);
// All of it, also where the descriptor does not block.
bool write_line(int line, std::string_view text);
bool read_line(int line, void* out, std::size_t size);

// A socket that the guest listens at, and that only this process can name: a file of a machine's,
// or a name in a network that nobody else is in. -1: there is none.
enum class SocketPlace { kFile, kNetwork };
int bind_socket(SocketPlace place);
// A connection to the guest; -1: it does not listen yet.
int connect_to_guest();
// The same for a trunk.
int call_guest(void* unused);

int watch_children();
// Carries until the guest has ended and what it said is told, or the line is at its end.
// `switchboard` is where the connections of its network come out, or -1.
void carry_guest(protocol::Trunk& trunk, long guest, int signals, int switchboard);

// A failure before there is a guest is told in its place: on its end of the stream.
void tell_failure(protocol::Trunk& trunk, int stream, Failure& failure);

}  // namespace carrel::guest
