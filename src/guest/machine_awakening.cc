// How a machine's first process waits for the host's first words: see protocol/awakening.h.
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "guest/machine.h"
#include "guest/runtime.h"
#include "guest/stand_in.h"
#include "protocol/awakening.h"

namespace carrel::guest {

namespace {

constexpr char kRoot[] = "/dev/vda";

// CRITICAL: the kernel looked for partitions on the root when it found it. What it remembers of
// that would be taken for a part of another root.
bool forget_blocks() {
  int root = open(kRoot, O_RDONLY | O_CLOEXEC);
  const bool forgot = root >= 0 && ioctl(root, BLKFLSBUF, 0) == 0;
  if (root >= 0) {
    close(root);
  }
  return forgot;
}

// CRITICAL: before anything else runs: machines that go on from one snapshot have one state of the
// kernel's generator. What it gives from here on depends on the seed.
bool reseed(const protocol::Awakening& words) {
  struct {  // the kernel's rand_pool_info
    int entropy_bits;
    int size;
    unsigned char seed[protocol::kAwakeningSeed];
  } given{};
  static_assert(offsetof(struct rand_pool_info, buf) == offsetof(decltype(given), seed));
  given.entropy_bits = 8 * static_cast<int>(protocol::kAwakeningSeed);
  given.size = static_cast<int>(protocol::kAwakeningSeed);
  memcpy(given.seed, words.seed, sizeof given.seed);
  int generator = open("/dev/urandom", O_RDWR | O_CLOEXEC);
  const bool done = generator >= 0 && ioctl(generator, RNDADDENTROPY, &given) == 0 &&
                    ioctl(generator, RNDRESEEDCRNG, 0) == 0;
  if (generator >= 0) {
    close(generator);
  }
  explicit_bzero(&given, sizeof given);
  return done;
}

bool set_clock(std::uint64_t wall_ns) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  struct timespec now{};
  now.tv_sec = static_cast<time_t>(wall_ns / kSecond);
  now.tv_nsec = static_cast<long>(wall_ns % kSecond);
  return clock_settime(CLOCK_REALTIME, &now) == 0;
}

// Another program in its place, though the same one: with a stack, a canary and addresses of its
// own. What this one has is the same in every machine of a snapshot.
[[noreturn]] void begin_anew(int line, Prepared prepared) {
  char name[] = "/init";
  char machine[] = "machine";
  static_assert(sizeof machine == sizeof kMachineWord);
  char how[16] = {};
  const char* const word = prepared == Prepared::kYes ? kAwakeWord : kUnpreparedWord;
  memcpy(how, word, strlen(word));
  char* words[] = {name, machine, how, nullptr};
  char* none[] = {nullptr};
  if (line == kMachineLine ? fcntl(line, F_SETFD, 0) == 0
                           : dup2(line, kMachineLine) == kMachineLine) {
    execve(name, words, none);
  }
  power_off();
}

}  // namespace

void await_words(int line, Prepared prepared) {
  unsigned char data[protocol::kAwakeningSize];
  protocol::Awakening words;
  while (read_line(line, data, sizeof data) && protocol::parse_awakening(data, words)) {
    if (words.kind == protocol::AwakeningKind::kAsk) {
      if (!forget_blocks() || !write_line(line, protocol::kStillWaiting)) {
        break;
      }
      continue;
    }
    const bool apart = set_clock(words.wall_ns) && reseed(words);
    explicit_bzero(data, sizeof data);
    explicit_bzero(&words, sizeof words);
    if (!apart || !forget_blocks() || !write_line(line, protocol::kAwoken)) {
      break;
    }
    begin_anew(line, prepared);
  }
  power_off();
}

}  // namespace carrel::guest
