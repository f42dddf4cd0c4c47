#include "verify/verifier.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "policy/network.h"
#include "verify/canaries.h"
#include "verify/host_state.h"
#include "verify/judge.h"
#include "verify/lasting.h"
#include "verify/rooms.h"
#include "verify/session.h"

namespace carrel::verify {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kVerifierMebibyte = 1ULL << 20;

std::int64_t milliseconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

bool is_interruption(const Error& error) { return error.error_number == EINTR; }

// One run through the table.
class Attempt {
 public:
  Attempt(storage::Home& home, Request& request, Canaries& canaries, Rooms& rooms)
      : home_(&home), request_(&request), canaries_(&canaries), rooms_(&rooms) {}

  Result<Judgement> make(const Attack& attack) {
    switch (attack.manner) {
      case Manner::kDaemons:
        return leave_daemons(attack, *rooms_, *canaries_);
      case Manner::kNewcomer:
        return look_as_newcomer(attack, *rooms_);
      case Manner::kNeighbour:
        return look_as_neighbour(attack, *rooms_);
      case Manner::kSession:
        return in_session(attack);
      default:
        return visit(attack);
    }
  }

 private:
  Result<Judgement> visit(const Attack& attack) {
    Rooms::Visit visit{.probe = attack.probe, .limits = rooms_->usual_limits()};
    prepare(attack, visit);
    if (attack.manner == Manner::kProcessor &&
        ::sysconf(_SC_NPROCESSORS_ONLN) * 1000 <= visit.limits.cpu_millis) {
      return Judgement{Verdict::kNotApplicable, "this host has no more cores than were given"};
    }
    CARREL_ASSIGN(const sandbox::ExecResult result, rooms_->visit(visit));
    for (const std::string* output : {&result.standard_output, &result.standard_error}) {
      if (output->find(canaries_->secret()) != std::string::npos) {
        return Judgement{Verdict::kHole, "a secret of the host's is in what it printed"};
      }
    }
    return judge(attack, rooms_->spec(), result);
  }

  // What the probe is told, and limits that it can reach without harm to the host.
  void prepare(const Attack& attack, Rooms::Visit& visit) const {
    policy::Limits& limits = visit.limits;
    const auto most = [](std::uint64_t& limit, std::uint64_t value) {
      limit = std::min(limit, value);
    };
    switch (attack.manner) {
      case Manner::kForks:
        limits.pids = std::min<std::uint32_t>(limits.pids, 100);
        break;
      case Manner::kMemory:
        most(limits.memory_bytes, 64 * kVerifierMebibyte);
        visit.arguments = {"160"};
        visit.timeout = std::chrono::seconds(20);
        break;
      case Manner::kSize:  // what is written counts as memory as well, which is not meant here
        limits.memory_bytes = 512 * kVerifierMebibyte;
        most(limits.tmp_bytes, 48 * kVerifierMebibyte);
        most(limits.disk_bytes, 48 * kVerifierMebibyte);
        visit.arguments = {"160"};
        visit.timeout = std::chrono::seconds(20);
        break;
      case Manner::kPipes:  // the kernel itself ends pipes at about 80 MiB
        limits.memory_bytes = 40 * kVerifierMebibyte;
        limits.tmp_bytes = 8 * kVerifierMebibyte;
        visit.arguments = {"70"};
        visit.timeout = std::chrono::seconds(20);
        break;
      case Manner::kProcessor:
        if (const auto* row = rooms_->enforcement().find("cpu");
            row != nullptr && row->by != "affinity") {
          limits.cpu_millis = std::min<std::uint32_t>(limits.cpu_millis, 100);
        } else {
          limits.cpu_millis = (limits.cpu_millis + 999) / 1000 * 1000;
        }
        visit.arguments = {std::to_string(limits.cpu_millis)};
        break;
      case Manner::kPaths:
        visit.arguments = paths();
        break;
      case Manner::kListeners:
        visit.arguments = canaries_->listeners();
        break;
      case Manner::kOutside:
        visit.arguments = canaries_->addresses();
        break;
      case Manner::kTimeLimit:
        visit.arguments = {"20"};
        visit.timeout = std::chrono::seconds(1);
        break;
      default:
        break;
    }
  }

  [[nodiscard]] std::vector<std::string> paths() const {
    std::vector<std::string> words = {path_in_its_file_system("/usr"),
                                      path_in_its_file_system("/etc")};
    for (const native::GivenTree& tree : request_->trees) {
      words.push_back("agreed=" + path_in_its_file_system(tree.path));
    }
    constexpr std::string_view kDirectory = "dir:";
    if (rooms_->spec().image.starts_with(kDirectory)) {
      words.push_back("agreed=" +
                      path_in_its_file_system(rooms_->spec().image.substr(kDirectory.size())));
    } else {
      words.push_back(home_->path());
    }
    words.push_back(canaries_->folder());
    return words;
  }

