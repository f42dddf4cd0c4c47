#include "manager/making.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backends/native/keeper_client.h"
#include "backends/native/network.h"
#include "backends/native/remains.h"
#include "backends/native/workdir.h"
#include "policy/validate.h"
#include "storage/box.h"

namespace carrel::manager {

Status check_against_host(const policy::Spec& spec) {
  policy::HostFacts facts;
  facts.memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  facts.cpus = 1;
  if (spec.limits.cpu_millis > 1000) {  // to ask takes a file that is not read otherwise
    facts.cpus = static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  return policy::validate(spec, facts);
}

Status add_workspace(const storage::Home& home, const policy::Spec& spec,
                     std::vector<native::GivenTree>& trees,
                     std::optional<native::UsedWorkspace>& workspace, const FinishRestore& finish) {
  if (spec.workspace.empty()) {
    return {};
  }
  auto used = native::use_workspace(home, spec);
  if (!used.ok() && used.error().error_number == EACCES && finish) {
    finish(spec.workspace);
    used = native::use_workspace(home, spec);
  }
  if (!used.ok()) {
    return used.error();
  }
  trees.insert(trees.begin(), std::move(used->tree));
  workspace = std::move(used.value());
  return {};
}

Result<std::string> make_sandbox(storage::Home& home, Wish wish) {
  CARREL_TRY(native::check_network(home, wish.spec));
  native::CreateRequest request;
  request.spec = std::move(wish.spec);
  request.trees = std::move(wish.trees);
  request.name = std::move(wish.name);
  request.lease_ms = wish.lease_ms;
  std::optional<native::UsedWorkspace> workspace;
  CARREL_TRY(add_workspace(home, request.spec, request.trees, workspace, wish.finish_restore));
  CARREL_ASSIGN(const auto image, resolve_image(home, wish.given, request.spec));
  const std::string workdir = request.spec.workdir;
  CARREL_ASSIGN(std::string id, native::create_sandbox(home, std::move(request), wish.chosen));
  if (Status served = native::serve_network(home, id); !served.ok()) {
    if (auto record = storage::read_record(home, id); record.ok()) {
      (void)native::remove_sandbox(home, record.value(), 0, "it had no network");
    }
    return served.error();
  }
  // The default one is part of every sandbox.
  if (workdir != policy::Spec{}.workdir) {
    CARREL_TRY(native::ensure_workdir(home, id));
  }
  return id;
}

}  // namespace carrel::manager
