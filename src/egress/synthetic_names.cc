#include "egress/synthetic_names.h"

#include <fcntl.h>

#include <optional>
#include <string_view>

#include "base/files.h"

namespace carrel::egress {

namespace {

constexpr const char* kFile = "names";
// 198.18.1.0 and fd63:6172:7265:1::, and upward; what is below is for the sandbox's resolver.
constexpr std::uint32_t kFirstV4 = 0xc612'0100;
constexpr std::array<std::uint8_t, 8> kPrefixV6 = {0xfd, 0x63, 0x61, 0x72, 0x72, 0x65, 0x00, 0x01};
constexpr std::size_t kLargestFile = SyntheticNames::kMost * (policy::kLongestHostName + 1);

policy::IpAddress v4_at(std::size_t index) {
  const auto value = static_cast<std::uint32_t>(kFirstV4 + index);
  return policy::IpAddress::from(policy::IpAddress::V4{
      static_cast<std::uint8_t>(value >> 24), static_cast<std::uint8_t>(value >> 16),
      static_cast<std::uint8_t>(value >> 8), static_cast<std::uint8_t>(value)});
}

policy::IpAddress v6_at(std::size_t index) {
  policy::IpAddress::V6 bytes{};
  std::copy(kPrefixV6.begin(), kPrefixV6.end(), bytes.begin());
  const auto value = static_cast<std::uint32_t>(kFirstV4 + index);
  for (std::size_t i = 0; i < 4; ++i) {
    bytes[12 + i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
  }
  return policy::IpAddress::from(bytes);
}

// What stands for the index in an address of ours.
std::optional<std::size_t> index_in(const policy::IpAddress& address) {
  const auto bytes = address.bytes();
  const auto last = bytes.last<4>();
  if (!address.is_v4() && !std::equal(kPrefixV6.begin(), kPrefixV6.end(), bytes.begin())) {
    return std::nullopt;
  }
  if (!address.is_v4() && (bytes[8] | bytes[9] | bytes[10] | bytes[11]) != 0) {
    return std::nullopt;
  }
  const std::uint32_t value = static_cast<std::uint32_t>(last[0]) << 24 |
                              static_cast<std::uint32_t>(last[1]) << 16 |
                              static_cast<std::uint32_t>(last[2]) << 8 | last[3];
  if (value < kFirstV4 || value - kFirstV4 >= SyntheticNames::kMost) {
    return std::nullopt;
  }
  return value - kFirstV4;
}

}  // namespace

Result<SyntheticNames> SyntheticNames::open(int directory) {
  SyntheticNames names;
  CARREL_ASSIGN(names.directory_, open_at(directory, ".", O_PATH | O_DIRECTORY));
  auto file = open_at(directory, kFile, O_RDWR | O_APPEND | O_NOFOLLOW);
  if (!file.ok()) {
    return file.error().error_number == ENOENT ? Result<SyntheticNames>(std::move(names))
                                               : file.error();
  }
  names.file_ = std::move(file.value());
  CARREL_ASSIGN(const std::string text, read_all(names.file_.get(), kLargestFile));
  std::string_view rest = text;
  // A line that was cut by a crash was told to nobody.
  for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos;) {
    auto host = policy::canonical_host(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (!host.ok() || !host->is_name() || names.names_.size() == kMost) {
      return Error{Code::kSystem, 0, "the list of a sandbox's names is damaged", {}};
    }
    names.index_.emplace(host->text(), names.names_.size());
    names.names_.push_back(std::move(*host));
  }
  if (!rest.empty() &&
      ::ftruncate(names.file_.get(), static_cast<off_t>(text.size() - rest.size())) != 0) {
    return system_error("mend the list of a sandbox's names");
  }
  return names;
}

Result<SyntheticNames::Addresses> SyntheticNames::addresses_of(const policy::Host& name) {
  auto found = index_.find(name.text());
  if (found == index_.end()) {
    if (names_.size() == kMost) {
      return Error{Code::kResource, 0, "the sandbox has asked for too many names", {}};
    }
    if (!file_.valid()) {  // most sandboxes look up none
      CARREL_ASSIGN(file_, open_at(directory_.get(), kFile,
                                   O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW, 0600));
    }
    CARREL_TRY(write_all(file_.get(), name.text() + "\n"));
    found = index_.emplace(name.text(), names_.size()).first;
    names_.push_back(name);
  }
  return Addresses{v4_at(found->second), v6_at(found->second)};
}

const policy::Host* SyntheticNames::name_of(const policy::IpAddress& address) const {
  const auto index = index_in(address);
  return index.has_value() && *index < names_.size() ? &names_[*index] : nullptr;
}

bool SyntheticNames::is_synthetic(const policy::IpAddress& address) {
  return index_in(address).has_value();
}

}  // namespace carrel::egress
