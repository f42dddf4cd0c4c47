#include "journal/journal_test_support.h"
#include "journal/run.h"

namespace carrel::journal {
namespace {

class ReplayTest : public JournalTest {
 protected:
  // Three turns, each of which answers with its input and writes it down.
  void SetUp() override {
    auto run = begin({.execution = "source"});
    EXPECT_FALSE(run->is_replay());
    for (const char* word : {"a", "b", "c"}) {
      ASSERT_TRUE(step(*run, word).ok());
    }
    ASSERT_TRUE(run->finish().ok());
    ran_ = 0;
  }
  Result<TurnResult> step(Run& run, const std::string& word) {
    return run.turn({.inputs = {{"word", word}}}, [&](Turn& turn) -> Result<TurnOutput> {
      ++ran_;
      write("file", read("file") + turn.input("word"));
      return TurnOutput{turn.input("word")};
    });
  }
  // All three, each with what the one before answered in front.
  Status all(Run& run) {
    for (const char* word : {"a", "b", "c"}) {
      CARREL_ASSIGN(const TurnResult result, step(run, word));
      how_.push_back(result.how);
      texts_ += result.output.text;
    }
    return run.finish();
  }
  std::vector<How> how_;
  std::string texts_;
};

TEST_F(ReplayTest, IsANewExecutionFromTheRecordAndTheSourceStays) {
  const auto before = journal_->turns("source").value();
  auto run = begin({.replay = Replay{"source"}});
  EXPECT_TRUE(run->is_replay());
  EXPECT_NE(run->execution(), "source");
  ASSERT_TRUE(all(*run).ok());
  EXPECT_EQ(how_, std::vector<How>(3, How::kCached));
  EXPECT_EQ(ran_, 0);
  EXPECT_EQ(journal_->find_execution(run->execution())->source, "source");
  const auto after = journal_->turns("source").value();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].id, before[i].id);
    EXPECT_EQ(after[i].ended_ms, before[i].ended_ms);
  }
  EXPECT_EQ(journal_->find_execution("source")->runs, 1);
}

TEST_F(ReplayTest, LiveFromATurnOnRunsThatAndLaterOnes) {
  auto run = begin({.replay = Replay{"source", "default_2", Replay::Mode::kLive}});
  ASSERT_TRUE(all(*run).ok());
  EXPECT_EQ(how_, (std::vector<How>{How::kCached, How::kLive, How::kLive}));
  EXPECT_EQ(read("file"), "abc") << "from the files that the first turn left";
}

TEST_F(ReplayTest, AnotherInputMissesTheRecordAndThatIsAnErrorUnlessItIsLive) {
  Replay replay{"source", "", Replay::Mode::kRecorded, {{"2", "word", "X"}}};
  {
    auto run = begin({.replay = replay});
    const Status done = all(*run);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Code::kConflict);
    EXPECT_EQ(ran_, 0) << "nothing is run that was not asked for";
  }
  replay.mode = Replay::Mode::kLive;
  replay.from = "2";
  texts_.clear();
  auto run = begin({.replay = replay});
  ASSERT_TRUE(all(*run).ok());
  EXPECT_EQ(texts_, "aXc");
  EXPECT_EQ(read("file"), "aXc");
}

TEST_F(ReplayTest, AnotherOutputTakesThePlaceOfTheTurn) {
  auto run =
      begin({.replay = Replay{"source", "3", Replay::Mode::kRecorded, {{"default_3", "", "Z"}}}});
  ASSERT_TRUE(all(*run).ok());
  EXPECT_EQ(how_.back(), How::kOverridden);
  EXPECT_EQ(texts_, "abZ");
  EXPECT_EQ(ran_, 0);
}

TEST_F(ReplayTest, SelectorsThatNameNothingAreErrors) {
  const auto refused = [&](const Replay& replay) {
    const auto run = Run::begin(*journal_, *files_, {.replay = replay});
    return run.ok() ? Code::kSystem : run.error().code;
  };
  EXPECT_EQ(refused({"nobody"}), Code::kNotFound);
  EXPECT_EQ(refused({"source", "9"}), Code::kNotFound);
  EXPECT_EQ(refused({"source", "default_9"}), Code::kNotFound);
  EXPECT_EQ(refused({"source", "", Replay::Mode::kLive, {{"9", "", "x"}}}), Code::kNotFound);
  EXPECT_EQ(refused({"source", "3", Replay::Mode::kLive, {{"2", "", "x"}}}), Code::kInvalid);
  EXPECT_EQ(refused({"source", "", Replay::Mode::kLive, {{"2", "", "x"}, {"default_2", "", "y"}}}),
            Code::kInvalid);
  auto run = begin({.replay = Replay{"source", "", Replay::Mode::kLive, {{"1", "no such", "x"}}}});
  EXPECT_EQ(step(*run, "a").error().code, Code::kInvalid);
}

TEST_F(ReplayTest, ABeginningThatCouldBeSeveralIsAnError) {
  begin({.execution = "twin-1"});
  begin({.execution = "twin-2"});
  EXPECT_EQ(journal_->find_execution("twin").error().code, Code::kInvalid);
  EXPECT_EQ(journal_->find_execution("sour")->id, "source");
}

TEST_F(ReplayTest, OneThatWasKilledGoesOnAsItWasBegun) {
  {
    auto run = begin({.execution = "r",
                      .replay = Replay{"source", "2", Replay::Mode::kLive, {{"2", "word", "X"}}}});
    ASSERT_TRUE(step(*run, "a").ok());
  }
  auto run = begin({.execution = "r"});
  EXPECT_TRUE(run->is_replay());
  ASSERT_TRUE(all(*run).ok());
  EXPECT_EQ(texts_, "aXc");
}

TEST_F(ReplayTest, WhatALiveOneHasFinishedIsNotRunAgain) {
  {
    auto run = begin({.execution = "r", .replay = Replay{"source", "2", Replay::Mode::kLive}});
    ASSERT_TRUE(step(*run, "a").ok());
    ASSERT_TRUE(step(*run, "b").ok());
  }
  EXPECT_EQ(ran_, 1);
  how_.clear();
  auto run = begin({.execution = "r"});
  ASSERT_TRUE(all(*run).ok());
  EXPECT_EQ(how_, (std::vector<How>{How::kCached, How::kCached, How::kLive}));
  EXPECT_EQ(ran_, 2);
  EXPECT_EQ(read("file"), "abc");
}

TEST_F(ReplayTest, TheWholeRecordIsRepeatedWithoutAnythingToRun) {
  auto run = begin({.replay = Replay{"source"}});
  ASSERT_TRUE(run->repeat().ok());
  ASSERT_TRUE(run->finish().ok());
  EXPECT_EQ(journal_->turns(run->execution()).value().size(), 3U);
  EXPECT_EQ(read("file"), "abc");
  auto changed = begin({.replay = Replay{"source", "", Replay::Mode::kRecorded, {{"1", "", "x"}}}});
  EXPECT_EQ(changed->repeat().error().code, Code::kConflict);
}

}  // namespace
}  // namespace carrel::journal
