// A program that is linked as the shipped one is, with musl (docs/decisions/0012-musl.md), and does
// what is fragile there. tests/libc/program_test.py starts it with the name of one trial; it ends
// with 0 if that went well.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

extern "C" int __sprintf_chk(char* to, int flag, std::size_t room, const char* format, ...);

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSize = 4000;  // kept when it is freed
constexpr unsigned kPatience = 5;    // seconds until a child that waits is ended by its alarm

double nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

[[gnu::noinline]] void throw_deep(int depth) {
  if (depth == 0) {
    throw std::runtime_error("thrown on purpose");
  }
  throw_deep(depth - 1);
  std::puts("unreachable");
}

bool is_caught() {
  try {
    throw_deep(10);
  } catch (const std::runtime_error& error) {
    return std::string_view(error.what()) == "thrown on purpose";
  }
  return false;
}

int threads_that_catch() {
  std::atomic<int> caught = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        caught += is_caught() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return caught;
}

// Whether a forked process ends well; the job runs in it.
template <typename Job>
bool does_well_in_child(Job job) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kPatience);
    ::_exit(job() ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

bool exceptions() {
  const Clock::time_point start = Clock::now();
  const bool first = is_caught();
  std::fprintf(stdout, "the first exception took %.0f us\n", nanoseconds_since(start) / 1000);
  std::fflush(stdout);
  return first && threads_that_catch() == 400 &&
         does_well_in_child([] { return is_caught() && threads_that_catch() == 400; });
}

void use_blocks() {
  for (std::size_t size = 1024; size <= std::size_t{128} << 10; size *= 2) {
    ::operator delete(::operator new(size), size);
  }
}

bool forks() {
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (int number = 0; number < 3; ++number) {
    threads.emplace_back([&] {
      while (!over) {
        use_blocks();
      }
    });
  }
  int hung = 0;
  for (int i = 0; i < 400 && hung == 0; ++i) {
    hung += does_well_in_child([] {
      use_blocks();
      return true;
    })
                ? 0
                : 1;
  }
  over = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  return hung == 0;
}

// 0 means: nobody noticed.
bool double_delete() {
  void* const block = ::operator new(kSize);
  void* volatile again = block;
  ::operator delete(block, kSize);
  ::operator delete(again, kSize);
  return ::operator new(kSize) == ::operator new(kSize);
}

bool unsized_double_delete() {
  void* const block = ::operator new(kSize);
  void* volatile again = block;
  ::operator delete(block);
  ::operator delete(again);
  return true;
}

bool write_after_delete() {
  auto* const bytes = static_cast<unsigned char*>(::operator new(kSize));
  unsigned char* volatile still = bytes;
  ::operator delete(bytes, kSize);
  unsigned char* const wrong = still;
  std::memset(wrong, 0x41, 16);
  ::operator delete(::operator new(kSize), kSize);
  return true;
}

double measure(int threads, std::size_t size) {
  constexpr int kRounds = 100'000;
  std::vector<std::thread> all;
  const Clock::time_point start = Clock::now();
  for (int number = 0; number < threads; ++number) {
    all.emplace_back([size] {
      for (int i = 0; i < kRounds; ++i) {
        ::operator delete(::operator new(size), size);
      }
    });
  }
  for (std::thread& thread : all) {
    thread.join();
  }
  return nanoseconds_since(start) / kRounds;
}

// The best of many, since others use this machine. Read by a person: see decision 12.
bool speed() {
  for (const int threads : {1, 2}) {
    for (const std::size_t size : {std::size_t{100}, kSize}) {
      double best = measure(threads, size);
      for (int i = 0; i < 50; ++i) {
        best = std::min(best, measure(threads, size));
      }
      std::fprintf(stdout, "%d threads, %zu bytes: %.1f ns for new and delete\n", threads, size,
                   best);
    }
  }
  return true;
}

// A room of -1 is one that the compiler does not know, as in OpenSSL's library.
bool checked_print() {
  char text[32] = {};
  volatile std::size_t room = static_cast<std::size_t>(-1);
  return __sprintf_chk(text, 1, room, "%d %s", 7, "words") == 7 &&
         std::string_view(text) == "7 words";
}

struct Trial {
  const char* name;
  bool (*run)();
};
constexpr Trial kTrials[] = {{"checked_print", checked_print},
                             {"exceptions", exceptions},
                             {"forks", forks},
                             {"double_delete", double_delete},
                             {"unsized_double_delete", unsized_double_delete},
                             {"write_after_delete", write_after_delete},
                             {"speed", speed}};

}  // namespace

int main(int count, char** words) {
  for (const Trial& trial : kTrials) {
    if (count == 2 && std::strcmp(words[1], trial.name) == 0) {
      return trial.run() ? 0 : 1;
    }
  }
  return 2;
}
