#include "policy/mounts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "policy/given.h"

namespace carrel::policy {
namespace {

struct Finding {
  MountRule rule;
  std::string_view path;  // the forbidden path, as it is listed
};

std::optional<MountRule> relation(std::string_view path, std::string_view forbidden, Reach reach,
                                  MountMode mode) {
  if (path == forbidden || (reach == Reach::kBelowAndAbove && path_holds(forbidden, path))) {
    return MountRule::kForbidden;
  }
  if (path_holds(path, forbidden) &&
      (reach != Reach::kAboveIfWritable || mode == MountMode::kReadWrite)) {
    return MountRule::kAboveForbidden;
  }
  return std::nullopt;
}

// By the path as listed, by where that leads, and by the place on the file system.
std::optional<Finding> find_forbidden(const Location& location,
                                      const std::vector<ForbiddenPlace>& places, MountMode mode) {
  std::optional<Finding> found;
  const auto look = [&](const ForbiddenPlace& place, std::string_view path,
                        std::string_view forbidden) {
    const std::optional<MountRule> rule = relation(path, forbidden, place.forbidden.reach, mode);
    if (rule.has_value() && (!found.has_value() || *rule == MountRule::kForbidden)) {
      found = Finding{*rule, place.forbidden.path};
    }
  };
  for (const ForbiddenPlace& place : places) {
    look(place, location.path, place.forbidden.path);
    if (!place.at.path.empty()) {
      look(place, location.path, place.at.path);
    }
    if (!location.device.empty() && location.device == place.at.device) {
      look(place, location.path_on_device, place.at.path_on_device);
    }
    if (found.has_value() && found->rule == MountRule::kForbidden) {
      break;
    }
  }
  return found;
}

std::string shown(const MountFacts& facts) {
  return facts.real.path.empty() || facts.asked == facts.real.path
             ? quote(facts.asked)
             : concat({quote(facts.asked), ", which is ", quote(facts.real.path), ","});
}

MountDecision refuse(const MountFacts& facts, MountRule rule, std::string reason) {
  MountDecision decision = refused(rule, std::move(reason));
  decision.real_path = facts.real.path;
  return decision;
}

std::string forbidden_reason(const MountFacts& facts, const Location& location,
                             const Finding& found) {
  if (location.path == found.path) {
    return concat({shown(facts), " is never mounted"});
  }
  const std::string_view verb =
      found.rule == MountRule::kAboveForbidden ? " contains " : " is, or is below, ";
  return concat({shown(facts), verb, quote(found.path), ", which is never mounted"});
}

// Forbidden places and names, by where the source really is and by where it seems to be.
std::optional<MountDecision> refuse_place(const MountFacts& facts, MountMode mode) {
  Location seeming;
  seeming.path = facts.asked;
  for (const Location* location : {&facts.real, &std::as_const(seeming)}) {
    if (location->path.empty()) {
      continue;
    }
    if (const auto found = find_forbidden(*location, facts.forbidden, mode); found.has_value()) {
      return refuse(facts, found->rule, forbidden_reason(facts, *location, *found));
    }
    if (const std::string_view name = credential_in(location->path); !name.empty()) {
      return refuse(facts, MountRule::kCredentialName,
                    concat({shown(facts), " has a name that credentials have, ", quote(name),
                            ", and is never mounted"}));
    }
  }
  if (is_kernel_file_system(facts.real.file_system)) {
    return refuse(facts, MountRule::kForbidden,
                  concat({shown(facts), " is on a file system of the kernel's own, ",
                          facts.real.file_system, ", which is never mounted"}));
  }
  return std::nullopt;
}

std::optional<MountDecision> refuse_object(const MountFacts& facts) {
  switch (facts.kind) {
    case FileKind::kMissing:
      return refuse(facts, MountRule::kMissing,
                    concat({quote(facts.asked), " does not exist, and is not created"}));
    case FileKind::kDenied:
      return refuse(facts, MountRule::kUnreadable,
                    concat({quote(facts.asked), " is where you have no permission to go"}));
    case FileKind::kMaze:
      return refuse(facts, MountRule::kLink,
                    concat({quote(facts.asked), " leads through links in a circle, or of /proc"}));
    case FileKind::kSocket:
    case FileKind::kPipe:
    case FileKind::kDevice:
      return refuse(facts, MountRule::kKind,
                    concat({shown(facts), " is neither a folder nor a file"}));
    case FileKind::kFolder:
    case FileKind::kFile:
      break;
  }
  for (const Entry& entry : facts.noticed) {
    if (entry.path.empty() && entry.why == Noticed::kForbiddenLink) {
      return refuse(facts, MountRule::kForbidden,
                    concat({shown(facts), " is another name of a file that is never mounted"}));
    }
    if (entry.path.empty()) {
      return refuse(facts, MountRule::kUnreadable,
                    concat({shown(facts), " cannot be looked into by you"}));
    }
  }
  return std::nullopt;
}

const std::string* holder_of(const std::vector<std::string>& roots, std::string_view path) {
  const auto found = std::find_if(roots.begin(), roots.end(),
                                  [&](const std::string& root) { return path_holds(root, path); });
  return found == roots.end() ? nullptr : &*found;
}

MountDecision allow(const MountFacts& facts, MountRule rule, MountMode mode, std::string reason) {
  MountDecision decision;
  decision.allowed = true;
  decision.rule = rule;
  decision.reason = std::move(reason);
  decision.real_path = facts.real.path;
  decision.mode = mode;
  return decision;
}

MountDecision decide_by_command_line(const MountFacts& facts, MountMode mode) {
  if (facts.asked != facts.real.path) {
    return refuse(facts, MountRule::kLink,
                  concat({quote(facts.asked), " leads through a link to ", quote(facts.real.path),
                          "; name that path if it is meant"}));
  }
  return allow(facts, MountRule::kCommandLine, mode,
               concat({quote(facts.asked), " was named on the command line"}));
}

MountDecision decide_by_lists(const MountGrants& grants, const MountFacts& facts, MountMode mode) {
  const std::string& path = facts.real.path;
  if (const std::string* root = holder_of(grants.write_paths, path); root != nullptr) {
    return allow(
        facts, MountRule::kWriteList, mode,
        concat({shown(facts), " is allowed by ", quote(*root), " of allowed_write_paths"}));
  }
  const std::string* root = holder_of(grants.read_paths, path);
  if (root != nullptr && mode == MountMode::kReadOnly) {
    return allow(facts, MountRule::kReadList, mode,
                 concat({shown(facts), " is allowed by ", quote(*root), " of allowed_read_paths"}));
  }
  if (root != nullptr) {
    return refuse(facts, MountRule::kNotWritable,
                  concat({shown(facts), " may be read only: ", quote(*root),
                          " is not in allowed_write_paths"}));
  }
  const std::string* left = holder_of(grants.write_paths, facts.asked);
  left = left != nullptr ? left : holder_of(grants.read_paths, facts.asked);
  if (left != nullptr) {
    return refuse(facts, MountRule::kLink,
                  concat({quote(facts.asked), " leads through a link to ", quote(path), ", out of ",
                          quote(*left), ", which is allowed"}));
  }
  const bool none = grants.read_paths.empty() && grants.write_paths.empty();
  return refuse(facts, MountRule::kNotAllowed,
                concat({shown(facts), none ? " is not allowed: both lists are empty"
                                           : " is below none of the allowed paths"}));
}

// What has to be covered, from the top down, and nothing twice.
std::vector<Entry> hidden_entries(const MountFacts& facts, MountMode mode) {
  std::vector<Entry> hidden = facts.noticed;
  for (const SubMount& mount : facts.mounts) {
    if (is_kernel_file_system(mount.at.file_system) ||
        find_forbidden(mount.at, facts.forbidden, mode).has_value()) {
      hidden.push_back({mount.path, mount.kind, mount.id, Noticed::kForbiddenMount});
    }
  }
  // A slash sorts before every other byte here, so that a folder comes just before what is in it.
  std::sort(hidden.begin(), hidden.end(), [](const Entry& a, const Entry& b) {
    return std::lexicographical_compare(
        a.path.begin(), a.path.end(), b.path.begin(), b.path.end(), [](char x, char y) {
          const auto rank = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c) + 1; };
          return rank(x) < rank(y);
        });
  });
  std::vector<Entry> top;
  for (Entry& entry : hidden) {
    if (top.empty() || !path_holds(top.back().path, entry.path)) {
      top.push_back(std::move(entry));
    }
  }
  return top;
}

}  // namespace

