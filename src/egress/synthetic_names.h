#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/host.h"

namespace carrel::egress {

// The addresses that one sandbox gets for names. They lead nowhere but to us, and tell which name a
// program meant. A name keeps its addresses as long as the sandbox lives: they are stored before
// they are told.
class SyntheticNames {
 public:
  static constexpr std::size_t kMost = 16'384;

  // `directory` has the file of the names that were given before, or gets it.
  static Result<SyntheticNames> open(int directory);

  struct Addresses {
    policy::IpAddress v4;
    policy::IpAddress v6;
  };
  // kResource when the sandbox has had its share of names.
  Result<Addresses> addresses_of(const policy::Host& name);
  // Null: the address was given to no name.
  [[nodiscard]] const policy::Host* name_of(const policy::IpAddress& address) const;
  [[nodiscard]] static bool is_synthetic(const policy::IpAddress& address);

 private:
  UniqueFd directory_;
  UniqueFd file_;  // from the first name on
  std::vector<policy::Host> names_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace carrel::egress
