#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "manager/life.h"
#include "manager/usage.h"
#include "storage/home.h"
#include "storage/state.h"

// Sandboxes and what they use, again and again.
namespace carrel::cli {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kFirstMs = 250;  // between the two looks that a share of a processor needs
constexpr int kEveryMs = 1000;

volatile std::sig_atomic_t g_over = 0;  // NOLINT: a handler has nothing else

void on_signal(int /*number*/) { g_over = 1; }

struct Line {
  storage::SandboxRow row;
  manager::Life life;
  kernel::CgroupUsage usage;
  std::optional<double> cores;  // that it had since the last look
};

class Top {
 public:
  explicit Top(const storage::Home& home) : home_(home) {}

  Result<std::vector<Line>> look() {
    CARREL_ASSIGN(storage::State state, storage::State::open(home_));
    CARREL_ASSIGN(std::vector<storage::SandboxRow> rows, state.list(storage::State::Which::kLive));
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    std::map<std::string, std::uint64_t> used;
    std::vector<Line> lines;
    for (storage::SandboxRow& row : rows) {
      Line line{std::move(row), {}, {}, std::nullopt};
      line.life = manager::life_of(home_, line.row);
      if (auto record = storage::read_record(home_, line.row.id); record.ok()) {
        if (auto usage = manager::usage_of(home_, record.value()); usage.ok()) {
          line.usage = usage.value();
        }
      }
      if (line.usage.cpu_usec.has_value()) {
        const auto before = used_.find(line.row.id);
        used[line.row.id] = *line.usage.cpu_usec;
        if (before != used_.end() && *line.usage.cpu_usec >= before->second && seconds > 0) {
          line.cores = static_cast<double>(*line.usage.cpu_usec - before->second) / 1e6 / seconds;
        }
      }
      lines.push_back(std::move(line));
    }
    used_ = std::move(used);
    last_ = now;
    std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
      return std::pair(-a.cores.value_or(0), a.row.id) < std::pair(-b.cores.value_or(0), b.row.id);
    });
    return lines;
  }

 private:
  const storage::Home& home_;
  Clock::time_point last_ = Clock::now();
  std::map<std::string, std::uint64_t> used_;  // at the last look, in microseconds
};

std::string percent(const std::optional<double>& cores) {
  return cores.has_value() ? std::to_string(static_cast<int>(*cores * 100 + 0.5)) + "%" : "-";
}

std::string text_of(const std::vector<Line>& lines, std::size_t most) {
  std::vector<std::vector<std::string>> cells = {
      {"ID", "NAME", "STATE", "CPU", "MEMORY", "PROCESSES", "AGE", "REASON"}};
  const std::int64_t now = storage::wall_clock_ms();
  for (const Line& line : lines) {
    if (cells.size() > most) {
      break;
    }
    const auto& memory = line.usage.memory_bytes;
    cells.push_back({line.row.id, line.row.name.empty() ? "-" : line.row.name, line.life.state,
                     percent(line.cores),
                     memory.has_value() ? std::to_string(*memory >> 20) + " MiB" : "-",
                     line.usage.pids.has_value() ? std::to_string(*line.usage.pids) : "-",
                     age(now - line.row.created_ms), line.life.reason});
  }
  return table(cells);
}

std::string json_of(const std::vector<Line>& lines) {
  Json list = Json::array();
  const auto number = [](const std::optional<std::uint64_t>& value) {
    return value.has_value() ? Json(*value) : Json(nullptr);
  };
  for (const Line& line : lines) {
    list.push_back({{"id", line.row.id},
                    {"name", line.row.name},
                    {"state", line.life.state},
                    {"reason", line.life.reason},
                    {"created_ms", line.row.created_ms},
                    {"cores", line.cores.has_value() ? Json(*line.cores) : Json(nullptr)},
                    {"memory_bytes", number(line.usage.memory_bytes)},
                    {"pids", number(line.usage.pids)},
                    {"cpu_usec", number(line.usage.cpu_usec)}});
  }
  return Json{{"sandboxes", list}}.dump() + "\n";
}

// How many lines the terminal has room for.
std::size_t height() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 ? size.ws_row - 2U : 22U;
}

int watch(const Context& context, Top& top) {
  struct sigaction action{};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    (void)::sigaction(number, &action, nullptr);
  }
  print("\033[?1049h\033[?25l");
  Status looked;
  int wait = 0;
  while (g_over == 0 && looked.ok()) {
    auto lines = top.look();
    if (!lines.ok()) {
      looked = lines.error();
      break;
    }
    print("\033[H\033[2J" + text_of(lines.value(), height()));
    wait = wait == 0 ? kFirstMs : kEveryMs;
    ::poll(nullptr, 0, wait);
  }
  print("\033[?25h\033[?1049l");
  return looked.ok() ? 0 : fail(context, looked.error());
}

}  // namespace

int top_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  Top top(home.value());
  if (!context.json() && !context.arguments.has(OptionId::kOnce) && ::isatty(STDOUT_FILENO) != 0) {
    return watch(context, top);
  }
  (void)top.look();
  ::poll(nullptr, 0, kFirstMs);
  auto lines = top.look();
  if (!lines.ok()) {
    return fail(context, lines.error());
  }
  print(context.json() ? json_of(lines.value()) : text_of(lines.value(), lines->size()));
  return 0;
}

}  // namespace carrel::cli
