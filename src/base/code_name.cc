#include "base/code_name.h"

namespace carrel {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not_found";
    case Code::kConflict:
      return "conflict";
    case Code::kDenied:
      return "denied";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kResource:
      return "resource";
    case Code::kTimeout:
      return "timeout";
    case Code::kGone:
      return "gone";
    case Code::kSystem:
      return "system";
  }
  return "system";
}

}  // namespace carrel
