#pragma once

#include <chrono>
#include <functional>

namespace carrel::test {

// How long the tests wait. All of it is here, and all of it grows with the work of the machine:
//
//   eventually(seconds(5), [] { ... });              // waits for an event
//   EXPECT_LT(run.duration, patient(seconds(2)));    // how long something may take
//   EXPECT_TRUE(stays_false_for(seconds(1), ...));   // that nothing happens: exactly so long
//
// Nothing here is part of what is tested: a test that passes does not wait longer than the event
// that it waits for, however much patience it has.

// How many times slower than an idle machine this one is at present: by the tasks that want a
// processor for each processor (the average of the last minute or those of this moment, whichever
// is more), by the time that tasks wait for the disk or memory, and by the time that a hypervisor
// took away. 1 on an idle machine, 2 where each processor has one task to do, at most 30.
double busyness();

// busyness() times CARREL_PATIENCE, which whoever starts the tests may set, and
// CARREL_TEST_SLOWNESS, which tests/conformance sets for a backend that is slow.
double slowness();

// How long something may take that takes `usual` at most on an idle machine.
std::chrono::milliseconds patient(std::chrono::milliseconds usual);

// When an event that has not come is given up. A wait costs a test that passes nothing, so that a
// deadline of less than twenty seconds is taken for twenty; and it is over only if it is over for
// a machine that is as busy as this one has become meanwhile. One of zero is over at once.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds usual);
  [[nodiscard]] bool is_over() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds usual_;
  Clock::time_point begun_ = Clock::now();
};

// Asks again until the answer is yes or a Deadline of that length is over.
bool eventually(std::chrono::milliseconds patience, const std::function<bool()>& question);

// Asks for exactly this long, and until it has asked at least once: whether the answer was never
// yes. For what must not happen; there is no event to wait for.
bool stays_false_for(std::chrono::milliseconds length, const std::function<bool()>& question);

// Asks as long as that holds, for what is counted while something else runs.
void ask_while(const std::function<bool()>& lasts, const std::function<void()>& question);

}  // namespace carrel::test
