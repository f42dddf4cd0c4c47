#pragma once

#include <string>
#include <string_view>

#include "agent/loop.h"
#include "journal/run.h"

namespace carrel::agent {

// Who hears everything about a run: what the agent says and does, and what becomes of its turns and
// its sandbox. Texts may come from a model or a sandbox: whoever shows them makes them harmless.
class Reporter : public Observer {
 public:
  virtual void run_event(const journal::RunEvent& event) = 0;
  // An event of the sandbox's log, see storage/events.h.
  virtual void sandbox_event(const std::string& json) = 0;
  virtual void notice(const std::string& sentence) = 0;
};

}  // namespace carrel::agent
