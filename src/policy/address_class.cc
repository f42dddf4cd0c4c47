#include "policy/address_class.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "policy/given.h"

namespace carrel::policy {
namespace {

constexpr std::size_t kLongestV6 = 45;

// The first `length` bits of `a` and `b`, which have the same size, are equal.
bool same_bits(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b, unsigned length) {
  const std::size_t whole = length / 8;
  if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(whole), b.begin())) {
    return false;
  }
  const unsigned rest = length % 8;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8U - rest)) == 0;
}

std::optional<IpAddress> parse_v4(std::string_view text) {
  IpAddress::V4 bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t dot = text.find('.');
    const std::string_view part = text.substr(0, dot);
    const auto [end, error] =
        std::from_chars(part.data(), part.data() + part.size(), bytes.at(i), 10);
    const bool leading_zero = part.size() > 1 && part.front() == '0';
    const bool last = i + 1 == bytes.size();
    if (part.empty() || leading_zero || error != std::errc() || end != part.data() + part.size() ||
        (dot == std::string_view::npos) != last) {
      return std::nullopt;
    }
    text.remove_prefix(last ? part.size() : dot + 1);
  }
  return IpAddress::from(bytes);
}

std::optional<IpAddress> parse_v6(std::string_view text) {
  constexpr std::string_view kCharacters = "0123456789abcdefABCDEF:.";
  if (text.size() > kLongestV6 || text.find_first_not_of(kCharacters) != std::string_view::npos) {
    return std::nullopt;
  }
  // The part after the last colon, if it has dots, is an IPv4 address as strict as any.
  const std::string_view tail = text.substr(text.rfind(':') + 1);
  if (tail.find('.') != std::string_view::npos && !parse_v4(tail).has_value()) {
    return std::nullopt;
  }
  IpAddress::V6 bytes{};
  if (inet_pton(AF_INET6, std::string(text).c_str(), bytes.data()) != 1) {
    return std::nullopt;
  }
  return IpAddress::from(bytes);
}

std::string v6_text(std::span<const std::uint8_t> bytes) {
  std::array<unsigned, 8> groups{};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups.at(i) = (unsigned{bytes[2 * i]} << 8U) | bytes[2 * i + 1];
  }
  // The first of the longest runs of zeros, if it has two groups or more.
  std::size_t run = groups.size();
  std::size_t run_size = 1;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::size_t size = 0;
    while (i + size < groups.size() && groups.at(i + size) == 0) {
      ++size;
    }
    if (size > run_size) {
      run = i;
      run_size = size;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i == run) {
      text += "::";
      i += run_size - 1;
      continue;
    }
    if (!text.empty() && text.back() != ':') {
      text += ':';
    }
    std::array<char, 4> digits{};
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), groups.at(i), 16).ptr;
    text.append(digits.data(), end);
  }
  return text;
}

struct Row {
  std::string_view prefix;
  AddressClass address_class;
};

