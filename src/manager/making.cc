#include "manager/making.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backends/native/keeper_client.h"
#include "backends/native/network.h"
#include "backends/native/remains.h"
#include "backends/native/workdir.h"
#include "manager/stopping.h"
#include "policy/validate.h"
#include "storage/box.h"
#include "storage/box_use.h"

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

namespace {

// What is asked of the keeper, and of a new sandbox also how to ask for it again.
native::CreateRequest request_of(Wish& wish) {
  native::CreateRequest request;
  request.spec = std::move(wish.spec);
  request.trees = std::move(wish.trees);
  request.name = std::move(wish.name);
  request.lease_ms = wish.lease_ms;
  if (!wish.stopped.empty()) {
    request.id = wish.stopped;
    request.origin = native::CreateRequest::Origin::kStopped;
  }
  return request;
}

void take_back(storage::Home& home, const std::string& id, const Wish& wish,
               const std::string& reason) {
  auto record = storage::read_record(home, id);
  if (record.ok() && wish.stopped.empty()) {
    (void)native::remove_sandbox(home, record.value(), 0, reason);
  } else if (record.ok()) {
    (void)native::stop_sandbox(home, record.value(), 0, reason, storage::Wake::kWhenTold);
  }
}

}  // namespace

Result<std::string> make_sandbox(storage::Home& home, Wish wish) {
  CARREL_TRY(native::check_network(home, wish.spec));
  if (wish.spec.on_idle == policy::OnIdle::kStop && wish.spec.workspace.empty()) {
    return Error{Code::kInvalid, 0, "a sandbox that stops when idle needs a workspace of a name",
                 "give it --workspace NAME, or choose pause or remove"};
  }
  if (wish.spec.on_failure == policy::OnFailure::kRecreate && wish.spec.workspace.empty()) {
    return Error{Code::kInvalid, 0, "a sandbox that is made again needs a workspace of a name",
                 "give it --workspace NAME"};
  }
  const bool comes_back = !wish.spec.workspace.empty() && wish.stopped.empty();
  const std::string text = comes_back ? wish_to_json(wish) : std::string();
  const Lasting lasting =
      wish.spec.on_failure == policy::OnFailure::kRecreate ? Lasting::kSynced : Lasting::kUnsynced;
  native::CreateRequest request = request_of(wish);
  std::optional<native::UsedWorkspace> workspace;
  CARREL_TRY(add_workspace(home, request.spec, request.trees, workspace, wish.finish_restore));
  CARREL_ASSIGN(const auto image, resolve_image(home, wish.given, request.spec));
  const std::string workdir = request.spec.workdir;
  const std::uint64_t lease_ms = request.lease_ms;
  std::string last;  // the id that it would have had
  auto note_id = [&](const std::string& chosen) -> Status {
    if (comes_back) {
      storage::drop_wish(home, last);
      last = chosen;
      CARREL_TRY(storage::put_wish(home, chosen, text, lasting));
    }
    return wish.chosen ? wish.chosen(chosen) : Status();
  };
  auto id = native::create_sandbox(home, std::move(request), note_id, wish.warm, wish.here);
  if (!id.ok()) {
    if (comes_back) {
      storage::drop_wish(home, last);
    }
    return id.error();
  }
  if (lease_ms != 0) {
    storage::note_lease(home, id.value(), lease_ms);
  }
  if (Status served = native::serve_network(home, id.value()); !served.ok()) {
    take_back(home, id.value(), wish, "it had no network");
    return served.error();
  }
  // The default one is part of every sandbox.
  if (workdir != policy::Spec{}.workdir) {
    CARREL_TRY(native::ensure_workdir(home, id.value()));
  }
  return id;
}

}  // namespace carrel::manager
