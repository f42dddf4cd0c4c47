#include "guest/wants.h"

#include <string_view>

#include "guest/proc.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

constexpr std::uint64_t kSoonUs = 1000;

// The word with that number of a line, the first is 0.
std::string_view word(std::string_view line, std::size_t number) {
  for (;; --number) {
    const std::size_t space = line.find(' ');
    if (number == 0 || space == std::string_view::npos) {
      return number == 0 ? line.substr(0, space) : std::string_view();
    }
    line.remove_prefix(space + 1);
  }
}

// How many packets had no way out of the sandbox's network so far; 0 where the kernel does not say.
std::uint64_t count_unrouted() {
  constexpr std::size_t kSize = 2048;  // they are in the first two lines
  static char text[kSize];
  const std::size_t size = read_proc("/proc/self/net/snmp", text, kSize);
  const std::string_view all(text, size);
  const std::size_t first_end = all.find('\n');
  if (first_end == std::string_view::npos) {
    return 0;
  }
  const std::string_view names = all.substr(0, first_end);
  std::string_view rest = all;
  rest.remove_prefix(first_end + 1);
  const std::string_view numbers = rest.substr(0, rest.find('\n'));
  for (std::size_t i = 1; !word(names, i).empty(); ++i) {
    if (word(names, i) == "OutNoRoutes") {
      std::uint64_t count = 0;
      return to_number(word(numbers, i), count) ? count : 0;
    }
  }
  return 0;
}

void count_again(Guest& guest) {
  guest.unrouted = count_unrouted();
  guest.unrouted_unsure = false;
  guest.forget_us = 0;
}

}  // namespace

bool wanted_a_network(Guest& guest) {
  const std::uint64_t before = guest.unrouted;
  const bool certain = !guest.unrouted_unsure;
  count_again(guest);
  return certain && guest.unrouted > before;
}

void forget_wants_soon(Guest& guest) {
  if (!guest.one_shot()) {
    guest.unrouted_unsure = true;
    guest.forget_us = now_us() + kSoonUs;
  }
}

void forget_wants(Guest& guest, std::uint64_t now) {
  if (guest.forget_us == 0 || now < guest.forget_us) {
    return;
  }
  for (const Command& command : guest.commands) {
    if (command.state == CommandState::kRunning) {
      guest.forget_us = 0;  // until it has ended
      return;
    }
  }
  count_again(guest);
}

}  // namespace carrel::guest
