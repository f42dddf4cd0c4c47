// The measuring part of the benchmark. run.sh prepares what it needs, starts it and cleans up.

#include <pwd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "bench/egress_peer.h"
#include "bench/machine.h"
#include "bench/sections.h"

namespace carrel::bench {

namespace {

struct Part {
  const char* name;
  void (*measure)(const Setup&, Effort, Report&);
};

constexpr Part kParts[] = {
    {"one-shot", measure_one_shots},
    {"commands", measure_commands},
    {"containers", measure_containers},
    {"daemon", measure_daemon},
    {"rate", measure_rates},
    {"memory", measure_memory},
    {"files", measure_files},
    {"instructions", measure_instructions},
    {"egress", measure_egress},
    {"flows", measure_flows},
    // The last: it enters a mount namespace.
    {"workspaces", measure_workspaces},
};

struct Options {
  Setup setup;
  std::string user;
  Effort effort = Effort::kFull;
  bool json = false;
  std::string only;  // the name of a part; empty: all
};

int complain(const std::string& text) {
  std::fprintf(stderr, "carrel_bench: %s\n", text.c_str());
  return 2;
}

// False for an option that there is not.
bool take(Options& options, std::string_view name, std::string value) {
  const std::map<std::string_view, std::string*> places = {
      {"--carrel", &options.setup.carrel},
      {"--directory", &options.setup.directory},
      {"--groups", &options.setup.groups},
      {"--user", &options.user},
      {"--bundles", &options.setup.bundles},
      {"--docker-socket", &options.setup.docker_socket},
      {"--no-docker", &options.setup.why_no_docker},
      {"--only", &options.only},
  };
  const auto place = places.find(name);
  if (place == places.end()) {
    return false;
  }
  *place->second = std::move(value);
  return true;
}

int parse(int count, char** words, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--quick") {
      options.effort = Effort::kQuick;
    } else if (word == "--json") {
      options.json = true;
    } else if (i + 1 >= count || !take(options, word, words[i + 1])) {
      return complain("what is '" + std::string(word) + "'? bench/run.sh starts this program");
    } else {
      ++i;
    }
  }
  Setup& setup = options.setup;
  const passwd* user = ::getpwnam(options.user.c_str());
  if (user == nullptr || setup.carrel.empty() || setup.directory.empty()) {
    return complain("needs --carrel, --directory and --user; bench/run.sh gives them");
  }
  setup.user = User{user->pw_uid, user->pw_gid};
  setup.bwrap = find_program("bwrap");
  setup.runc = setup.bundles.empty() ? "" : find_program("runc");
  setup.docker = find_program("docker");
  return 0;
}

int run(const Options& options) {
  Report report;
  note_machine(options.setup, report);
  note_load("before", report);
  int ran = 0;
  for (const Part& part : kParts) {
    if (options.only.empty() || options.only == part.name) {
      std::fprintf(stderr, "measuring: %s\n", part.name);
      part.measure(options.setup, options.effort, report);
      ++ran;
    }
  }
  if (ran == 0) {
    return complain("there is no part '" + options.only + "'");
  }
  note_load("after", report);
  if (options.effort == Effort::kQuick) {
    report.warn("a quick run: too few samples for anything but a look");
  }
  const std::string text = options.json ? report.to_json() : report.to_text();
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

}  // namespace carrel::bench

int main(int count, char** words) {
  // A shell on a pipe that ended is an error of its row, and not the end of the run.
  (void)std::signal(SIGPIPE, SIG_IGN);
  if (count > 1 && std::string_view(words[1]) == "--egress-client") {
    return carrel::bench::be_egress_client(count - 2, words + 2);
  }
  carrel::bench::Options options;
  const int wrong = carrel::bench::parse(count, words, options);
  return wrong != 0 ? wrong : carrel::bench::run(options);
}
