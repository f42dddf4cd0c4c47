#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/native/given_tree.h"
#include "backends/native/keeper_client.h"
#include "backends/native/warm_supply.h"
#include "backends/native/workspace.h"
#include "base/result.h"
#include "manager/image_spec.h"
#include "policy/spec.h"
#include "storage/home.h"

namespace carrel::manager {

// The limits of a spec against what this host has.
Status check_against_host(const policy::Spec& spec);

// Brings a restore to its end that was interrupted in the workspace of that name. What that needs
// changes the rights of a process, so that it is one of its own.
using FinishRestore = std::function<void(const std::string& workspace)>;

// Opens the workspace that a spec names, if it names one, and adds its tree.
Status add_workspace(const storage::Home& home, const policy::Spec& spec,
                     std::vector<native::GivenTree>& trees,
                     std::optional<native::UsedWorkspace>& workspace, const FinishRestore& finish);

// A long-lived sandbox that somebody wants.
struct Wish {
  policy::Spec spec;
  std::string name;            // empty: none
  std::uint64_t lease_ms = 0;  // 0: until it is removed
  Chosen given;
  std::vector<native::GivenTree> trees;  // the spec's mounts, opened and judged
  std::string policy_file;               // the configuration that granted them, if one did
  std::string stopped;                   // the id of one that is started again; empty: a new one
  FinishRestore finish_restore;
  native::WarmSupply* warm = nullptr;  // sandboxes that it may be made of
  native::MadeHere* here = nullptr;    // what is at hand if it was
  // Told the id before anything is made; its error ends the making.
  std::function<Status(const std::string& id)> chosen;
};

// Makes it and returns its id: stored, running, with its network served and its work dir there. Of
// one that cannot be had as a whole nothing is left, and one that was stopped stays so.
Result<std::string> make_sandbox(storage::Home& home, Wish wish);

}  // namespace carrel::manager