// The first that holds an address decides.
constexpr std::array kClasses = {
    Row{"169.254.169.254/32", AddressClass::kMetadata},  // almost every cloud
    Row{"169.254.169.253/32", AddressClass::kMetadata},
    Row{"169.254.170.2/32", AddressClass::kMetadata},  // credentials of containers
    Row{"169.254.170.23/32", AddressClass::kMetadata},
    Row{"169.254.0.23/32", AddressClass::kMetadata},
    Row{"100.100.100.200/32", AddressClass::kMetadata},
    Row{"168.63.129.16/32", AddressClass::kMetadata},
    Row{"192.0.0.192/32", AddressClass::kMetadata},
    Row{"fd00:ec2::/32", AddressClass::kMetadata},
    Row{"fd20:ce::254/128", AddressClass::kMetadata},
    Row{"0.0.0.0/8", AddressClass::kThisNetwork},
    Row{"10.0.0.0/8", AddressClass::kPrivate},
    Row{"100.64.0.0/10", AddressClass::kSharedNat},
    Row{"127.0.0.0/8", AddressClass::kLoopback},
    Row{"169.254.0.0/16", AddressClass::kLinkLocal},
    Row{"172.16.0.0/12", AddressClass::kPrivate},
    Row{"192.0.0.0/24", AddressClass::kReserved},
    Row{"192.0.2.0/24", AddressClass::kDocumentation},
    Row{"192.88.99.0/24", AddressClass::kReserved},
    Row{"192.168.0.0/16", AddressClass::kPrivate},
    Row{"198.18.0.0/15", AddressClass::kBenchmark},
    Row{"198.51.100.0/24", AddressClass::kDocumentation},
    Row{"203.0.113.0/24", AddressClass::kDocumentation},
    Row{"224.0.0.0/4", AddressClass::kMulticast},
    Row{"255.255.255.255/32", AddressClass::kBroadcast},
    Row{"240.0.0.0/4", AddressClass::kReserved},
    Row{"0.0.0.0/0", AddressClass::kPublic},
    Row{"::/128", AddressClass::kThisNetwork},
    Row{"::1/128", AddressClass::kLoopback},
    Row{"2001:2::/48", AddressClass::kBenchmark},
    Row{"2001::/23", AddressClass::kReserved},  // Teredo, ORCHID and other tunnels and protocols
    Row{"2001:db8::/32", AddressClass::kDocumentation},
    Row{"3fff::/20", AddressClass::kDocumentation},
    Row{"2000::/3", AddressClass::kPublic},
    Row{"64:ff9b:1::/48", AddressClass::kPrivate},  // NAT64 of a site, for whatever it likes
    Row{"fc00::/7", AddressClass::kUniqueLocal},
    Row{"fe80::/10", AddressClass::kLinkLocal},
    Row{"fec0::/10", AddressClass::kPrivate},
    Row{"ff00::/8", AddressClass::kMulticast},
};

struct ParsedRow {
  Prefix prefix;
  AddressClass address_class = AddressClass::kReserved;
};

std::array<ParsedRow, kClasses.size()> parse_classes() {
  std::array<ParsedRow, kClasses.size()> rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows.at(i) = {Prefix::parse(kClasses.at(i).prefix).value(), kClasses.at(i).address_class};
  }
  return rows;
}

}  // namespace

IpAddress IpAddress::from(const V4& bytes) {
  IpAddress address;
  std::copy(bytes.begin(), bytes.end(), address.bytes_.begin());
  return address;
}

IpAddress IpAddress::from(const V6& bytes) {
  constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(kMapped.begin(), kMapped.end(), bytes.begin())) {
    return from(V4{bytes[12], bytes[13], bytes[14], bytes[15]});
  }
  IpAddress address;
  address.size_ = 16;
  address.bytes_ = bytes;
  return address;
}

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  return text.find(':') == std::string_view::npos ? parse_v4(text) : parse_v6(text);
}

std::string IpAddress::text() const {
  if (!is_v4()) {
    return v6_text(bytes());
  }
  std::string text;
  for (const std::uint8_t byte : bytes()) {
    text += text.empty() ? "" : ".";
    text += std::to_string(byte);
  }
  return text;
}

std::optional<IpAddress> embedded_v4(const IpAddress& address) {
  static const Prefix kSixToFour = Prefix::parse("2002::/16").value();
  static const Prefix kNat64 = Prefix::parse("64:ff9b::/96").value();
  static const Prefix kCompatible = Prefix::parse("::/96").value();
  const auto bytes = address.bytes();
  if (kSixToFour.contains(address)) {
    return IpAddress::from(IpAddress::V4{bytes[2], bytes[3], bytes[4], bytes[5]});
  }
  if (kNat64.contains(address) || kCompatible.contains(address)) {
    return IpAddress::from(IpAddress::V4{bytes[12], bytes[13], bytes[14], bytes[15]});
  }
  return std::nullopt;
}

