#include "support/patience.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace carrel::test {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLeastDeadline = std::chrono::seconds(20);
constexpr milliseconds kBetweenQuestions(20);
constexpr double kMostBusy = 30;

double factor_from(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 1 : std::clamp(std::strtod(text, nullptr), 1.0, 100.0);
}

// The tasks that run or wait for a processor or a disk, for each processor.
double load_per_processor() {
  std::ifstream file("/proc/loadavg");
  double minute = 0;
  double longer = 0;
  double now = 0;  // the part before the slash of "3/98", with this one
  file >> minute >> longer >> longer >> now;
  return std::max(minute, now - 1) /
         static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

// The part of the last ten seconds in which every task waited for this resource.
double stalled(const std::string& resource) {
  std::ifstream file("/proc/pressure/" + resource);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("full avg10=")) {
      return std::strtod(line.c_str() + std::string("full avg10=").size(), nullptr) / 100;
    }
  }
  return 0;
}

// The part of this machine's time since it was started that its hypervisor gave to others.
double stolen() {
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  double all = 0;
  double steal = 0;
  double ticks = 0;
  for (int column = 0; column < 8 && file >> ticks; ++column) {
    all += ticks;
    steal = ticks;
  }
  return all > 0 ? steal / all : 0;
}

double slower_by(double lost) { return 1 / (1 - std::clamp(lost, 0.0, 0.9)); }

}  // namespace

double busyness() {
  const double slower = (1 + load_per_processor()) * slower_by(stolen()) *
                        slower_by(std::max(stalled("io"), stalled("memory")));
  return std::min(slower, kMostBusy);
}

double slowness() {
  return busyness() * factor_from("CARREL_PATIENCE") * factor_from("CARREL_TEST_SLOWNESS");
}

milliseconds patient(milliseconds usual) {
  return std::chrono::duration_cast<milliseconds>(usual * slowness());
}

Deadline::Deadline(milliseconds usual)
    : usual_(usual.count() == 0 ? usual : std::max(usual, kLeastDeadline)) {}

bool Deadline::is_over() const {
  const auto waited = Clock::now() - begun_;
  return waited >= usual_ && waited >= patient(usual_);
}

bool eventually(milliseconds patience, const std::function<bool()>& question) {
  const Deadline deadline(patience);
  while (!question()) {
    if (deadline.is_over()) {
      return false;
    }
    std::this_thread::sleep_for(kBetweenQuestions);
  }
  return true;
}

bool stays_false_for(milliseconds length, const std::function<bool()>& question) {
  const auto end = std::chrono::steady_clock::now() + length;
  while (!question()) {
    if (std::chrono::steady_clock::now() >= end) {
      return true;
    }
    std::this_thread::sleep_for(kBetweenQuestions);
  }
  return false;
}

void ask_while(const std::function<bool()>& lasts, const std::function<void()>& question) {
  while (lasts()) {
    question();
    std::this_thread::sleep_for(kBetweenQuestions);
  }
}

}  // namespace carrel::test
