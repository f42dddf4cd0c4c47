#include "policy/tasks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/native/network.h"
#include "backends/native/one_shot.h"
#include "base/files.h"
#include "base/utf8.h"
#include "cli/context.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/sandbox_spec.h"
#include "cli/table.h"
#include "manager/once.h"
#include "manager/walls.h"
#include "manager/workspace_target.h"
#include "policy/config.h"
#include "sandbox/capture.h"
#include "storage/home.h"

// Several commands side by side, each in a sandbox of its own.
namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostAtOnce = 16;

struct Running {
  std::string name;
  native::OneShot job;
  manager::Chosen chosen = {};
  UniqueFd input = {};
  Result<sandbox::ExecResult> result = Error{};
};

Result<UniqueFd> input_of(const std::string& text) {
  UniqueFd file(::memfd_create("stdin", MFD_CLOEXEC));
  if (!file.valid()) {
    return system_error("keep the task's input");
  }
  CARREL_TRY(write_all(file.get(), text));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) {
    return system_error("keep the task's input");
  }
  return file;
}

// Everything that can be refused is, before the first of them runs.
Result<std::vector<Running>> prepare(const Context& context, const storage::Home& home,
                                     std::vector<policy::Task> tasks) {
  std::vector<Running> running;
  for (policy::Task& task : tasks) {
    const auto named = [&](Error error) {
      error.message = "task '" + task.name + "': " + error.message;
      return error;
    };
    Running one;
    one.name = task.name;
    if (Status good = finish_spec(task.spec); !good.ok()) {
      return named(good.error());
    }
    if (Status possible = native::check_network(home, task.spec); !possible.ok()) {
      return named(possible.error());
    }
    auto trees = open_mounts(context, task.spec);
    if (!trees.ok()) {
      return named(trees.error());
    }
    const policy::Spec usual;
    one.chosen.workdir =
        task.spec.workdir == usual.workdir ? manager::Choice::kDefault : manager::Choice::kGiven;
    one.chosen.user =
        task.spec.user == usual.user ? manager::Choice::kDefault : manager::Choice::kGiven;
    one.job.spec = std::move(task.spec);
    one.job.trees = std::move(trees.value());
    one.job.command.arguments = std::move(task.arguments);
    if (!task.input.empty()) {
      CARREL_ASSIGN(one.input, input_of(task.input));
    }
    running.push_back(std::move(one));
  }
  return running;
}

Result<sandbox::ExecResult> run_one(const storage::Home& home, native::OneShots& shots,
                                    Running& one) {
  manager::OnceHeld held;
  CARREL_TRY(manager::prepare_once(home, one.chosen, manager::finish_restore_apart, one.job, held));
  sandbox::Capture output;
  sandbox::Capture error;
  sandbox::CommandIo io;
  io.input = one.input.get();
  io.output = [&](protocol::Stream stream, std::string_view data) -> Status {
    (stream == protocol::Stream::kStdout ? output : error).add(data);
    return {};
  };
  CARREL_ASSIGN(sandbox::ExecResult result, shots.run(one.job, io));
  result.standard_output = output.text();
  result.standard_error = error.text();
  result.truncated = output.cut() || error.cut();
  return result;
}

void run_all(storage::Home& home, std::size_t at_once, std::vector<Running>& tasks) {
  native::OneShots shots(home, manager::find_walls);
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < std::min(at_once, tasks.size()); ++i) {
    workers.emplace_back([&] {
      for (std::size_t at = next++; at < tasks.size(); at = next++) {
        tasks[at].result = run_one(home, shots, tasks[at]);
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
}

Json task_json(const Running& task) {
  Json object{{"name", task.name}};
  if (task.result.ok()) {
    object.update(Json::parse(to_json(task.result.value())));
    return object;
  }
  const Error& error = task.result.error();
  object["error"] = {{"code", code_name(error.code)},
                     {"message", replace_invalid_utf8(error.to_string())},
                     {"hint", replace_invalid_utf8(error.hint)}};
  object["exit_code"] = kCarrelFailed;
  object["success"] = false;
  return object;
}

// Each line with the task's name before it.
void show_output(const Running& task, const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string line(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    for (std::size_t tab = line.find('\t'); tab != std::string::npos; tab = line.find('\t')) {
      line.replace(tab, 1, "    ");
    }
    print(task.name + " | " + printable(line) + "\n");
  }
}

void show(const std::vector<Running>& tasks) {
  std::vector<std::vector<std::string>> lines = {{"TASK", "EXIT", "TIME", "REASON"}};
  for (const Running& task : tasks) {
    if (!task.result.ok()) {
      lines.push_back(
          {task.name, std::to_string(kCarrelFailed), "-", task.result.error().to_string()});
      continue;
    }
    const sandbox::ExecResult& result = task.result.value();
    show_output(task, result.standard_output);
    show_output(task, result.standard_error);
    lines.push_back({task.name, std::to_string(result.exit_code),
                     std::to_string(result.duration_ms) + " ms",
                     result.reason.empty() ? "-" : result.reason});
  }
  print(table(lines));
}

}  // namespace

int tasks_command(const Context& context) {
  const std::string path(context.arguments.operands.front());
  auto text = read_file_at(AT_FDCWD, path, policy::kLargestConfig);
  auto file =
      text.ok() ? policy::parse_tasks(text.value(), path) : Result<policy::TaskFile>(text.error());
  if (!file.ok()) {
    return fail(context, file.error());
  }
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  const std::size_t at_once = file->at_once == 0 ? kMostAtOnce : file->at_once;
  auto tasks = prepare(context, home.value(), std::move(file->tasks));
  if (!tasks.ok()) {
    return fail(context, tasks.error());
  }
  run_all(home.value(), at_once, tasks.value());
  const auto failed = [](const Running& task) { return !task.result.ok(); };
  const bool success = std::all_of(tasks->begin(), tasks->end(), [](const Running& task) {
    return task.result.ok() && task.result.value().success();
  });
  if (context.json()) {
    Json list = Json::array();
    for (const Running& task : tasks.value()) {
      list.push_back(task_json(task));
    }
    print(Json{{"success", success}, {"tasks", list}}.dump() + "\n");
  } else {
    show(tasks.value());
  }
  if (std::any_of(tasks->begin(), tasks->end(), failed)) {
    return kCarrelFailed;
  }
  return success ? 0 : 1;
}

}  // namespace carrel::cli
