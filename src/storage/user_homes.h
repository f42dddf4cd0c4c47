#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::storage {

// The home folders that a passwd file names for people and for root. Accounts of the system (below
// 1000) live in folders such as /usr/sbin and /bin, which are nobody's home; those are left out.
std::vector<std::string> homes_of_people(std::string_view passwd);
// Those of the system's accounts.
std::vector<std::string> homes_of_services(std::string_view passwd);

// The homes of every user of this host, as they are named and as they are without links: from
// /etc/passwd, HOME and the folders of /home, and /root in any case. Of a service's, only one that
// holds a folder in which credentials are kept.
Result<std::vector<std::string>> user_homes();

}  // namespace carrel::storage
