#include "protocol/boot.h"

namespace carrel::protocol {

void write_step(Writer& writer, const MountStep& step) {
  writer.u8(static_cast<std::uint8_t>(step.kind));
  writer.u32(step.flags);
  writer.u32(step.mode);
  writer.u8(step.slot);
  writer.u64(step.size);
  writer.u64(step.count);
  writer.bytes(step.path);
  writer.bytes(step.source);
}

bool parse_step(Reader& plan, MountStep& step) {
  if (!plan.ok() || plan.finished()) {
    return false;
  }
  std::uint8_t kind = plan.u8();
  step.kind = static_cast<StepKind>(kind);
  step.flags = plan.u32();
  step.mode = plan.u32();
  step.slot = plan.u8();
  step.size = plan.u64();
  step.count = plan.u64();
  step.path = plan.text(kMaxPath);
  step.source = plan.bytes(kMaxPlan);
  const std::size_t slots = step.kind == StepKind::kTree ? kMaxTrees : kMaxTmpfs;
  if (kind < 1 || kind > 17 || (step.flags & ~std::uint32_t{kStepAllFlags}) != 0 ||
      step.mode > 07777 || step.slot >= slots) {
    plan.fail();
  }
  return plan.ok();
}

void write_plan(Writer& writer, const Plan& plan) {
  writer.bytes(plan.staging);
  writer.bytes(plan.shared);
  writer.bytes(plan.alike);
  writer.bytes(plan.own);
}

bool parse_plan(std::string_view payload, Plan& plan) {
  Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  plan.staging = reader.text(kMaxPath);
  plan.shared = reader.bytes(kMaxPlan);
  plan.alike = reader.bytes(kMaxPlan);
  plan.own = reader.bytes(kMaxPlan);
  return reader.finished() && plan.staging.starts_with('/') && !plan.shared.empty() &&
         !plan.alike.empty() && !plan.own.empty();
}

namespace {

bool are_equal(const MountStep& a, const MountStep& b) {
  return a.kind == b.kind && a.flags == b.flags && a.mode == b.mode && a.slot == b.slot &&
         a.size == b.size && a.count == b.count && a.path == b.path && a.source == b.source;
}

// Whether the one can be made of the other when that is done.
bool can_become(const MountStep& built, const MountStep& wanted) {
  const bool alike = built.kind == wanted.kind && built.flags == wanted.flags &&
                     built.mode == wanted.mode && built.slot == wanted.slot &&
                     built.path == wanted.path;
  return alike && (wanted.kind == StepKind::kTmpfs || wanted.kind == StepKind::kReplace);
}

}  // namespace

bool write_rest(std::string_view built, std::string_view wanted, Writer& rest) {
  PlanReader before(built);
  PlanReader steps(wanted);
  MountStep done;
  MountStep step;
  while (before.next(done)) {
    if (!steps.next(step) || (!are_equal(done, step) && !can_become(done, step))) {
      return false;
    }
    if (!are_equal(done, step)) {
      write_step(rest, step);
    }
  }
  while (steps.next(step)) {
    write_step(rest, step);
  }
  return before.ok() && steps.ok() && rest.ok();
}

namespace {

void write_captive(Writer& writer, const Captive& captive) {
  writer.bytes(captive.routes);
  writer.bytes(captive.routes6);
  writer.bytes(captive.rules);
}

Captive read_captive(Reader& reader) {
  Captive captive;
  captive.routes = reader.bytes(kMaxNetlink);
  captive.routes6 = reader.bytes(kMaxNetlink);
  captive.rules = reader.bytes(kMaxNetlink);
  if (captive.routes.empty() != captive.rules.empty()) {
    reader.fail();
  }
  return captive;
}

}  // namespace

void write_nursery(Writer& writer, const Nursery& nursery) {
  writer.bytes(nursery.staging);
  writer.bytes(nursery.shared);
  writer.bytes(nursery.alike);
  writer.bytes(nursery.terms);
  write_captive(writer, nursery.captive);
}

bool parse_nursery(std::string_view payload, Nursery& nursery) {
  Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  nursery.staging = reader.text(kMaxPath);
  nursery.shared = reader.bytes(kMaxPlan);
  nursery.alike = reader.bytes(kMaxPlan);
  nursery.terms = reader.bytes(kMaxTerms);
  nursery.captive = read_captive(reader);
  return reader.finished() && nursery.staging.starts_with('/') && !nursery.shared.empty() &&
         !nursery.alike.empty();
}

void write_spawn(Writer& writer, const Spawn& spawn) {
  writer.bytes(spawn.shared);
  writer.bytes(spawn.alike);
  writer.bytes(spawn.terms);
  writer.bytes(spawn.own);
  writer.u32(spawn.uid);
  writer.u32(spawn.gid);
  write_captive(writer, spawn.captive);
}

bool parse_spawn(std::string_view payload, Spawn& spawn) {
  Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  spawn.shared = reader.bytes(kMaxPlan);
  spawn.alike = reader.bytes(kMaxPlan);
  spawn.terms = reader.bytes(kMaxTerms);
  spawn.own = reader.bytes(kMaxPlan);
  spawn.uid = reader.u32();
  spawn.gid = reader.u32();
  spawn.captive = read_captive(reader);
  return reader.finished() && !spawn.shared.empty() && !spawn.alike.empty() && !spawn.own.empty() &&
         (spawn.uid == 0) == (spawn.gid == 0);
}

void write_spawned(Writer& writer, const Spawned& spawned) {
  writer.u32(spawned.error);
  writer.u32(spawned.present);
}

bool parse_spawned(std::string_view payload, Spawned& spawned) {
  Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  spawned.error = reader.u32();
  spawned.present = reader.u32();
  return reader.finished() && spawned.present >> kNetworkSockets == 0;
}

bool PlanReader::next(MountStep& step) {
  if (!parse_step(reader_, step)) {
    return false;
  }
  if (++count_ > kMaxSteps) {
    reader_.fail();
  }
  return reader_.ok();
}

void write_boot(Writer& writer, const Boot& boot) {
  writer.bytes(boot.id);
  writer.u32(boot.flags);
  writer.u32(boot.own_join_descriptors);
  writer.u32(boot.join_descriptors);
  writer.bytes(boot.hostname);
  writer.u32(boot.uid);
  writer.u32(boot.gid);
  writer.u32(boot.outer_uid);
  writer.u32(boot.outer_gid);
  writer.u32(boot.processes);
  writer.u32(boot.open_files);
  writer.u64(boot.file_bytes);
  writer.u64(boot.memory_watch_bytes);
  writer.u64(boot.disk_watch_bytes);
  writer.u32(boot.cpus);
  writer.u64(boot.lease_ms);
  writer.bytes(boot.workdir);
  write_list(writer, boot.environment);
  write_list(writer, boot.writable);
  writer.bytes(boot.guest_filter);
  writer.bytes(boot.workload_filter);
  write_captive(writer, boot.captive);
}

bool parse_boot(std::string_view payload, Boot& boot) {
  Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  boot.id = reader.text(kIdSize);
  boot.flags = reader.u32();
  boot.own_join_descriptors = reader.u32();
  boot.join_descriptors = reader.u32();
  boot.hostname = reader.text(kMaxName);
  boot.uid = reader.u32();
  boot.gid = reader.u32();
  boot.outer_uid = reader.u32();
  boot.outer_gid = reader.u32();
  boot.processes = reader.u32();
  boot.open_files = reader.u32();
  boot.file_bytes = reader.u64();
  boot.memory_watch_bytes = reader.u64();
  boot.disk_watch_bytes = reader.u64();
  boot.cpus = reader.u32();
  boot.lease_ms = reader.u64();
  boot.workdir = reader.text(kMaxPath);
  boot.environment = read_list(reader);
  boot.writable = read_list(reader);
  boot.guest_filter = reader.bytes(kMaxFilter);
  boot.workload_filter = reader.bytes(kMaxFilter);
  boot.captive = read_captive(reader);
  // A guest that locks itself in behind somebody else's walls begins as the only user there is,
  // which an engine's container with gVisor's kernel has several of: there it is the caller's. A
  // guest can have no other than its own, and the kernel sees to that.
  const bool only_root = (boot.flags & kBootLocksIn) != 0;
  const bool any_user = only_root && (boot.flags & kBootGvisor) != 0;
  return reader.finished() && boot.id.size() == kIdSize &&
         (boot.flags & ~std::uint32_t{kBootAllFlags}) == 0 &&
         boot.own_join_descriptors <= kMaxJoin && boot.join_descriptors <= kMaxJoin &&
         !boot.workdir.empty() && boot.workdir.front() == '/' && boot.uid != 0 && boot.gid != 0 &&
         (any_user || ((boot.outer_uid == 0) == only_root && (boot.outer_gid == 0) == only_root)) &&
         boot.processes != 0 && boot.open_files != 0 && boot.lease_ms <= kMaxTimeoutMs &&
         !boot.guest_filter.empty() && boot.guest_filter.size() % 8 == 0 &&
         !boot.workload_filter.empty() && boot.workload_filter.size() % 8 == 0;
}

bool has_same_lock(const Boot& one, const Boot& other) {
  return one.id == other.id && one.flags == other.flags &&
         one.own_join_descriptors == other.own_join_descriptors &&
         one.join_descriptors == other.join_descriptors && one.hostname == other.hostname &&
         one.uid == other.uid && one.gid == other.gid && one.outer_uid == other.outer_uid &&
         one.outer_gid == other.outer_gid && one.writable.count == other.writable.count &&
         one.writable.data == other.writable.data && one.guest_filter == other.guest_filter &&
         one.captive == other.captive;
}

bool has_same_workload(const Boot& one, const Boot& other) {
  return one.flags == other.flags && one.processes == other.processes &&
         one.open_files == other.open_files && one.file_bytes == other.file_bytes &&
         one.cpus == other.cpus && one.workdir == other.workdir &&
         one.environment.count == other.environment.count &&
         one.environment.data == other.environment.data && one.guest_filter == other.guest_filter &&
         one.workload_filter == other.workload_filter;
}

}  // namespace carrel::protocol