std::string_view rule_name(MountRule rule) {
  switch (rule) {
    case MountRule::kCommandLine:
      return "command_line";
    case MountRule::kReadList:
      return "allowed_read_paths";
    case MountRule::kWriteList:
      return "allowed_write_paths";
    case MountRule::kPolicy:
      return "policy";
    case MountRule::kSource:
      return "source";
    case MountRule::kMissing:
      return "missing";
    case MountRule::kForbidden:
      return "forbidden";
    case MountRule::kAboveForbidden:
      return "above_forbidden";
    case MountRule::kCredentialName:
      return "credential_name";
    case MountRule::kKind:
      return "kind";
    case MountRule::kUnreadable:
      return "unreadable";
    case MountRule::kLink:
      return "link";
    case MountRule::kNotAllowed:
      return "not_allowed";
    case MountRule::kNotWritable:
      return "not_writable";
    case MountRule::kTooLarge:
      break;
  }
  return "too_large";
}

std::string_view hidden_because(Noticed why) {
  switch (why) {
    case Noticed::kCredentialName:
      return "a name that credentials have";
    case Noticed::kChannel:
      return "a socket, a pipe or a device of the host";
    case Noticed::kForbiddenLink:
      return "another name of a file that is never mounted";
    case Noticed::kForbiddenMount:
      return "a mount of what is never mounted";
    case Noticed::kUnreadable:
      break;
  }
  return "it could not be looked into";
}

