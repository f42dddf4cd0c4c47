#pragma once

#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "policy/spec.h"
#include "storage/home.h"

namespace carrel::cli {

// With --workspace-from: makes the spec's workspace as a copy of that directory. Without a name for
// it, it gets one. Says on stderr what was left out. `goes_with` as in storage::WorkspaceRow.
Status copy_source(const Context& context, const storage::Home& home, policy::Spec& spec,
                   const std::string& goes_with = {});

// The same for a workspace that goes with what was run in it, unless somebody named it: it is
// removed when this ends, at the latest by the next one who looks for what is left over.
class CopiedSource {
 public:
  explicit CopiedSource(const storage::Home& home) : home_(&home) {}
  CopiedSource(const CopiedSource&) = delete;
  CopiedSource& operator=(const CopiedSource&) = delete;
  ~CopiedSource();

  Status copy(const Context& context, policy::Spec& spec);
  // When it is in use: whoever finds it after that may remove it.
  void goes_with_this_run();
  // It goes with that sandbox, and stays now.
  Status goes_with(const std::string& sandbox);

 private:
  const storage::Home* home_;
  std::string unnamed_;  // empty: there is none, or it stays
};

}  // namespace carrel::cli
