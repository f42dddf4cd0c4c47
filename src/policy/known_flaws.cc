#include "policy/known_flaws.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace carrel::policy {

namespace {

// Versions of a program from the first one on, up to the one that closed it.
struct Flaw {
  std::string_view program;
  std::string_view name;
  Version first;
  Version closed;
};

constexpr Version kFirst{};

// A flaw with several branches has a row for each.
constexpr std::array kFlaws = {
    Flaw{"runc", "CVE-2024-21626", kFirst, {{1, 1, 12}}},
    Flaw{"runc", "CVE-2025-31133", kFirst, {{1, 2, 8}}},
    Flaw{"runc", "CVE-2025-31133", {{1, 3, 0}}, {{1, 3, 3}}},
    Flaw{"runc", "CVE-2025-52565", kFirst, {{1, 2, 8}}},
    Flaw{"runc", "CVE-2025-52565", {{1, 3, 0}}, {{1, 3, 3}}},
    Flaw{"runc", "CVE-2025-52881", kFirst, {{1, 2, 8}}},
    Flaw{"runc", "CVE-2025-52881", {{1, 3, 0}}, {{1, 3, 3}}},
    Flaw{"runc", "CVE-2026-41579", kFirst, {{1, 3, 6}}},
    Flaw{"runc", "CVE-2026-41579", {{1, 4, 0}}, {{1, 4, 3}}},
    Flaw{"crun", "CVE-2026-30892", kFirst, {{1, 27, 0}}},
    Flaw{"crun", "CVE-2026-47766", kFirst, {{1, 28, 0}}},
    Flaw{"bubblewrap", "CVE-2026-87766", kFirst, {{0, 12, 0}}},
    Flaw{"firecracker", "CVE-2026-5747", {{1, 13, 0}}, {{1, 14, 4}}},
    Flaw{"firecracker", "CVE-2026-5747", {{1, 15, 0}}, {{1, 15, 1}}},
    Flaw{"jailer", "CVE-2026-1386", kFirst, {{1, 13, 2}}},
    Flaw{"jailer", "CVE-2026-1386", {{1, 14, 0}}, {{1, 14, 1}}},
    Flaw{"dockerd", "CVE-2019-14271", {{19, 3, 0}}, {{19, 3, 1}}},
};
constexpr std::string_view kSetUidBubblewrap = "CVE-2026-41163";

std::string_view program_in(std::string_view reported) {
  return reported.substr(0, reported.find(' '));
}

}  // namespace

std::optional<Version> parse_version(std::string_view text) {
  const std::size_t space = text.find_last_of(' ');
  std::string_view rest = space == std::string_view::npos ? text : text.substr(space + 1);
  if (rest.starts_with('v')) {
    rest.remove_prefix(1);
  }
  Version version;
  for (std::size_t i = 0; i < version.numbers.size(); ++i) {
    const char* const last = rest.data() + rest.size();
    const auto [end, error] = std::from_chars(rest.data(), last, version.numbers.at(i));
    if (error != std::errc()) {
      return std::nullopt;
    }
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (!rest.starts_with('.')) {
      // One number alone is none.
      return i == 0 ? std::nullopt : std::optional(version);
    }
    rest.remove_prefix(1);
  }
  return version;
}

std::vector<std::string_view> known_flaws(const Builder& builder) {
  std::vector<std::string_view> found;
  const std::string_view program = program_in(builder.reported);
  const std::optional<Version> version = parse_version(builder.reported);
  for (const Flaw& flaw : kFlaws) {
    if (version.has_value() && flaw.program == program && *version >= flaw.first &&
        *version < flaw.closed && std::find(found.begin(), found.end(), flaw.name) == found.end()) {
      found.push_back(flaw.name);
    }
  }
  if (program == "bubblewrap" && builder.rights == Builder::Rights::kSetUid) {
    found.push_back(kSetUidBubblewrap);
  }
  return found;
}

std::string flaw_warning(const Builder& builder) {
  std::string names;
  for (const std::string_view name : known_flaws(builder)) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (names.empty()) {
    return {};
  }
  return builder.reported + " has known escapes by its reported version (" + names +
         "); distributions patch without changing it, so look whether yours has";
}

}  // namespace carrel::policy
