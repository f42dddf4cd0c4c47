#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/backend.h"
#include "policy/spec.h"

// Strength is chosen, never guessed: the first walls that are there and are at least so strong.
namespace carrel::policy {

// Whether an engine's runtime has a kernel that lets nobody mount, so that the engine furnishes the
// room and not its guest: gVisor's.
bool is_furnished_by_engine(Backend backend, std::string_view runtime);

// Whether an engine's runtime is called one that makes a machine for each container: Kata. That it
// does is the engine's word, so it is never chosen for its strength.
bool is_machine_by_engine(Backend backend, std::string_view runtime);

// Walls that a sandbox could have on this host.
struct Candidate {
  Backend backend = Backend::kNative;
  std::string runtime = {};
  std::string missing = {};  // why they cannot be had; empty: they can
};

// Those that are exactly as strong come first, in their order, and then stronger ones.
// kUnsupported, with what each of them lacks, where there are none; never weaker ones.
Result<Candidate> choose_walls(Strength wanted, std::span<const Candidate> candidates);

// Whether the walls that a spec names are as strong as it asks for, and have the runtime that it
// names.
Status check_strength(const Spec& spec);

}  // namespace carrel::policy
