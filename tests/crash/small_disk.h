#pragma once

#include <string>

#include "support/fixture.h"

namespace carrel::test {

// A test whose CARREL_HOME is a small file system of its own, in the mount namespace of this test.
class SmallDisk : public CarrelTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Until there is no room, or not more than so many bytes.
  void fill(std::size_t leave = 0) const;
  void empty() const;

  std::string home_;
};

// One line about the disk, and nothing else.
testing::AssertionResult says_that_it_is_full(const Run& run);

}  // namespace carrel::test
