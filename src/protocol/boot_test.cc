#include "protocol/boot.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace carrel::protocol {
namespace {

const std::string kId = "01234567-89ab-4cde-8f01-23456789abcd";
const std::string kEnvironment("PATH=/bin\0HOME=/home/agent\0", 27);
const std::string kWritable("/workspace\0/tmp\0", 16);
const std::string kFilter(16, '\1');

Boot some_boot() {
  Boot boot;
  boot.id = kId;
  boot.flags = kBootAllFlags & ~std::uint32_t{kBootLocksIn};
  boot.own_join_descriptors = kMaxJoin;
  boot.join_descriptors = kMaxJoin - 1;
  boot.hostname = "sandbox";
  boot.uid = 1000;
  boot.gid = 1001;
  boot.outer_uid = 1002;
  boot.outer_gid = 1003;
  boot.processes = 50;
  boot.open_files = 4096;
  boot.file_bytes = 1ULL << 30;
  boot.memory_watch_bytes = 512ULL << 20;
  boot.cpus = 3;
  boot.lease_ms = 1;
  boot.workdir = "/workspace";
  boot.environment = {2, kEnvironment};
  boot.writable = {2, kWritable};
  boot.guest_filter = kFilter;
  boot.workload_filter = std::string_view(kFilter).substr(8);
  return boot;
}

std::string encode(const Boot& boot) {
  constexpr std::size_t kRoom = 4U << 20;
  const auto room = std::make_unique_for_overwrite<unsigned char[]>(kRoom);
  Writer writer({room.get(), kRoom});
  write_boot(writer, boot);
  EXPECT_TRUE(writer.ok());
  return {writer.written().begin(), writer.written().end()};
}

bool accepted(const Boot& boot) {
  Boot parsed;
  return parse_boot(encode(boot), parsed);
}

std::string encode(const MountStep& step) {
  std::string room(step.path.size() + step.source.size() + 64, '\0');
  Writer writer({reinterpret_cast<unsigned char*>(room.data()), room.size()});
  write_step(writer, step);
  EXPECT_TRUE(writer.ok());
  room.resize(writer.size());
  return room;
}

Reader reader_of(const std::string& plan) {
  return Reader({reinterpret_cast<const unsigned char*>(plan.data()), plan.size()});
}

bool accepted(const MountStep& step) {
  const std::string plan = encode(step);
  Reader reader = reader_of(plan);
  MountStep parsed;
  return parse_step(reader, parsed) && reader.finished();
}

MountStep some_step() {
  MountStep step;
  step.kind = StepKind::kBind;
  step.flags = kStepReadOnly | kStepOptional;
  step.mode = 07777;
  step.slot = kMaxTmpfs - 1;
  step.size = ~0ULL;
  step.count = 1ULL << 33;
  step.path = "usr/share";
  step.source = std::string_view("/usr\0binary", 11);
  return step;
}

TEST(Boot, IsReadBackAsWritten) {
  const std::string payload = encode(some_boot());
  Boot parsed;
  ASSERT_TRUE(parse_boot(payload, parsed));
  EXPECT_EQ(parsed.id, kId);
  EXPECT_EQ(parsed.flags, some_boot().flags);
  EXPECT_EQ(parsed.own_join_descriptors, kMaxJoin);
  EXPECT_EQ(parsed.join_descriptors, kMaxJoin - 1);
  EXPECT_EQ(parsed.hostname, "sandbox");
  EXPECT_EQ(parsed.uid, 1000U);
  EXPECT_EQ(parsed.gid, 1001U);
  EXPECT_EQ(parsed.outer_uid, 1002U);
  EXPECT_EQ(parsed.outer_gid, 1003U);
  EXPECT_EQ(parsed.processes, 50U);
  EXPECT_EQ(parsed.open_files, 4096U);
  EXPECT_EQ(parsed.file_bytes, 1ULL << 30);
  EXPECT_EQ(parsed.memory_watch_bytes, 512ULL << 20);
  EXPECT_EQ(parsed.cpus, 3U);
  EXPECT_EQ(parsed.lease_ms, 1U);
  EXPECT_EQ(parsed.workdir, "/workspace");
  EXPECT_EQ(parsed.environment.data, kEnvironment);
  EXPECT_EQ(parsed.writable.data, kWritable);
  EXPECT_EQ(parsed.guest_filter, kFilter);
  EXPECT_EQ(parsed.workload_filter.size(), 8U);
  EXPECT_EQ(encode(parsed), payload);
}

TEST(PlanReader, PlanHasAnEnd) {
  MountStep step;
  std::string plan;
  for (std::size_t i = 0; i < kMaxSteps; ++i) {
    plan += encode(MountStep());
  }
  PlanReader whole(plan);
  std::size_t count = 0;
  while (whole.next(step)) {
    ++count;
  }
  EXPECT_TRUE(whole.ok());
  EXPECT_EQ(count, kMaxSteps);
  plan += encode(MountStep());
  PlanReader longer(plan);
  while (longer.next(step)) {
  }
  EXPECT_FALSE(longer.ok());
}

TEST(Boot, IsExactlyAsLongAsItsFields) {
  const std::string payload = encode(some_boot());
  Boot parsed;
  for (std::size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(parse_boot(std::string(payload, 0, size), parsed)) << size;
  }
  EXPECT_FALSE(parse_boot(payload + '\0', parsed));
}

TEST(Boot, BehindGvisorWhoLocksHimselfInMayBeAnybody) {
  for (const std::uint32_t user : {0U, 1002U}) {
    Boot boot = some_boot();
    boot.flags = kBootLocksIn | kBootGvisor;
    boot.outer_uid = boot.outer_gid = user;
    Boot parsed;
    const std::string payload = encode(boot);
    EXPECT_TRUE(parse_boot(payload, parsed));
    EXPECT_EQ(parsed.outer_uid, user);
  }
}

TEST(Boot, NothingThatWouldWeakenTheSandboxIsAccepted) {
  const std::vector<std::pair<const char*, std::function<void(Boot&)>>> changes = {
      {"uid 0", [](Boot& boot) { boot.uid = 0; }},
      {"gid 0", [](Boot& boot) { boot.gid = 0; }},
      {"outer uid 0", [](Boot& boot) { boot.outer_uid = 0; }},
      {"a user outside of one that locks itself in",
       [](Boot& boot) { boot.flags = protocol::kBootLocksIn; }},
      {"outer gid 0", [](Boot& boot) { boot.outer_gid = 0; }},
      {"no limit of processes", [](Boot& boot) { boot.processes = 0; }},
      {"no limit of open files", [](Boot& boot) { boot.open_files = 0; }},
      {"no filter for the guest", [](Boot& boot) { boot.guest_filter = {}; }},
      {"no filter for the workload", [](Boot& boot) { boot.workload_filter = {}; }},
      {"half an instruction", [](Boot& boot) { boot.guest_filter.remove_suffix(1); }},
      {"half an instruction", [](Boot& boot) { boot.workload_filter.remove_suffix(4); }},
      {"an unknown flag", [](Boot& boot) { boot.flags = kBootAllFlags + 1U; }},
      {"an unknown flag", [](Boot& boot) { boot.flags = 1U << 31; }},
      {"a relative directory", [](Boot& boot) { boot.workdir = "workspace"; }},
      {"a lease without an end", [](Boot& boot) { boot.lease_ms = kMaxTimeoutMs + 1; }},
      {"no directory", [](Boot& boot) { boot.workdir = {}; }},
      {"a short id", [](Boot& boot) { boot.id.remove_suffix(1); }},
      {"too many descriptors", [](Boot& boot) { boot.join_descriptors = kMaxJoin + 1; }},
      {"too many of its own", [](Boot& boot) { boot.own_join_descriptors = kMaxJoin + 1; }},
      {"more variables than there are", [](Boot& boot) { boot.environment.count = 3; }},
      {"fewer writable paths than there are", [](Boot& boot) { boot.writable.count = 1; }},
      {"a path without its end", [](Boot& boot) { boot.writable.data.remove_suffix(1); }},
  };
  ASSERT_TRUE(accepted(some_boot()));
  for (const auto& [what, change] : changes) {
    Boot boot = some_boot();
    change(boot);
    EXPECT_FALSE(accepted(boot)) << what;
  }
}

TEST(Boot, EveryFieldHasALimit) {
  const std::string text(kMaxPlan + 8, '/');
  const std::string_view view(text);
  const std::vector<std::pair<std::size_t, std::function<void(Boot&, std::string_view)>>> fields = {
      {kMaxName, [](Boot& boot, std::string_view value) { boot.hostname = value; }},
      {kMaxPath, [](Boot& boot, std::string_view value) { boot.workdir = value; }},
  };
  for (std::size_t i = 0; i < fields.size(); ++i) {
    Boot boot = some_boot();
    fields[i].second(boot, view.substr(0, fields[i].first));
    EXPECT_TRUE(accepted(boot)) << i;
    fields[i].second(boot, view.substr(0, fields[i].first + 1));
    EXPECT_FALSE(accepted(boot)) << i;
  }
  Boot boot = some_boot();
  boot.guest_filter = boot.workload_filter = view.substr(0, kMaxFilter);
  EXPECT_TRUE(accepted(boot));
  boot.guest_filter = view.substr(0, kMaxFilter + 8);
  EXPECT_FALSE(accepted(boot));
  boot = some_boot();
  boot.workload_filter = view.substr(0, kMaxFilter + 8);
  EXPECT_FALSE(accepted(boot));
  const std::string long_id = kId + "0";
  boot = some_boot();
  boot.id = long_id;
  EXPECT_FALSE(accepted(boot));
}

TEST(Boot, NulIsNowhereInText) {
  const std::vector<std::function<void(Boot&, std::string_view)>> fields = {
      [](Boot& boot, std::string_view value) { boot.hostname = value; },
      [](Boot& boot, std::string_view value) { boot.workdir = value; },
  };
  for (std::size_t i = 0; i < fields.size(); ++i) {
    Boot boot = some_boot();
    fields[i](boot, std::string_view("/a\0b", 4));
    EXPECT_FALSE(accepted(boot)) << i;
  }
  std::string id = kId;
  id[3] = '\0';
  Boot boot = some_boot();
  boot.id = id;
  EXPECT_FALSE(accepted(boot));
}

std::string encode(const Plan& plan) {
  std::string room(
      plan.staging.size() + plan.shared.size() + plan.alike.size() + plan.own.size() + 64, '\0');
  Writer writer({reinterpret_cast<unsigned char*>(room.data()), room.size()});
  write_plan(writer, plan);
  EXPECT_TRUE(writer.ok());
  room.resize(writer.size());
  return room;
}

// What a guest does once, and cannot do again for another message.
TEST(Boot, LockIsTheSameOnlyWhereAllThatItIsMadeOfIs) {
  const Boot boot = some_boot();
  const std::vector<std::function<void(Boot&)>> of_the_lock = {
      [](Boot& other) { other.id = "11234567-89ab-4cde-8f01-23456789abcd"; },
      [](Boot& other) { other.flags ^= kBootLandlock; },
      [](Boot& other) { other.flags ^= kBootWritableRoot; },
      [](Boot& other) { --other.own_join_descriptors; },
      [](Boot& other) { --other.join_descriptors; },
      [](Boot& other) { other.hostname = "other"; },
      [](Boot& other) { ++other.uid; },
      [](Boot& other) { ++other.gid; },
      [](Boot& other) { ++other.outer_uid; },
      [](Boot& other) { ++other.outer_gid; },
      [](Boot& other) { other.writable = {1, std::string_view(kWritable).substr(0, 11)}; },
      [](Boot& other) { other.guest_filter = std::string_view(kFilter).substr(8); },
      [](Boot& other) { other.captive.rules = "rules"; },
  };
  for (std::size_t i = 0; i < of_the_lock.size(); ++i) {
    Boot other = some_boot();
    of_the_lock[i](other);
    EXPECT_FALSE(has_same_lock(boot, other)) << i;
  }
  Boot later = some_boot();
  later.processes = later.open_files = later.cpus = 7;
  later.file_bytes = later.memory_watch_bytes = later.disk_watch_bytes = later.lease_ms = 7;
  later.workdir = "/tmp";
  later.environment = {1, std::string_view(kEnvironment).substr(0, 10)};
  later.workload_filter = kFilter;
  EXPECT_TRUE(has_same_lock(boot, later));
}

// What the first process of the workload has, and every other one from it.
TEST(Boot, WorkloadIsTheSameOnlyWhereAllThatItInheritsIs) {
  const Boot boot = some_boot();
  const std::vector<std::function<void(Boot&)>> of_the_workload = {
      [](Boot& other) { other.flags ^= kBootLandlock; },
      [](Boot& other) { ++other.processes; },
      [](Boot& other) { ++other.open_files; },
      [](Boot& other) { ++other.file_bytes; },
      [](Boot& other) { ++other.cpus; },
      [](Boot& other) { other.workdir = "/tmp"; },
      [](Boot& other) { other.environment = {1, std::string_view(kEnvironment).substr(0, 10)}; },
      [](Boot& other) { other.guest_filter = std::string_view(kFilter).substr(8); },
      [](Boot& other) { other.workload_filter = kFilter; },
  };
  for (std::size_t i = 0; i < of_the_workload.size(); ++i) {
    Boot other = some_boot();
    of_the_workload[i](other);
    EXPECT_FALSE(has_same_workload(boot, other)) << i;
  }
  Boot later = some_boot();
  later.memory_watch_bytes = later.disk_watch_bytes = later.lease_ms = 7;
  EXPECT_TRUE(has_same_workload(boot, later));
}

TEST(Plan, IsReadBackAsWritten) {
  const std::string_view steps("steps\0with zero", 15);
  const std::string payload = encode(Plan{"/sys", steps, "alike", "own"});
  Plan parsed;
  ASSERT_TRUE(parse_plan(payload, parsed));
  EXPECT_EQ(parsed.staging, "/sys");
  EXPECT_EQ(parsed.shared, steps);
  EXPECT_EQ(parsed.alike, "alike");
  EXPECT_EQ(parsed.own, "own");
  for (std::size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(parse_plan(std::string(payload, 0, size), parsed)) << size;
  }
  EXPECT_FALSE(parse_plan(payload + '\0', parsed));
}

TEST(Plan, IsRefusedWhenItMakesNoSense) {
  const std::string text(kMaxPlan + 1, '/');
  const std::string_view view(text);
  Plan parsed;
  const std::string_view most = view.substr(0, kMaxPlan);
  EXPECT_TRUE(parse_plan(encode(Plan{view.substr(0, kMaxPath), most, "alike", "own"}), parsed));
  EXPECT_FALSE(
      parse_plan(encode(Plan{view.substr(0, kMaxPath + 1), "steps", "alike", "own"}), parsed));
  EXPECT_FALSE(parse_plan(encode(Plan{"/sys", view, "alike", "own"}), parsed));
  EXPECT_FALSE(parse_plan(encode(Plan{"/sys", "steps", "alike", view}), parsed));
  EXPECT_FALSE(parse_plan(encode(Plan{"sys", "steps", "alike", "own"}), parsed));
  EXPECT_FALSE(parse_plan(encode(Plan{"", "steps", "alike", "own"}), parsed));
  EXPECT_FALSE(parse_plan(encode(Plan{"/sys", "", "alike", "own"}), parsed));
  EXPECT_FALSE(parse_plan(encode(Plan{"/sys", "steps", "alike", ""}), parsed));
  EXPECT_FALSE(parse_plan(encode(Plan{"/sys", "steps", "", "own"}), parsed));
  EXPECT_FALSE(
      parse_plan(encode(Plan{std::string_view("/a\0b", 4), "steps", "alike", "own"}), parsed));
}

template <typename Message, typename Write>
std::string encode_with(const Message& message, Write write) {
  std::string room(3 * kMaxPlan + 64, '\0');
  Writer writer({reinterpret_cast<unsigned char*>(room.data()), room.size()});
  write(writer, message);
  EXPECT_TRUE(writer.ok());
  room.resize(writer.size());
  return room;
}

constexpr Captive kCaptive{"routes", "routes6", "rules"};

TEST(Nursery, IsReadBackAsWritten) {
  const std::string payload =
      encode_with(protocol::Nursery{"/sys", "steps", "alike", "1:2", kCaptive}, write_nursery);
  protocol::Nursery parsed;
  ASSERT_TRUE(parse_nursery(payload, parsed));
  EXPECT_EQ(parsed.staging, "/sys");
  EXPECT_EQ(parsed.shared, "steps");
  EXPECT_EQ(parsed.terms, "1:2");
  EXPECT_EQ(parsed.captive, kCaptive);
  for (std::size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(parse_nursery(std::string(payload, 0, size), parsed)) << size;
  }
  EXPECT_FALSE(parse_nursery(payload + '\0', parsed));
  const std::string long_terms(kMaxTerms + 1, '1');
  for (const protocol::Nursery& bad :
       {protocol::Nursery{"sys", "steps", "alike", "", {}},
        protocol::Nursery{"/sys", "", "alike", "", {}},
        protocol::Nursery{"/sys", "steps", "", "", {}},
        protocol::Nursery{"/sys", "steps", "alike", long_terms, {}},
        protocol::Nursery{"/sys", "steps", "alike", "", {"", "6", "rules"}}}) {
    EXPECT_FALSE(parse_nursery(encode_with(bad, write_nursery), parsed));
  }
}

TEST(Spawn, IsReadBackAsWritten) {
  const std::string payload =
      encode_with(Spawn{"steps", "alike", "1:2", "own", 7, 8, kCaptive}, write_spawn);
  Spawn parsed;
  ASSERT_TRUE(parse_spawn(payload, parsed));
  EXPECT_EQ(parsed.shared, "steps");
  EXPECT_EQ(parsed.terms, "1:2");
  EXPECT_EQ(parsed.captive, kCaptive);
  EXPECT_EQ(parsed.own, "own");
  EXPECT_EQ(parsed.uid, 7U);
  EXPECT_EQ(parsed.gid, 8U);
  for (std::size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(parse_spawn(std::string(payload, 0, size), parsed)) << size;
  }
  EXPECT_FALSE(parse_spawn(payload + '\0', parsed));
  for (const Spawn& bad :
       {Spawn{"", "alike", "", "own", 1, 1, {}}, Spawn{"steps", "", "", "own", 1, 1, {}},
        Spawn{"steps", "alike", "", "", 1, 1, {}}, Spawn{"steps", "alike", "", "own", 1, 0, {}},
        Spawn{"steps", "alike", "", "own", 0, 1, {}},
        Spawn{"steps", "alike", "", "own", 1, 1, {"routes", "", ""}}}) {
    EXPECT_FALSE(parse_spawn(encode_with(bad, write_spawn), parsed));
  }
}

TEST(Spawned, IsReadBackAsWritten) {
  const std::string payload = encode_with(Spawned{7, 5}, write_spawned);
  EXPECT_EQ(payload.size(), kSpawnedSize);
  Spawned parsed;
  ASSERT_TRUE(parse_spawned(payload, parsed));
  EXPECT_EQ(parsed.error, 7U);
  EXPECT_EQ(parsed.present, 5U);
  EXPECT_FALSE(parse_spawned(payload + '\0', parsed));
  EXPECT_FALSE(parse_spawned(std::string(payload, 1), parsed));
  const Spawned more{0, 1U << kNetworkSockets};
  EXPECT_FALSE(parse_spawned(encode_with(more, write_spawned), parsed));
}

TEST(MountStep, IsReadBackAsWritten) {
  const std::string plan = encode(some_step());
  Reader reader = reader_of(plan);
  MountStep parsed;
  ASSERT_TRUE(parse_step(reader, parsed));
  EXPECT_EQ(parsed.kind, StepKind::kBind);
  EXPECT_EQ(parsed.flags, kStepReadOnly | kStepOptional);
  EXPECT_EQ(parsed.mode, 07777U);
  EXPECT_EQ(parsed.slot, kMaxTmpfs - 1);
  EXPECT_EQ(parsed.size, ~0ULL);
  EXPECT_EQ(parsed.count, 1ULL << 33);
  EXPECT_EQ(parsed.path, "usr/share");
  EXPECT_EQ(parsed.source, std::string_view("/usr\0binary", 11));
  EXPECT_EQ(encode(parsed), plan);
}

TEST(MountStep, PlanEndsAfterItsLastStepWithoutAnError) {
  const std::string plan = encode(some_step()) + encode(some_step());
  Reader reader = reader_of(plan);
  MountStep step;
  EXPECT_TRUE(parse_step(reader, step));
  EXPECT_TRUE(parse_step(reader, step));
  EXPECT_FALSE(parse_step(reader, step));
  EXPECT_TRUE(reader.finished());
}

std::string step_of(StepKind kind, std::string_view path, std::uint64_t size,
                    std::string_view source) {
  MountStep step;
  step.kind = kind;
  step.path = path;
  step.size = size;
  step.source = source;
  return encode(step);
}

// The rest of `wanted`; "(none)" where it is another plan.
std::string rest_of(const std::string& built, const std::string& wanted) {
  std::string rest(wanted.size(), '\0');
  Writer writer({reinterpret_cast<unsigned char*>(rest.data()), rest.size()});
  if (!write_rest(built, wanted, writer)) {
    return "(none)";
  }
  rest.resize(writer.size());
  return rest;
}

TEST(Rest, IsWhatThePlanHasBeyondWhatIsBuilt) {
  const std::string disk = step_of(StepKind::kTmpfs, "/tmp", 1, "");
  const std::string larger = step_of(StepKind::kTmpfs, "/tmp", 2, "");
  const std::string attached = step_of(StepKind::kAttach, "tmp", 0, "tmp");
  const std::string text = step_of(StepKind::kReplace, "proc/stat", 0, "a");
  const std::string other = step_of(StepKind::kReplace, "proc/stat", 0, "b");
  const std::string tree = step_of(StepKind::kTree, "data", 0, "");
  const std::string built = disk + attached + text;
  EXPECT_EQ(rest_of(built, built), "");
  EXPECT_EQ(rest_of(built, larger + attached + text), larger);
  EXPECT_EQ(rest_of(built, disk + attached + other + tree), other + tree);
  EXPECT_EQ(rest_of(built, built + tree), tree);
}

TEST(Rest, ThereIsNoneOfAPlanThatIsAnother) {
  const std::string disk = step_of(StepKind::kTmpfs, "/tmp", 1, "");
  const std::string attached = step_of(StepKind::kAttach, "tmp", 0, "tmp");
  const std::string text = step_of(StepKind::kReplace, "proc/stat", 0, "a");
  const std::string built = disk + attached + text;
  // Something that is built would stay, or be somewhere else.
  EXPECT_EQ(rest_of(built, disk + text), "(none)");
  EXPECT_EQ(rest_of(built, disk + attached), "(none)");
  EXPECT_EQ(rest_of(built, attached + disk + text), "(none)");
  EXPECT_EQ(rest_of(built, disk + step_of(StepKind::kAttach, "tmp", 0, "other") + text), "(none)");
  EXPECT_EQ(rest_of(built, disk + attached + step_of(StepKind::kReplace, "proc/x", 0, "a")),
            "(none)");
  EXPECT_EQ(rest_of(built, built.substr(0, built.size() - 1)), "(none)");
}

TEST(MountStep, PlanCutInsideAStepIsAnError) {
  const std::string plan = encode(some_step());
  for (std::size_t size = 1; size < plan.size(); ++size) {
    const std::string cut(plan, 0, size);
    Reader reader = reader_of(cut);
    MountStep step;
    EXPECT_FALSE(parse_step(reader, step)) << size;
    EXPECT_FALSE(reader.ok()) << size;
  }
}

TEST(MountStep, NoStepIsReadAfterAMalformedOne) {
  MountStep bad = some_step();
  bad.mode = 010000;
  const std::string plan = encode(bad) + encode(some_step());
  Reader reader = reader_of(plan);
  MountStep step;
  EXPECT_FALSE(parse_step(reader, step));
  EXPECT_FALSE(parse_step(reader, step));
  EXPECT_FALSE(reader.ok());
}

TEST(MountStep, UnknownKindIsRefused) {
  for (unsigned kind = 0; kind < 256; ++kind) {
    MountStep step = some_step();
    step.kind = static_cast<StepKind>(kind);
    EXPECT_EQ(accepted(step), kind >= 1 && kind <= 17) << kind;
  }
}

TEST(MountStep, UnknownFlagsAreRefused) {
  for (unsigned bit = 0; bit < 32; ++bit) {
    MountStep step = some_step();
    step.flags = 1U << bit;
    EXPECT_EQ(accepted(step), bit < 4) << bit;
  }
}

TEST(MountStep, SlotIsOneOfTheTable) {
  for (unsigned slot = 0; slot < 256; ++slot) {
    MountStep step = some_step();
    step.slot = static_cast<std::uint8_t>(slot);
    EXPECT_EQ(accepted(step), slot < kMaxTmpfs) << slot;
    step.kind = StepKind::kTree;
    EXPECT_EQ(accepted(step), slot < kMaxTrees) << slot;
  }
}

TEST(MountStep, PathIsTextWithALimit) {
  const std::string path(kMaxPath + 1, 'p');
  MountStep step = some_step();
  step.path = std::string_view(path).substr(0, kMaxPath);
  EXPECT_TRUE(accepted(step));
  step.path = path;
  EXPECT_FALSE(accepted(step));
  step.path = std::string_view("a\0b", 3);
  EXPECT_FALSE(accepted(step));
}

}  // namespace
}  // namespace carrel::protocol
