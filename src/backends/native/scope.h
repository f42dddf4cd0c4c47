#pragma once

#include <chrono>
#include <string>

#include "storage/home.h"

namespace carrel::native {

// The scope that an ordinary user's service manager makes for this process: a control group of the
// user's own, in which limits can be set. Root needs none. See docs/decisions/0008.
struct OwnScope {
  std::string group;    // from the top of the v2 tree, with a leading slash; empty: there is none
  std::string why_not;  // a sentence
};

// What a scope is for; part of its name.
enum class ScopeUse { kKeeper, kOneShot, kDoctor };

inline constexpr std::chrono::milliseconds kScopePatience{2000};

// Asks the user's service manager for a scope with this process in it, and waits until it is. Where
// there is no manager, or the tree has no v2 controllers to delegate, nobody is asked. For root it
// does nothing.
OwnScope enter_scope(const storage::Home& home, ScopeUse use,
                     std::chrono::milliseconds patience = kScopePatience);

// Whether there is somebody to ask; what he would say is not known.
bool can_ask_for_scope();

// The keeper's scope, for one-shots that may be placed below it; empty: none is known. What is
// noted of a keeper that is gone names a group that is not there any more.
std::string keepers_scope(const storage::Home& home);
void note_keepers_scope(const storage::Home& home, const std::string& group);

}  // namespace carrel::native
