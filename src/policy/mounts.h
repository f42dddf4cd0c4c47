#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/mount_paths.h"
#include "policy/spec.h"

namespace carrel::policy {

// Which host folders and files a sandbox may see: a decision over facts that somebody else gathered
// (storage/mount_facts.h), so that it can be shown, tested and asked for without a sandbox.

enum class FileKind {
  kMissing,
  kDenied,  // the caller may not go there
  kMaze,    // links in a circle, or one of those of /proc that lead anywhere
  kFolder,
  kFile,
  kSocket,
  kPipe,
  kDevice,
};

struct FileId {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileId&) const = default;
};

// Where something is: its path without links and, because bind mounts give one thing many paths,
// its place on its own file system. Paths alone say too little.
struct Location {
  std::string path;
  std::string device;          // as mountinfo writes it: "8:1"; empty: not known
  std::string path_on_device;  // absolute
  std::string file_system;     // its type
};

struct ForbiddenPlace {
  ForbiddenPath forbidden;  // as it is listed
  Location at;              // where that leads
};

// Why an entry of the tree must not be seen.
enum class Noticed {
  kCredentialName,
  kChannel,        // a socket, a pipe or a device: a way to whoever is at its other end
  kForbiddenLink,  // another name of a file that is forbidden
  kForbiddenMount,
  kUnreadable,  // it could not be looked into
};

struct Entry {
  std::string path;  // from the top of the mount, without a leading slash; empty: the top itself
  FileKind kind = FileKind::kFile;
  FileId id;
  Noticed why = Noticed::kCredentialName;
};

// A mount of the host's below the source.
struct SubMount {
  std::string path;  // from the top of the mount
  FileKind kind = FileKind::kFolder;
  FileId id;
  Location at;
};

enum class Examined { kAll, kTooMany, kTooDeep };

struct MountFacts {
  std::string asked;  // absolute and folded, links not followed
  FileKind kind = FileKind::kMissing;
  Location real;
  FileId id;
  std::vector<ForbiddenPlace> forbidden;
  std::vector<Entry> noticed;
  std::vector<SubMount> mounts;
  Examined examined = Examined::kAll;
};

enum class MountRule {
  kCommandLine,  // allowed: the person at the terminal named this path
  kReadList,     // allowed: below one of allowed_read_paths
  kWriteList,    // allowed: below one of allowed_write_paths
  kPolicy,       // there is no policy that could be read
  kSource,       // the source is not written as a path
  kMissing,
  kForbidden,       // a forbidden path or something below it
  kAboveForbidden,  // it contains a forbidden path
  kCredentialName,
  kKind,        // neither a folder nor a file
  kUnreadable,  // the caller may not look into it
  kLink,        // it leads out of what is allowed
  kNotAllowed,
  kNotWritable,  // the lists allow it read-only
  kTooLarge,     // more than could be examined, or more to hide than is possible
};

// The rule's name on the command line and in JSON: "above_forbidden".
std::string_view rule_name(MountRule rule);

struct MountDecision {
  bool allowed = false;
  MountRule rule = MountRule::kNotAllowed;
  std::string reason;                     // a sentence without its full stop
  std::string real_path;                  // empty if there is none
  MountMode mode = MountMode::kReadOnly;  // as it would be mounted
  std::vector<Entry> hidden;              // what has to be covered; none lies below another
};

// The most entries of one mount that can be hidden.
inline constexpr std::size_t kMostHidden = 1000;

MountDecision refused(MountRule rule, std::string reason);

// The grants are those of the Spec: its lists or, where nobody gave lists, the path itself, because
// the person who types a path grants it. A path is granted as it is written: where links lead away
// from it, what they lead to was not granted.
MountDecision decide_mount(const MountGrants& grants, const MountFacts& facts, MountMode mode);

// A refused decision as an error (kDenied) that names the source and the rule.
Error mount_error(std::string_view source, const MountDecision& decision);

// Why an entry is hidden, for people: "a name that credentials have".
std::string_view hidden_because(Noticed why);

}  // namespace carrel::policy
