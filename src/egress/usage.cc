#include "egress/usage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

#include "base/files.h"

namespace carrel::egress {

namespace {

constexpr const char* kUsageFile = "usage";
constexpr std::uint64_t kLargestStep = 1ULL << 20;
constexpr std::uint64_t kSteps = 64;
constexpr std::uint64_t kUnlimitedStep = 16ULL << 20;

std::uint64_t step_of(std::uint64_t budget) {
  return budget == policy::NetworkBudgets::kUnlimited
             ? kUnlimitedStep
             : std::clamp<std::uint64_t>(budget / kSteps, 1, kLargestStep);
}

}  // namespace

Result<KeptUsage> KeptUsage::open(int directory) {
  KeptUsage usage;
  CARREL_ASSIGN(usage.file_, open_at(directory, kUsageFile, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  std::array<char, 128> text{};
  const ssize_t n = ::pread(usage.file_.get(), text.data(), text.size() - 1, 0);
  if (n < 0) {
    return system_error("read what the sandbox has used of the network");
  }
  Usage before;
  if (n > 0) {
    if (std::sscanf(text.data(), "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &before.bytes_out,
                    &before.bytes_in, &before.connections, &before.denied) != 4) {
      return Error{Code::kSystem, 0, "what the sandbox has used of the network is damaged", {}};
    }
    usage.now_ = before;
    usage.kept_ = before;
    usage.new_ = false;
  }
  return usage;
}

// One line of one size: whoever reads finds the old one or the new one.
bool KeptUsage::write() {
  new_ = false;
  std::array<char, 128> text{};
  const int size = std::snprintf(text.data(), text.size(),
                                 "%020" PRIu64 " %020" PRIu64 " %020" PRIu64 " %020" PRIu64 "\n",
                                 kept_.bytes_out, kept_.bytes_in, now_.connections, now_.denied);
  return ::pwrite(file_.get(), text.data(), static_cast<std::size_t>(size), 0) == size;
}

bool KeptUsage::spend_out(std::uint64_t bytes, const policy::NetworkBudgets& budgets) {
  now_.bytes_out += bytes;
  if (now_.bytes_out > kept_.bytes_out) {
    kept_.bytes_out = now_.bytes_out + step_of(budgets.bytes_out);
    // CRITICAL: a budget that cannot be kept is used up.
    if (!write() && budgets.bytes_out != policy::NetworkBudgets::kUnlimited) {
      return false;
    }
  }
  return now_.bytes_out <= budgets.bytes_out;
}

bool KeptUsage::spend_in(std::uint64_t bytes, const policy::NetworkBudgets& budgets) {
  now_.bytes_in += bytes;
  if (now_.bytes_in > kept_.bytes_in) {
    kept_.bytes_in = now_.bytes_in + step_of(budgets.bytes_in);
    // CRITICAL: a budget that cannot be kept is used up.
    if (!write() && budgets.bytes_in != policy::NetworkBudgets::kUnlimited) {
      return false;
    }
  }
  return now_.bytes_in <= budgets.bytes_in;
}

void KeptUsage::settle() {
  kept_ = now_;
  (void)write();
}

}  // namespace carrel::egress
