#include "kernel/cgroup_limits.h"

#include <array>
#include <cerrno>
#include <charconv>

#include "kernel/cgroup_entry.h"

namespace carrel::kernel {
namespace {

constexpr std::uint64_t kUsualPeriod = 100'000;  // also what a new group starts with
constexpr std::uint64_t kLeastQuota = 1'000;
constexpr std::uint64_t kMostCpuMillis = 1'000'000;

// Decimal numbers separated by spaces, on the stack.
class NumberText {
 public:
  explicit NumberText(std::uint64_t number) { add(number); }
  void add(std::uint64_t number) {
    if (size_ > 0 && size_ < data_.size()) {
      data_[size_++] = ' ';
    }
    auto result = std::to_chars(data_.data() + size_, data_.data() + data_.size(), number);
    size_ = static_cast<std::size_t>(result.ptr - data_.data());
  }
  [[nodiscard]] std::string_view text() const { return {data_.data(), size_}; }

 private:
  std::array<char, 48> data_{};
  std::size_t size_ = 0;
};

bool is_absent(int reason) {
  return reason == ENOENT || reason == EACCES || reason == EPERM || reason == EROFS;
}

Error refused(std::string_view group, std::string_view file, std::string_view value, int reason) {
  std::string message = "set ";
  message += file;
  message += " of cgroup '";
  message += group;
  message += "' to ";
  message += value;
  return system_error(reason, std::move(message));
}

// Sets one mandatory limit; `source` learns whether it holds.
Status set_limit(int home, std::string_view group, std::string_view file, std::string_view value,
                 CgroupSource kind, CgroupSource& source) {
  int reason = write_entry(home, group, file, value);
  if (reason == 0) {
    source = kind;
  } else if (!is_absent(reason)) {
    return refused(group, file, value, reason);
  }
  return {};
}

Status set_memory_v2(int home, std::string_view group, const CgroupLimits& limits,
                     CgroupEnforcement& enforced) {
  NumberText bytes(*limits.memory_bytes);
  CARREL_TRY(
      set_limit(home, group, "memory.max", bytes.text(), CgroupSource::kCgroupV2, enforced.memory));
  enforced.swap_accounted = write_entry(home, group, "memory.swap.max", "0") == 0;
  if (limits.oom_victim == OomVictim::kGroup) {
    int reason = write_entry(home, group, "memory.oom.group", "1");
    if (reason != 0 && !is_absent(reason)) {
      return refused(group, "memory.oom.group", "1", reason);
    }
  }
  return {};
}

// The memory limit may never be above the limit on memory and swap: a new or lower limit is set
// first, a higher one only after the other made room.
Status set_memory_v1(int home, std::string_view group, const CgroupLimits& limits,
                     CgroupEnforcement& enforced) {
  constexpr std::string_view kMemory = "memory.limit_in_bytes";
  constexpr std::string_view kMemoryAndSwap = "memory.memsw.limit_in_bytes";
  NumberText bytes(*limits.memory_bytes);
  int reason = write_entry(home, group, kMemory, bytes.text());
  bool raising = reason == EINVAL;
  int swap_reason = write_entry(home, group, kMemoryAndSwap, bytes.text());
  if (raising && swap_reason == 0) {
    reason = write_entry(home, group, kMemory, bytes.text());
  }
  if (reason == 0) {
    enforced.memory = CgroupSource::kCgroupV1;
  } else if (!is_absent(reason)) {
    return refused(group, kMemory, bytes.text(), reason);
  }
  if (swap_reason != 0 && !is_absent(swap_reason) && swap_reason != EOPNOTSUPP) {
    return refused(group, kMemoryAndSwap, bytes.text(), swap_reason);
  }
  enforced.swap_accounted = reason == 0 && swap_reason == 0;
  return {};
}

Status set_cpu(int home, std::string_view group, CgroupVersion version, std::uint64_t cpu_millis,
               CgroupEnforcement& enforced) {
  CpuBandwidth bandwidth = cpu_bandwidth(cpu_millis);
  if (version == CgroupVersion::kV2) {
    NumberText value(bandwidth.quota_us);
    value.add(bandwidth.period_us);
    return set_limit(home, group, "cpu.max", value.text(), CgroupSource::kCgroupV2, enforced.cpu);
  }
  if (bandwidth.period_us != kUsualPeriod || enforced.cpu != CgroupSource::kNone) {
    NumberText period(bandwidth.period_us);
    CgroupSource unused = CgroupSource::kNone;
    CARREL_TRY(set_limit(home, group, "cpu.cfs_period_us", period.text(), CgroupSource::kCgroupV1,
                         unused));
  }
  NumberText quota(bandwidth.quota_us);
  return set_limit(home, group, "cpu.cfs_quota_us", quota.text(), CgroupSource::kCgroupV1,
                   enforced.cpu);
}

}  // namespace

CpuBandwidth cpu_bandwidth(std::uint64_t cpu_millis) {
  std::uint64_t quota = cpu_millis * (kUsualPeriod / 1000);
  if (quota >= kLeastQuota) {
    return {quota, kUsualPeriod};
  }
  return {kLeastQuota, kLeastQuota * 1000 / (cpu_millis == 0 ? 1 : cpu_millis)};
}

Status check_limits(const CgroupLimits& limits) {
  if (limits.memory_bytes && *limits.memory_bytes == 0) {
    return Error{Code::kInvalid, 0, "a memory limit of 0 bytes", "leave it out for no limit"};
  }
  if (limits.pids && *limits.pids == 0) {
    return Error{Code::kInvalid, 0, "a limit of 0 processes", "leave it out for no limit"};
  }
  if (limits.cpu_millis && (*limits.cpu_millis == 0 || *limits.cpu_millis > kMostCpuMillis)) {
    return Error{Code::kInvalid, 0,
                 "a processor limit of " + std::to_string(*limits.cpu_millis) + " thousandths",
                 "between 1 and 1000000; leave it out for no limit"};
  }
  return {};
}

Status write_limits(int home, std::string_view group, CgroupVersion version,
                    ControllerSet controllers, const CgroupLimits& limits,
                    CgroupEnforcement& enforced) {
  bool v2 = version == CgroupVersion::kV2;
  if (limits.memory_bytes && controllers.has(Controller::kMemory)) {
    CARREL_TRY(v2 ? set_memory_v2(home, group, limits, enforced)
                  : set_memory_v1(home, group, limits, enforced));
  }
  if (limits.pids && controllers.has(Controller::kPids)) {
    NumberText count(*limits.pids);
    CARREL_TRY(set_limit(home, group, "pids.max", count.text(),
                         v2 ? CgroupSource::kCgroupV2 : CgroupSource::kCgroupV1, enforced.pids));
  }
  if (limits.cpu_millis && controllers.has(Controller::kCpu)) {
    CARREL_TRY(set_cpu(home, group, version, *limits.cpu_millis, enforced));
  }
  return {};
}

}  // namespace carrel::kernel
