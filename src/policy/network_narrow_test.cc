#include "policy/network_narrow.h"

#include <gtest/gtest.h>

#include <utility>

namespace carrel::policy {
namespace {

bool narrows(std::string_view given, std::string_view wanted) {
  return network_narrows(parse_network({"x", given}).value(), parse_network({"x", wanted}).value());
}

TEST(NetworkNarrow, LessIsNarrower) {
  for (const auto& [given, wanted] : {
           std::pair{"none", "none"},
           {"none", "allow="},
           {"allow=a.org", "none"},
           {"allow=a.org", "allow="},
           {"allow=a.org,b.org", "allow=b.org"},
           {"allow=*.a.org", "allow=b.a.org"},
           {"allow=*.a.org", "allow=*.b.a.org"},
           {"allow=tcp:a.org:*", "allow=a.org"},
           {"allow=tcp:a.org:1-100", "allow=tcp:a.org:20-30+40"},
           {"allow=a.org", "allow=https:GET:a.org/x/*"},
           {"allow=https:GET+POST:a.org/x/*", "allow=https:GET:a.org/x/y*"},
           {"allow=tcp:10.0.0.0/8:*", "allow=tcp:10.1.0.0/16:80"},
           {"allow=a.org,deny:b.org", "allow=a.org,deny:b.org,deny:c.org"},
           {"allow=*.a.org,deny:b.a.org:25", "allow=c.a.org,deny:*.a.org"},
           {"full", "full"},
           {"full", "allow=a.org"},
           {"full", "full,deny:a.org"},
           {"full,tcp:10.0.0.5:80", "allow=a.org,tcp:10.0.0.5:80"},
       }) {
    EXPECT_TRUE(narrows(given, wanted)) << given << " > " << wanted;
  }
}

TEST(NetworkNarrow, WhatCannotBeSeenToBeLessIsNot) {
  for (const auto& [given, wanted] : {
           std::pair{"none", "full"},
           {"none", "allow=a.org"},
           {"allow=a.org", "full"},
           {"allow=a.org", "allow=b.org"},
           {"allow=b.a.org", "allow=*.a.org"},
           {"allow=*.a.org", "allow=a.org"},
           {"allow=*.a.org", "allow=evila.org"},
           {"allow=a.org", "allow=tcp:a.org:443"},
           {"allow=a.org", "allow=http:a.org"},
           {"allow=a.org", "allow=a.org:8443"},
           {"allow=a.org:443+80", "allow=a.org:80-443"},
           {"allow=https:GET:a.org", "allow=a.org"},
           {"allow=https:GET:a.org", "allow=https:POST:a.org"},
           {"allow=a.org/x/*", "allow=a.org/y/*"},
           {"allow=a.org/*/x", "allow=a.org/y/x"},
           {"allow=a.org/x", "allow=a.org/*"},
           {"allow=tcp:10.1.0.0/16:*", "allow=tcp:10.0.0.0/8:*"},
           {"allow=tcp:169.254.0.0/16:80", "allow=tcp:169.254.169.254:80"},
           {"allow=a.org,deny:b.org", "allow=a.org"},
           {"allow=a.org,deny:b.org", "allow=a.org,deny:b.org:443"},
           {"full", "full,tcp:10.0.0.5:80"},
           {"full", "allow=tcp:10.0.0.5:80"},
           {"full", "allow=tcp:1.1.1.1:53"},
           {"allow=tcp:10.0.0.0/8:80", "allow=tcp:10.0.0.5:80"},
           {"full", "allow=tcp:1.0.0.0/8:80"},
           {"full,deny:a.org", "full"},
           {"full,deny:a.org", "allow=a.org"},
       }) {
    EXPECT_FALSE(narrows(given, wanted)) << given << " > " << wanted;
  }
}

TEST(NetworkNarrow, BudgetsOnlyShrink) {
  NetworkPolicy given;
  given.budgets.bytes_out = 1000;
  NetworkPolicy wanted = given;
  wanted.budgets.bytes_out = 999;
  wanted.budgets.connections = 1;
  EXPECT_TRUE(network_narrows(given, wanted));
  wanted.budgets.bytes_out = 1001;
  EXPECT_FALSE(network_narrows(given, wanted));
  wanted = given;
  wanted.budgets.lookups_per_minute += 1;
  EXPECT_FALSE(network_narrows(given, wanted));
}

}  // namespace
}  // namespace carrel::policy
