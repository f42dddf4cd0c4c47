#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "support/box.h"
#include "support/fixture.h"
#include "support/internet.h"

namespace carrel::test {

// A test with an internet of its own.
class NetworkedTest : public CarrelTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "an internet of the test's own takes root";
    }
    CarrelTest::SetUp();
    internet_.emplace(place().work(As::kRoot) + "/internet");
  }
  void TearDown() override {
    if (internet_.has_value()) {
      internet_.reset();
      CarrelTest::TearDown();
    }
  }

  // Python that fetches a URL and prints what came, or what went wrong.
  [[nodiscard]] std::string fetching(const std::string& url) const {
    return "import ssl, urllib.request\n"
           "context = ssl.create_default_context(cadata='''" +
           internet_->authority_certificate() +
           "''')\n"
           "try:\n"
           "    print(urllib.request.urlopen('" +
           url +
           "', timeout=10, context=context).read().decode())\n"
           "except Exception as error:\n"
           "    text = error.read().decode() if hasattr(error, 'read') else ''\n"
           "    print('failed:', error, text)\n";
  }

  // What a program of Python's says in a sandbox.
  static std::string inside(const Box& box, const std::string& code) {
    const Run run = box.sh("python3 - <<'END'\n" + code + "END", {}, {.timeout_seconds = 90});
    return run.out + run.err;
  }

  // The whole of what a network is, in one sandbox that may reach `kAllowed`: for backends whose
  // sandboxes take long to start.
  static constexpr char kAllowed[] = "allow=allowed.test,http:allowed.test,tcp:allowed.test:7000";
  void expect_the_egress_process_decides(const Box& box) const;

  std::optional<Internet> internet_;
};

}  // namespace carrel::test