AddressClass classify(const IpAddress& address) {
  static const std::array<ParsedRow, kClasses.size()> kRows = parse_classes();
  const auto look_up = [](const IpAddress& wanted) {
    const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const ParsedRow& candidate) {
      return candidate.prefix.contains(wanted);
    });
    return row == kRows.end() ? AddressClass::kReserved : row->address_class;
  };
  const AddressClass own = look_up(address);
  const std::optional<IpAddress> inner = embedded_v4(address);
  if (!inner.has_value() || own == AddressClass::kLoopback || own == AddressClass::kThisNetwork) {
    return own;
  }
  return look_up(*inner);
}

std::string_view describe(AddressClass address_class) {
  switch (address_class) {
    case AddressClass::kPublic:
      return "a public address";
    case AddressClass::kThisNetwork:
      return "an address of no host";
    case AddressClass::kLoopback:
      return "a loopback address";
    case AddressClass::kPrivate:
      return "a private address";
    case AddressClass::kSharedNat:
      return "an address of a provider's own network";
    case AddressClass::kLinkLocal:
      return "a link-local address";
    case AddressClass::kUniqueLocal:
      return "a unique local address";
    case AddressClass::kMulticast:
      return "a multicast address";
    case AddressClass::kBroadcast:
      return "the broadcast address";
    case AddressClass::kDocumentation:
      return "an address for documentation";
    case AddressClass::kBenchmark:
      return "an address for benchmarks";
    case AddressClass::kReserved:
      return "a reserved address";
    case AddressClass::kMetadata:
      return "an address of a cloud's metadata service";
  }
  return "an address";
}

Result<Prefix> Prefix::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::optional<IpAddress> base = IpAddress::parse(text.substr(0, slash));
  if (!base.has_value()) {
    return bad_value({"address", text}, "not an IPv4 or IPv6 address");
  }
  Prefix prefix = of(*base);
  if (slash == std::string_view::npos) {
    return prefix;
  }
  const std::string_view digits = text.substr(slash + 1);
  unsigned length = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), length, 10);
  if (error != std::errc() || end != digits.data() + digits.size() || length > prefix.length ||
      (digits.size() > 1 && digits.front() == '0')) {
    return bad_value({"address", text}, concat({"the number of bits after '/' is from 0 to ",
                                                std::to_string(prefix.length)}));
  }
  IpAddress::V6 zeroed{};
  std::copy_n(base->bytes().begin(), base->bytes().size(), zeroed.begin());
  for (std::size_t bit = length; bit < prefix.length; ++bit) {
    zeroed.at(bit / 8) &= static_cast<std::uint8_t>(~(0x80U >> (bit % 8)));
  }
  if (!std::equal(base->bytes().begin(), base->bytes().end(), zeroed.begin())) {
    const IpAddress start =
        base->is_v4() ? IpAddress::from(IpAddress::V4{zeroed[0], zeroed[1], zeroed[2], zeroed[3]})
                      : IpAddress::from(zeroed);
    return bad_value({"address", text}, "it has bits after its prefix",
                     concat({"did you mean '", start.text(), "/", digits, "'?"}));
  }
  prefix.length = static_cast<std::uint8_t>(length);
  return prefix;
}

Prefix Prefix::of(const IpAddress& address) {
  return {address, static_cast<std::uint8_t>(address.bytes().size() * 8)};
}

bool Prefix::contains(const IpAddress& address) const {
  return base.is_v4() == address.is_v4() && same_bits(base.bytes(), address.bytes(), length);
}

bool Prefix::contains(const Prefix& other) const {
  return other.length >= length && contains(other.base);
}

bool Prefix::is_one_address() const { return length == base.bytes().size() * 8; }

std::string Prefix::text() const {
  return is_one_address() ? base.text() : concat({base.text(), "/", std::to_string(length)});
}

}  // namespace carrel::policy
