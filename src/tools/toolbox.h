#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/box.h"
#include "tools/questions.h"
#include "tools/registry.h"
#include "tools/services.h"
#include "tools/sessions.h"
#include "tools/workplace.h"

namespace carrel::tools {

// What the tools of an agent work with. Everything is borrowed; null: there is none.
struct Surroundings {
  Commands* commands = nullptr;
  FileStore* files = nullptr;
  // Where exec keeps long outputs, if whoever runs commands can read it.
  FileStore* outputs = nullptr;
  Sessions* sessions = nullptr;
  Questions* questions = nullptr;
  std::string skills = {};  // a folder; empty: none
  std::vector<Service> services = {};
};

// The names of all tools that a profile can ask for; `files`, `sessions` and `services` are groups.
std::vector<std::string> known_tools();

// The tools of those names, and no other: what is not named is not even made. kInvalid for a name
// that there is not, and for a tool that lacks what it works with.
Status add_tools(const std::vector<std::string>& names, const Surroundings& surroundings,
                 Registry& registry);

}  // namespace carrel::tools
