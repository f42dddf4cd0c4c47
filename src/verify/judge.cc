#include "verify/judge.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "verify/differences.h"

namespace carrel::verify {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestLine = 4U << 20;
constexpr std::size_t kMostShown = 3;
constexpr std::size_t kLongestAttempt = 200;

// What a root that can be changed allows, by the probe and how its attempts begin.
struct WritableRoot {
  std::string_view probe;
  std::string_view attempt;
};
constexpr std::array kOfWritableRoot = {
    WritableRoot{"A05_SystemFilesCannotBeChanged", "not so: / is mounted"},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "not so: /usr is mounted"},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "not so: /dev is mounted"},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "create "},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "mkdir "},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "write "},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "truncate "},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "chmod "},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "chown "},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "utimes "},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "rename "},
    WritableRoot{"A05_SystemFilesCannotBeChanged", "unlink "},
    WritableRoot{"A17_SystemFilesCannotBeHardLinked", "link "},
    WritableRoot{"A17_SystemFilesCannotBeHardLinked", "rename "},
    WritableRoot{"A18_ThePageCacheCannotBeWrittenThrough", "map it shared and writable"},
    WritableRoot{"F08_SwappedArgumentsGainNothing", "not so: the other one never for writing"},
};

std::vector<std::string> strings_of(const Json& object, const char* name) {
  std::vector<std::string> strings;
  if (const auto found = object.find(name); found != object.end() && found->is_array()) {
    for (const Json& one : *found) {
      if (one.is_string()) {
        strings.push_back(one.get<std::string>());
      }
    }
  }
  return strings;
}

// "a; b; c; and 4 more"
std::string listed(const std::vector<std::string>& all) {
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kMostShown); ++i) {
    text += (i == 0 ? "" : "; ") + all[i].substr(0, kLongestAttempt);
  }
  return all.size() > kMostShown
             ? text + "; and " + std::to_string(all.size() - kMostShown) + " more"
             : text;
}

void add_once(std::vector<std::string>& all, std::string one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) {
    all.push_back(std::move(one));
  }
}

Judgement judge_end(const Attack& attack, const sandbox::ExecResult& result) {
  constexpr std::int64_t kGraceMs = 5000;
  if (attack.manner == Manner::kTimeLimit && result.timed_out) {
    return result.duration_ms <= kGraceMs
               ? Judgement{Verdict::kHeld}
               : Judgement{Verdict::kHole,
                           "it was ended only after " + std::to_string(result.duration_ms) + " ms"};
  }
  if ((attack.manner == Manner::kMemory || attack.manner == Manner::kSize ||
       attack.manner == Manner::kPipes) &&
      (result.oom_killed || result.disk_limit)) {
    return {Verdict::kHeld};
  }
  return {Verdict::kUnclear,
          "the probe gave no answer: " + (result.reason.empty()
                                              ? "exit status " + std::to_string(result.exit_code)
                                              : result.reason)};
}

}  // namespace

std::optional<Answer> parse_answer(std::string_view output, std::string_view probe) {
  if (output.empty() || output.size() > kLongestLine ||
      output.find('\n') != output.size() - 1) {  // one line, and nothing beside it
    return std::nullopt;
  }
  const Json object = Json::parse(output, nullptr, false);
  if (!object.is_object() || object.value("probe", Json()) != probe) {
    return std::nullopt;
  }
  Answer answer;
  answer.open = strings_of(object, "open");
  answer.not_applicable = strings_of(object, "n/a");
  answer.held = strings_of(object, "held").size();
  return answer;
}

std::string granted_by(const Attack& attack, std::string_view attempt, const policy::Spec& spec) {
  if (spec.root_mode == policy::RootMode::kThrowawayOverlay) {
    for (const WritableRoot& row : kOfWritableRoot) {
      if (row.probe == attack.probe && attempt.starts_with(row.attempt)) {
        return "writable-root: the changes go with the sandbox";
      }
    }
  }
  const bool outward = attempt.starts_with("connect to ") ||
                       attempt.starts_with("send a datagram") ||
                       attempt == "not so: there is no route";
  if (attack.manner == Manner::kOutside && outward &&
      spec.network.mode != policy::NetworkMode::kNone) {
    return "network: " + policy::network_text(spec.network);
  }
  return {};
}

Judgement judge(const Attack& attack, const policy::Spec& spec, const sandbox::ExecResult& result) {
  const std::optional<Answer> answer = parse_answer(result.standard_output, attack.probe);
  if (!answer.has_value()) {
    return judge_end(attack, result);
  }
  std::vector<std::string> holes;
  std::vector<std::string> grants;
  std::vector<std::string> differing;
  for (const std::string& attempt : answer->open) {
    std::string grant = granted_by(attack, attempt, spec);
    std::string reason(grant.empty() ? not_promised(spec, attack.probe, attempt)
                                     : std::string_view());
    if (!grant.empty()) {
      add_once(grants, std::move(grant));
    } else if (!reason.empty()) {
      add_once(differing, std::move(reason));
    } else {
      holes.push_back(attempt);
    }
  }
  if (!holes.empty()) {
    return {Verdict::kHole, listed(holes)};
  }
  if (!differing.empty()) {
    return {Verdict::kNotApplicable, listed(differing)};
  }
  if (!grants.empty()) {
    return {Verdict::kGranted, listed(grants)};
  }
  if (answer->held > 0) {
    return {Verdict::kHeld};
  }
  return {Verdict::kNotApplicable, listed(answer->not_applicable)};
}

}  // namespace carrel::verify
