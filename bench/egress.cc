#include <fcntl.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>

#include "bench/egress_peer.h"
#include "bench/sections.h"

namespace carrel::bench {

namespace {

constexpr char kAddress[] = "11.1.1.1";  // public as far as Carrel knows, and only in here
constexpr char kHome[] = "egress";
constexpr Budget kDownload{Budget::Better::kLess, 2, 1.3};
constexpr Budget kRequests{Budget::Better::kLess, 3, 2};
constexpr Budget kConnects{Budget::Better::kLess, 4, 2};
constexpr Budget kOneShot{Budget::Better::kLess, 1.3, 1.1};

// A network of this part's own, as long as the object lives. Threads and programs that are started
// meanwhile are in it.
class OwnNetwork {
 public:
  OwnNetwork() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {}
  ~OwnNetwork() { (void)::setns(before_.get(), CLONE_NEWNET); }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;

  [[nodiscard]] Status enter() const {
    if (!before_.valid() || ::unshare(CLONE_NEWNET) != 0) {
      return system_error("make a network for the benchmark");
    }
    const std::string ip = find_program("ip");
    if (ip.empty()) {
      return Error{Code::kUnsupported, 0, "iproute2 is missing", {}};
    }
    CARREL_TRY(output_of(plain_launch({ip, "link", "set", "lo", "up"})));
    CARREL_TRY(
        output_of(plain_launch({ip, "addr", "add", std::string(kAddress) + "/32", "dev", "lo"})));
    return {};
  }

 private:
  UniqueFd before_;
};

// The client prints how long its work took, without its own start.
Contender working(std::string name, const Launch& launch) {
  return Contender{std::move(name), [launch]() -> Result<double> {
                     CARREL_ASSIGN(const std::string microseconds, output_of(launch));
                     return std::strtod(microseconds.c_str(), nullptr) / 1000;
                   }};
}

struct Work {
  const char* section;        // what is done, with how much of it
  const char* quick_section;  // and with less
  const char* what;
  const char* full;  // how much of it
  const char* quick;
  Budget budget;
};

constexpr Work kWork[] = {
    {"1 GiB from a server", "256 MiB from a server", "download", "1024", "256", kDownload},
    {"5,000 short requests on one connection", "1,000 short requests on one connection", "requests",
     "5000", "1000", kRequests},
    {"500 connections, one short request each", "100 connections, one short request each",
     "connects", "500", "100", kConnects},
};

void measure_work(const Setup& setup, Effort effort, Report& report, const EgressServer& server,
                  const std::string& program) {
  const std::string policy =
      "allow=tcp:" + std::string(kAddress) + ":" + std::to_string(server.port());
  auto box = output_of(carrel_launch(setup, Who::kRoot, kHome,
                                     {"create", "--network", policy, "--cpus", "2", "--mount",
                                      setup.directory + "/client:/client"}));
  if (!box.ok()) {
    report.leave_out("egress", box.error().to_string());
    return;
  }
  // The client may use as much of the processors in there as outside.
  for (const Work& work : kWork) {
    const std::vector<std::string> words = {"--egress-client", work.what, kAddress,
                                            std::to_string(server.port()),
                                            effort == Effort::kFull ? work.full : work.quick};
    std::vector<std::string> direct = {program};
    std::vector<std::string> inside = {"exec", box.value(), "--", "/client/carrel_bench"};
    direct.insert(direct.end(), words.begin(), words.end());
    inside.insert(inside.end(), words.begin(), words.end());
    std::vector<Contender> contenders;
    contenders.push_back(working("nothing between", plain_launch(direct)));
    contenders.push_back(
        working("out of a sandbox", carrel_launch(setup, Who::kRoot, kHome, inside)));
    contenders.back().peer = "nothing between";
    contenders.back().budget = work.budget;
    interleave(report, effort == Effort::kFull ? work.section : work.quick_section, "ms",
               std::move(contenders), effort == Effort::kFull ? Rounds{1, 21} : Rounds{1, 5});
  }
  if (Status removed = remove_box(setup, Who::kRoot, kHome, box.value()); !removed.ok()) {
    report.warn("a sandbox of the benchmark was not removed: " + removed.error().to_string());
  }
}

void measure_start(const Setup& setup, Effort effort, Report& report, const EgressServer& server) {
  const std::string policy =
      "allow=tcp:" + std::string(kAddress) + ":" + std::to_string(server.port());
  std::vector<Contender> contenders;
  const auto once = [&setup](Who who, std::vector<std::string> options) {
    std::vector<std::string> words = {"run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "/bin/true"});
    const Launch launch = carrel_launch(setup, who, kHome, words);
    return [launch] { return time_run(launch); };
  };
  const auto name_of = [](const char* what, Who who) {
    return std::string(what) + (who == Who::kUser ? ", user" : "");
  };
  // Each comes after one of the other user: who came right after one of his own would find his
  // nursery without a process that waits, and only one of the two would.
  for (const Who who : {Who::kRoot, Who::kUser}) {
    contenders.push_back(Contender{name_of("no network", who), once(who, {})});
  }
  for (const Who who : {Who::kRoot, Who::kUser}) {
    contenders.push_back(
        Contender{name_of("an allow-list", who), once(who, {"--network", policy})});
    contenders.back().peer = name_of("no network", who);
    contenders.back().budget = kOneShot;
  }
  interleave(report, "one-shot with a network", "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{3, 100} : Rounds{2, 20});
}

}  // namespace

void measure_egress(const Setup& setup, Effort effort, Report& report) {
  const OwnNetwork network;
  if (Status entered = network.enter(); !entered.ok()) {
    report.leave_out("egress", entered.error().to_string());
    return;
  }
  auto server = EgressServer::start(kAddress);
  if (!server.ok()) {
    report.leave_out("egress", server.error().to_string());
    return;
  }
  const std::string directory = setup.directory + "/client";
  const std::string program = directory + "/carrel_bench";
  std::filesystem::create_directories(directory);
  std::filesystem::copy_file("/proc/self/exe", program,
                             std::filesystem::copy_options::overwrite_existing);
  measure_work(setup, effort, report, server.value(), program);
  measure_start(setup, effort, report, server.value());
}

}  // namespace carrel::bench
