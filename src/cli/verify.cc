#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "backends/native/network.h"
#include "base/files.h"
#include "cli/context.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/progress_line.h"
#include "cli/sandbox_spec.h"
#include "cli/table.h"
#include "storage/home.h"
#include "verify/verifier.h"

namespace carrel::cli {

namespace {

using verify::Finding;
using verify::Group;
using verify::Verdict;

constexpr int kSomethingGotThrough = 1;
constexpr int kInterrupted = 128 + SIGINT;

// Readable once somebody wants this program to end. What it has planted is removed first.
UniqueFd watch_for_interrupts() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    sigaddset(&set, signal);
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// A line for each group, as soon as it is through.
class Progress {
 public:
  explicit Progress(const Context& context) : shown_(!context.json()), line_(context) {}

  void begin(Group group) {
    finish();
    group_ = group;
    so_far_ = {};
  }

  void add(const Finding& finding) {
    so_far_.findings.push_back(finding);
    line_.show([&] {
      return std::string(name_of(finding.group)) + ": " + finding.name + " " +
             std::string(name_of(finding.verdict));
    });
  }

  void finish() {
    line_.clear();
    if (shown_ && !so_far_.findings.empty()) {
      std::string name(name_of(group_));
      std::string title(title_of(group_));
      name.resize(12, ' ');
      title.resize(22, ' ');
      print(name + title + summary(so_far_) + "\n");
    }
    so_far_ = {};
  }

 private:
  bool shown_;
  ProgressLine line_;
  Group group_ = Group::kFiles;
  verify::Report so_far_;
};

void show(const verify::Report& report) {
  std::vector<std::vector<std::string>> rows;
  for (const Verdict verdict :
       {Verdict::kNotApplicable, Verdict::kGranted, Verdict::kUnclear, Verdict::kHole}) {
    for (const Finding& finding : report.findings) {
      if (finding.verdict == verdict) {
        rows.push_back(
            {std::string(name_of(verdict)), finding.name, finding.tries + ": " + finding.detail});
      }
    }
  }
  if (!rows.empty()) {
    print("\n" + table(rows));
  }
  for (const std::string& note : report.notes) {
    print(printable(note) + "\n");
  }
  const std::string builder =
      report.builder.empty() ? report.backend : report.backend + ", " + report.builder;
  print(std::string("\n") + (report.held() ? "Everything held" : "NOT everything held") + " (" +
        printable(builder) + "): " + summary(report) + ", in " +
        std::to_string((report.duration_ms + 500) / 1000) + " s\n");
}

Status write_junit(const std::string& path, const verify::Report& report) {
  return replace_file_at(AT_FDCWD, path, to_junit(report), 0644, Lasting::kUnsynced);
}

}  // namespace

int verify_command(const Context& context) {
  auto spec = sandbox_spec(context.arguments, policy::Operation::kRun);
  if (!spec.ok()) {
    return fail(context, spec.error());
  }
  std::vector<std::string> notes;
  verify::Request request;
  request.spec = verify::attackable(std::move(spec.value()), notes);
  auto trees = open_mounts(context, request.spec);
  if (!trees.ok()) {
    return fail(context, trees.error());
  }
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  if (Status possible = native::check_network(home.value(), request.spec); !possible.ok()) {
    return fail(context, possible.error());
  }
  const UniqueFd interrupts = watch_for_interrupts();
  Progress progress(context);
  request.trees = std::move(trees.value());
  request.chosen = chosen_settings(context.arguments);
  request.find_walls = context.find_walls;
  request.interrupt = interrupts.get();
  request.on_group = [&](Group group) { progress.begin(group); };
  request.on_finding = [&](const Finding& finding) { progress.add(finding); };
  if (const auto only = context.arguments.value(OptionId::kOnly); only.has_value()) {
    request.only = verify::selection_named(*only).value_or(verify::Selection());
  }
  auto report = verify::verify(home.value(), std::move(request));
  progress.finish();
  if (!report.ok()) {
    const int status = fail(context, report.error());
    return report.error().error_number == EINTR ? kInterrupted : status;
  }
  report->notes = std::move(notes);
  if (const auto junit = context.arguments.value(OptionId::kJunit); junit.has_value()) {
    if (Status written = write_junit(std::string(*junit), report.value()); !written.ok()) {
      return fail(context, written.error());
    }
  }
  if (context.json()) {
    print(to_json(report.value()));
  } else {
    show(report.value());
  }
  return report->held() ? 0 : kSomethingGotThrough;
}

}  // namespace carrel::cli
