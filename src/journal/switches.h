#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::journal {

// What the environment says about a run of a flow: DISABLE_CACHE and FORCE_FAILURE.
struct Switches {
  bool disable_cache = false;  // no turn is taken from the record; each is run and stored again
  bool force_failure = false;  // the run fails between its first turn and its second
};

// "1", "true", "yes" and "on" are on; "0", "false", "no", "off" and nothing are off, in any case.
// Everything else is kInvalid with the name of the switch: a switch that is half understood is one
// that does the opposite of what was meant.
Result<bool> parse_switch(std::string_view name, std::string_view value);

// Of this process. What is not set is off.
Result<Switches> switches_from_environment();

}  // namespace carrel::journal