  Result<Judgement> in_session(const Attack& attack) {
    if (rooms_->interrupted()) {
      return Error{Code::kSystem, EINTR, "interrupted", {}};
    }
    if (!session_.has_value()) {
      CARREL_ASSIGN(std::vector<native::GivenTree> trees, native::duplicate(request_->trees));
      policy::Spec spec = request_->spec;
      spec.limits = rooms_->usual_limits();
      CARREL_ASSIGN(Session session,
                    Session::begin(*home_, spec, request_->chosen, std::move(trees)));
      session_.emplace(std::move(session));
    }
    return session_->attack(attack.name);
  }

  storage::Home* home_;
  Request* request_;
  Canaries* canaries_;
  Rooms* rooms_;
  std::optional<Session> session_;
};

// What the host says about an attack, whatever the probe said.
void look_at_host(Canaries& canaries, std::map<std::string, std::string>& before,
                  const policy::Spec& spec, Finding& finding) {
  std::vector<std::string> harm = canaries.harmed();
  const bool may_reach =
      !canaries.address().empty() &&
      policy::network_text(spec.network).find(canaries.address()) != std::string::npos;
  std::erase_if(harm, [&](const std::string& one) {
    return may_reach && one.find("own address") != std::string::npos;
  });
  for (const std::string& what : changed_since(before)) {
    harm.push_back("the host's " + what + " was changed");
  }
  if (harm.empty()) {
    return;
  }
  before = host_state();
  std::string text;
  for (const std::string& one : harm) {
    text += (text.empty() ? "" : "; ") + one;
  }
  finding.detail = text + (finding.verdict == Verdict::kHole ? "; " + finding.detail : "");
  finding.verdict = Verdict::kHole;
}

}  // namespace

policy::Spec attackable(policy::Spec spec, std::vector<std::string>& notes) {
  if (!spec.workspace.empty()) {
    notes.push_back("attacked with an empty workspace in place of '" + spec.workspace + "'");
    spec.workspace.clear();
  }
  if (spec.network.mode != policy::NetworkMode::kNone) {
    notes.push_back("granted by the policy: network " + policy::network_text(spec.network));
  }
  for (policy::Mount& mount : spec.mounts) {
    const bool writable = mount.mode == policy::MountMode::kReadWrite;
    notes.push_back("granted by the policy: mount " + mount.target +
                    (writable ? ", writable; attacked read-only, so that nothing of it is changed"
                              : ", read-only"));
    mount.mode = policy::MountMode::kReadOnly;
  }
  if (spec.root_mode == policy::RootMode::kThrowawayOverlay) {
    notes.emplace_back("granted by the policy: a root that can be changed inside");
  }
  return spec;
}

Result<Report> verify(storage::Home& home, Request request) {
  const Clock::time_point start = Clock::now();
  Report report;
  report.backend = policy::name_of(request.spec.backend);
  CARREL_ASSIGN(Canaries canaries, Canaries::plant());
  CARREL_ASSIGN(std::vector<native::GivenTree> trees, native::duplicate(request.trees));
  Rooms rooms(home, {request.spec, std::move(trees), request.chosen, request.find_walls,
                     request.interrupt});
  CARREL_TRY(rooms.open());
  if (const auto* row = rooms.enforcement().find("built by"); row != nullptr) {
    report.builder = row->by;
  }
  std::map<std::string, std::string> before = host_state();
  Attempt attempt(home, request, canaries, rooms);
  std::optional<Group> group;
  for (const Attack& attack : attacks()) {
    if (!request.only.has(attack)) {
      continue;
    }
    if (group != attack.group && request.on_group) {
      request.on_group(attack.group);
    }
    group = attack.group;
    const Clock::time_point begun = Clock::now();
    Finding finding;
    finding.name = attack.name;
    finding.group = attack.group;
    finding.tries = attack.tries;
    if (auto judgement = attempt.make(attack); judgement.ok()) {
      finding.verdict = judgement->verdict;
      finding.detail = std::move(judgement->detail);
    } else if (is_interruption(judgement.error())) {
      return judgement.error();
    } else {
      finding.detail = "it could not be tried: " + judgement.error().to_string();
    }
    look_at_host(canaries, before, request.spec, finding);
    finding.duration_ms = milliseconds_since(begun);
    if (request.on_finding) {
      request.on_finding(finding);
    }
    report.findings.push_back(std::move(finding));
  }
  report.duration_ms = milliseconds_since(start);
  return report;
}

}  // namespace carrel::verify
