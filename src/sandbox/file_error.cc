#include "sandbox/file_error.h"

#include <cerrno>
#include <cstring>

namespace carrel::sandbox {

namespace {

using protocol::FileOutcome;
using protocol::FileProblem;

Error system_problem(int error_number, const std::string& name) {
  switch (error_number) {
    case ENOENT:
      return Error{
          Code::kNotFound, 0, name + " was not found: it does not exist in the sandbox", {}};
    case EEXIST:
      return Error{Code::kConflict, 0, name + " exists already in the sandbox", {}};
    case EISDIR:
      return Error{Code::kConflict, 0, name + " is a directory", {}};
    case ENOTDIR:
      return Error{Code::kConflict, 0, name + " is not a directory, or goes through a file", {}};
    case ENOTEMPTY:
      return Error{Code::kConflict, 0, name + " is a directory with files in it",
                   "remove it recursively"};
    case EBUSY:
      return Error{Code::kDenied, 0, name + " is in use, or the root itself", {}};
    case ELOOP:
      return Error{Code::kDenied, 0, name + " is or goes through a link that is not followed",
                   "name the file that it leads to"};
    case EROFS:
    case EACCES:
    case EPERM:
      return Error{Code::kDenied, error_number, name + " cannot be changed or read",
                   "only what the sandbox's own user may do is done"};
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
      return Error{Code::kResource, error_number, name + " is more than the sandbox can hold", {}};
    default:
      return Error{Code::kSystem, error_number, name, {}};
  }
}

}  // namespace

Error file_error(const FileOutcome& outcome, std::string_view path) {
  const std::string name = "'" + std::string(path) + "'";
  const std::string value = std::to_string(outcome.value);
  switch (outcome.problem) {
    case FileProblem::kSystem:
      return system_problem(static_cast<int>(outcome.error_number), name);
    case FileProblem::kUnsafe:
      return Error{Code::kDenied, 0,
                   "the path " + name + " is potentially unsafe: it has '..' in it",
                   "name the file directly"};
    case FileProblem::kNotRegular:
      return Error{Code::kDenied, 0, name + " is not a regular file",
                   "pipes, sockets and devices are not read or written"};
    case FileProblem::kRange:
      return Error{Code::kInvalid,
                   0,
                   "the range begins beyond the end of " + name + ", which is at " + value,
                   {}};
    case FileProblem::kNoMatch:
      return Error{Code::kConflict, 0, "the text to replace was not found in " + name,
                   "it has to be there exactly as it is given, blanks and tabs included"};
    case FileProblem::kMatches:
      return Error{Code::kConflict, 0,
                   "the text to replace occurs " + value + " times in " + name + ", on lines " +
                       std::string(outcome.detail),
                   "give more of the text around it, so that it occurs once"};
    case FileProblem::kTooLarge:
      return Error{Code::kResource,
                   0,
                   name + " is larger than the " + value + " bytes that can be changed in place",
                   {}};
    case FileProblem::kTooMany:
      return Error{Code::kResource, 0, "there is more in " + name + " than the limit of " + value,
                   "ask for a part of it"};
    case FileProblem::kTooDeep:
      return Error{Code::kResource, 0, name + " is deeper than a tree can be", {}};
    case FileProblem::kNotWatchable:
      return Error{
          Code::kUnsupported, 0, name + " is on a file system that does not tell changes", {}};
    case FileProblem::kOutside:
      return Error{Code::kDenied, 0, name + " leads out of its tree", {}};
    case FileProblem::kChanged:
      return Error{Code::kConflict, 0, name + " became shorter while it was read", "try again"};
    case FileProblem::kNone:
      break;
  }
  return Error{Code::kGone, 0, "the sandbox's file worker sent a malformed answer", {}};
}

std::string file_reason(const FileOutcome& outcome) {
  switch (outcome.problem) {
    case FileProblem::kUnsafe:
    case FileProblem::kOutside:
      return "leads out of its tree, or through a link";
    case FileProblem::kNotRegular:
      return "is a pipe, a socket or a device";
    case FileProblem::kTooDeep:
      return "is too deep or too long";
    case FileProblem::kChanged:
      return "became shorter while it was read";
    default:
      return std::strerror(static_cast<int>(outcome.error_number));
  }
}

}  // namespace carrel::sandbox
