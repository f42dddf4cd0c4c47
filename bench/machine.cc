#include "bench/machine.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <sstream>
#include <thread>

#include "base/files.h"

namespace carrel::bench {

namespace {

constexpr double kTooBusy = 0.1;

std::string text_of(const std::string& path) {
  auto text = read_file_at(AT_FDCWD, path);
  return text.ok() ? text.value() : std::string();
}

struct Times {
  double busy = 0;
  double all = 0;
};

// The first line of /proc/stat: user nice system idle iowait irq softirq steal.
Times processor_times() {
  std::istringstream words(text_of("/proc/stat"));
  std::string name;
  words >> name;
  Times times;
  double value = 0;
  for (int field = 0; field < 8 && words >> value; ++field) {
    times.all += value;
    times.busy += field == 3 || field == 4 ? 0 : value;
  }
  return times;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string version_of(const std::string& program) {
  auto text = output_of(plain_launch({program, "--version"}));
  return text.ok() ? first_line(text.value()) : "unknown version";
}

std::string processor_name() {
  const std::string text = text_of("/proc/cpuinfo");
  const std::size_t at = text.find("model name");
  const std::size_t colon = at == std::string::npos ? at : text.find(": ", at);
  return colon == std::string::npos ? "unknown processor" : first_line(text.substr(colon + 2));
}

}  // namespace

double others_load() {
  const Times before = processor_times();
  ::usleep(500'000);
  const Times after = processor_times();
  return after.all > before.all ? (after.busy - before.busy) / (after.all - before.all) : 0;
}

void note_load(const char* when, Report& report) {
  const double load = others_load();
  const std::string percent = std::to_string(std::lround(load * 100)) + "%";
  const std::string average = text_of("/proc/loadavg");
  report.note(std::string(when) + ": load average " + average.substr(0, average.find(' ')) +
              ", others use " + percent + " of the processors");
  if (load > kTooBusy) {
    report.warn("the machine is busy (" + std::string(when) + ", others use " + percent +
                " of its processors): read the ratios with care, and the times not at all");
  }
}

void note_machine(const Setup& setup, Report& report) {
  utsname name{};
  ::uname(&name);
  report.note("machine: " + std::to_string(std::thread::hardware_concurrency()) + " x " +
              processor_name() + ", Linux " + name.release);
  const std::string governor =
      first_line(text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  report.note("frequency governor: " +
              (governor.empty() ? "none visible (a virtual machine?)" : governor));
  if (!governor.empty() && governor != "performance") {
    report.warn("the frequency governor is '" + governor +
                "': 'performance' gives steadier numbers");
  }
  std::string peers = "peers: ";
  for (const std::string& program : {setup.bwrap, setup.runc, setup.docker}) {
    peers += program.empty() ? "" : version_of(program) + "; ";
  }
  report.note(peers + version_of("/bin/bash"));
  if (!setup.has_docker()) {
    report.leave_out("docker", setup.why_no_docker);
  }
}

}  // namespace carrel::bench