MountDecision refused(MountRule rule, std::string reason) {
  MountDecision decision;
  decision.rule = rule;
  decision.reason = std::move(reason);
  return decision;
}

MountDecision decide_mount(const MountGrants& grants, const MountFacts& facts, MountMode mode) {
  if (auto decision = refuse_place(facts, mode); decision.has_value()) {
    return std::move(*decision);
  }
  if (auto decision = refuse_object(facts); decision.has_value()) {
    return std::move(*decision);
  }
  MountDecision decision = grants.by == MountGrants::By::kLists
                               ? decide_by_lists(grants, facts, mode)
                               : decide_by_command_line(facts, mode);
  if (!decision.allowed) {
    return decision;
  }
  if (facts.examined != Examined::kAll) {
    return refuse(
        facts, MountRule::kTooLarge,
        concat({shown(facts),
                facts.examined == Examined::kTooMany ? " has more entries than can be examined"
                                                     : " has more levels than can be examined",
                "; mount a part of it"}));
  }
  decision.hidden = hidden_entries(facts, mode);
  if (decision.hidden.size() > kMostHidden) {
    return refuse(facts, MountRule::kTooLarge,
                  concat({shown(facts), " has more than ", std::to_string(kMostHidden),
                          " entries that must be hidden; mount a part of it"}));
  }
  return decision;
}

Error mount_error(std::string_view source, const MountDecision& decision) {
  return Error{Code::kDenied, 0,
               concat({"mount ", quote(source), " refused by rule ", rule_name(decision.rule), ": ",
                       decision.reason}),
               "see 'carrel mount check'"};
}

}  // namespace carrel::policy
