#include "journal/run.h"

#include "journal/explain.h"
#include "journal/journal_test_support.h"

namespace carrel::journal {
namespace {

using RunTest = JournalTest;

TEST_F(RunTest, AFinishedTurnIsStoredWhenItReturns) {
  auto run = begin({.execution = "e"});
  const auto result = take(*run, "one");
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  // Another connection, as after a kill.
  Journal other = Journal::open(*home_).value();
  const auto turns = other.turns("e");
  ASSERT_EQ(turns.value().size(), 1U);
  EXPECT_EQ(turns.value()[0].text, "did one");
  EXPECT_EQ(turns.value()[0].state, TurnState::kFinished);
  EXPECT_FALSE(turns.value()[0].snapshot.empty());
  EXPECT_TRUE(other.is_running("e"));
}

TEST_F(RunTest, ARunAfterACrashTakesFinishedTurnsFromTheRecordWithTheirFiles) {
  write("file", "before");
  {
    auto run = begin({.execution = "e", .switches = {.force_failure = true}});
    ASSERT_TRUE(take(*run, "one").ok());
    const auto second = take(*run, "two");
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.error().message.find("FORCE_FAILURE"), std::string::npos);
  }
  EXPECT_EQ(journal_->find_execution("e")->state, "failed");
  write("file", "half of something");
  auto run = begin({.execution = "e"});
  const auto first = take(*run, "one");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.value().how, How::kCached);
  EXPECT_EQ(first.value().output.text, "did one");
  EXPECT_EQ(first.value().output.data, "{}");
  EXPECT_EQ(ran_, 1);
  const auto second = run->turn({.prompt = "two"}, [&](Turn&) -> Result<TurnOutput> {
    EXPECT_EQ(read("file"), "one") << "the files that turn one left";
    return TurnOutput{"saw " + read("file")};
  });
  ASSERT_TRUE(second.ok()) << second.error().to_string();
  EXPECT_EQ(second.value().how, How::kLive);
  EXPECT_TRUE(was_said("held files of no turn")) << "what somebody had written is kept";
  EXPECT_TRUE(run->finish().ok());
}

TEST_F(RunTest, ASandboxThatComesLateIsEndedBeforeFilesArePutBack) {
  {
    auto run = begin({.execution = "e"});
    ASSERT_TRUE(take(*run, "one").ok());
  }
  write("file", "half of something");
  int stops = 0;
  files_->refusals = 2;
  auto run = begin({.execution = "e", .stop_sandbox = [&]() -> Status {
                      ++stops;
                      return {};
                    }});
  ASSERT_TRUE(take(*run, "one").ok());
  ASSERT_TRUE(take(*run, "two").ok());
  EXPECT_EQ(stops, 3) << "before the first try, and after each refusal";
  EXPECT_EQ(files_->put, 1);
}

TEST_F(RunTest, ARepeatedRunTakesEverythingFromTheRecordUnlessTheCacheIsOff) {
  std::vector<int> counts;
  for (const bool off : {false, false, true}) {
    ran_ = 0;
    auto run = begin({.execution = "e", .switches = {.disable_cache = off}});
    ASSERT_TRUE(take(*run, "one").ok());
    ASSERT_TRUE(take(*run, "two").ok());
    ASSERT_TRUE(run->finish().ok());
    EXPECT_EQ(read("file"), "two");
    counts.push_back(ran_);
  }
  EXPECT_EQ(counts, (std::vector<int>{2, 0, 2}));
  EXPECT_EQ(journal_->find_execution("e")->runs, 3);
}

TEST_F(RunTest, ATurnThatStoppedGoesOnWithItsFilesWhereItWas) {
  write("file", "before");
  const auto stop_at = [&](const std::string& where) {
    auto run = begin({.execution = "e"});
    const auto stopped = run->turn({.prompt = "p"}, [&](Turn& turn) -> Result<TurnOutput> {
      EXPECT_EQ(read("file"), turn.progress().empty() ? "before" : turn.progress());
      write("file", where);
      turn.stop_here(where);
      return Error{Code::kResource, 0, "enough", {}};
    });
    EXPECT_EQ(stopped.error().code, Code::kResource);
    (void)run->fail(stopped.error());
  };
  stop_at("half");
  write("file", "somebody's");
  stop_at("nearly all");
  write("file", "somebody's");
  const auto finish = [&](RunOptions options) {
    options.execution = "e";
    auto run = begin(std::move(options));
    const auto done = run->turn({.prompt = "p"}, [&](Turn& turn) -> Result<TurnOutput> {
      const std::string from = turn.progress();
      EXPECT_EQ(read("file"), from.empty() ? "before" : from);
      return TurnOutput{"from [" + from + "]"};
    });
    EXPECT_TRUE(run->finish().ok());
    return done.value().output.text;
  };
  EXPECT_EQ(finish({}), "from [nearly all]");
  EXPECT_EQ(finish({}), "from [nearly all]") << "from the record";
  // What the turn began with is what it began with.
  EXPECT_EQ(journal_->find_turn("e", "1")->start_identity,
            journal_->find_execution("e")->first_identity);
  EXPECT_EQ(finish({.switches = {.disable_cache = true}}), "from []");
}

TEST_F(RunTest, OnlyOwnTurnsAreTakenIfThatIsSaid) {
  const auto work = [&](const std::string& execution, Reuse reuse) {
    auto run = begin({.execution = execution, .reuse = reuse});
    const How how = take(*run, "one").value().how;
    EXPECT_TRUE(run->finish().ok());
    return how;
  };
  EXPECT_EQ(work("a", Reuse::kOwn), How::kLive);
  std::filesystem::remove(path("file"));  // as a new execution begins
  EXPECT_EQ(work("b", Reuse::kOwn), How::kLive);
  EXPECT_EQ(work("b", Reuse::kOwn), How::kCached);
  std::filesystem::remove(path("file"));
  EXPECT_EQ(work("c", Reuse::kAny), How::kCached);
  EXPECT_TRUE(journal_->remove("a").ok());
  EXPECT_TRUE(journal_->remove("b").ok());
  EXPECT_EQ(work("c", Reuse::kOwn), How::kCached) << "what it took is its own";
}

TEST_F(RunTest, TheLastTurnsFilesAreThereAlsoIfAllCameFromTheRecord) {
  {
    auto run = begin({.execution = "e"});
    ASSERT_TRUE(take(*run, "one").ok());
    ASSERT_TRUE(run->finish().ok());
  }
  write("file", "changed by hand");
  auto run = begin({.execution = "e"});
  ASSERT_TRUE(take(*run, "one").ok());
  ASSERT_TRUE(run->finish().ok());
  EXPECT_EQ(ran_, 1);
  EXPECT_EQ(read("file"), "one");
}

TEST_F(RunTest, FilesThatAreKeptStayAndTheNextTurnsKeySaysSo) {
  {
    auto run = begin({.execution = "e"});
    ASSERT_TRUE(take(*run, "one").ok());
    ASSERT_TRUE(take(*run, "two").ok());
    ASSERT_TRUE(run->finish().ok());
  }
  write("file", "mine");
  auto run = begin({.execution = "e", .cached_files = CachedFiles::kKeep});
  ASSERT_EQ(take(*run, "one").value().how, How::kCached);
  EXPECT_EQ(read("file"), "mine");
  EXPECT_TRUE(was_said("is left as it is"));
  std::string seen;
  const auto live = run->turn({.prompt = "three"}, [&](Turn&) -> Result<TurnOutput> {
    seen = read("file");
    return TurnOutput{"3"};
  });
  ASSERT_TRUE(live.ok()) << live.error().to_string();
  EXPECT_EQ(seen, "mine");
  const auto turn = journal_->find_turn("e", "2");
  EXPECT_NE(turn.value().start_identity, journal_->turns("e", 1).value()[0].identity);
}

TEST_F(RunTest, ACachedTurnWithSideEffectsIsWarnedAbout) {
  const auto with_effects = [&](Run& run) {
    return run.turn({.prompt = "p"}, [&](Turn& turn) -> Result<TurnOutput> {
      const auto called = turn.call({.name = "exec",
                                     .arguments = R"({"command":"make deploy"})",
                                     .effects = Effects::kPossible},
                                    [] { return Result<CallOutcome>(CallOutcome{"ok", 0}); });
      EXPECT_TRUE(called.ok());
      return TurnOutput{"x"};
    });
  };
  {
    auto run = begin({.execution = "e"});
    ASSERT_TRUE(with_effects(*run).ok());
    EXPECT_FALSE(was_said("warning"));
  }
  auto run = begin({.execution = "e"});
  ASSERT_TRUE(with_effects(*run).ok());
  EXPECT_TRUE(was_said("warning: turn 'default' comes from the record: the commands"));
}

TEST_F(RunTest, TurnsHaveNamesAndLinesThatTellHowLongTheyTook) {
  auto run = begin({.execution = "e"});
  ASSERT_EQ(take(*run, "one").value().name, "default");
  ASSERT_EQ(take(*run, "two").value().name, "default_2");
  ASSERT_EQ(run->turn({.step = "plan"}, [](Turn&) { return Result<TurnOutput>(TurnOutput{}); })
                .value()
                .name,
            "plan");
  ASSERT_EQ(take(*run, "three").value().name, "default_3");
  EXPECT_EQ(said_[0], "turn default started");
  EXPECT_TRUE(said_[1].starts_with("turn default finished in ")) << said_[1];
  EXPECT_EQ(event_line({RunEvent::Kind::kTurnFinished, "default_2", How::kCached, 3, ""}),
            "turn default_2 finished in 3 ms (cached)");
  EXPECT_EQ(event_line({RunEvent::Kind::kTurnFinished, "a", How::kLive, 1234, ""}),
            "turn a finished in 1.2 s");
  for (const char* bad : {"a/b", "12", "a\nb"}) {
    EXPECT_FALSE(
        run->turn({.step = bad}, [](Turn&) { return Result<TurnOutput>(TurnOutput{}); }).ok());
  }
}

TEST_F(RunTest, AChangedSkillRunsTheTurnAgainAndExplainNamesIt) {
  const auto with_skill = [&](const std::string& text) {
    auto run = begin({.execution = "e"});
    auto result = run->turn({.prompt = "p", .skills = {{"SKILL.md", text}}},
                            [&](Turn&) -> Result<TurnOutput> {
                              ++ran_;
                              return TurnOutput{text};
                            });
    EXPECT_TRUE(run->finish().ok());
    return result.value().how;
  };
  EXPECT_EQ(with_skill("a"), How::kLive);
  EXPECT_EQ(with_skill("a"), How::kCached);
  EXPECT_EQ(with_skill("b"), How::kLive);
  const auto why = explain(*journal_, journal_->find_turn("e", "1").value());
  ASSERT_TRUE(why.ok());
  ASSERT_EQ(why.value().changes.size(), 1U);
  EXPECT_EQ(why.value().changes[0].name, "skill SKILL.md");
}

TEST_F(RunTest, OtherFilesAtTheStartRunTheTurnAgainAndOurOutputFilesDoNot) {
  const auto run_with = [&](const std::string& execution) {
    auto run = begin({.execution = execution});
    const auto result =
        run->turn({.prompt = "p"}, [](Turn&) { return Result<TurnOutput>(TurnOutput{"x"}); });
    EXPECT_TRUE(run->finish().ok());
    return result.value().how;
  };
  write("file", "1");
  EXPECT_EQ(run_with("a"), How::kLive);
  EXPECT_EQ(run_with("b"), How::kCached) << "another execution, the same key";
  write(".exec/1/stdout", "long output");
  EXPECT_EQ(run_with("c"), How::kCached);
  write("file", "2");
  EXPECT_EQ(run_with("d"), How::kLive);
  const auto why = explain(*journal_, journal_->find_turn("d", "1").value());
  ASSERT_EQ(why.value().changes.size(), 1U);
  EXPECT_EQ(why.value().changes[0].name, "files");
  std::filesystem::permissions(path("file"), std::filesystem::perms::owner_read);
  EXPECT_EQ(run_with("e"), How::kLive) << "a mode is part of it";
}

TEST_F(RunTest, AFailedTurnIsTriedAgainFromItsFilesAndEachAttemptIsRecorded) {
  write("file", "start");
  auto run = begin({.execution = "e"});
  int attempts = 0;
  const auto body = [&](Turn& turn) -> Result<TurnOutput> {
    EXPECT_EQ(read("file"), "start");
    EXPECT_EQ(turn.attempt(), ++attempts);
    write("file", "broken");
    if (attempts < 3) {
      return Error{Code::kUnavailable, 0, "the model is away", {}};
    }
    return TurnOutput{"at last"};
  };
  EXPECT_FALSE(run->turn({}, {.retries = -1}, body).ok());
  const auto result = run->turn({}, {.retries = 2}, body);
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  const auto rows = journal_->attempts("e", 0, 1).value();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].state, TurnState::kFailed);
  EXPECT_EQ(rows[0].error, "the model is away");
  EXPECT_EQ(rows[2].state, TurnState::kFinished);
  EXPECT_EQ(journal_->turns("e").value().size(), 1U);
}

TEST_F(RunTest, AFailedTurnIsNotTakenFromTheRecordAndTheNewestIs) {
  for (int round = 0; round < 3; ++round) {
    auto run = begin({.execution = "e", .switches = {.disable_cache = round == 2}});
    const auto result = run->turn({.prompt = "p"}, [&](Turn&) -> Result<TurnOutput> {
      if (round == 0) {
        return Error{Code::kSystem, 0, "no", {}};
      }
      return TurnOutput{std::to_string(round)};
    });
    EXPECT_EQ(result.ok(), round != 0);
  }
  auto run = begin({.execution = "e"});
  const auto result =
      run->turn({.prompt = "p"}, [](Turn&) { return Result<TurnOutput>(TurnOutput{"live"}); });
  EXPECT_EQ(result.value().how, How::kCached);
  EXPECT_EQ(result.value().output.text, "2");
}

TEST_F(RunTest, CallsAreTakenFromTheRecordOneByOneIfThatIsAskedFor) {
  int models = 0;
  int tools = 0;
  const auto attempt = [&](Granularity granularity, bool fails) {
    auto run = begin({.execution = "e", .granularity = granularity});
    return run->turn({.prompt = "p"}, [&](Turn& turn) -> Result<TurnOutput> {
      const auto model = turn.call({.kind = CallKind::kModel, .name = "m", .arguments = "{}"}, [&] {
        ++models;
        return Result<CallOutcome>(CallOutcome{"run make"});
      });
      EXPECT_EQ(model.value().outcome.result, "run make");
      (void)turn.call({.name = "exec", .arguments = "{}", .caching = CallCaching::kNever}, [&] {
        ++tools;
        return Result<CallOutcome>(CallOutcome{"made", 0});
      });
      if (fails) {
        return Error{Code::kGone, 0, "killed", {}};
      }
      return TurnOutput{"done"};
    });
  };
  EXPECT_FALSE(attempt(Granularity::kCall, true).ok());
  EXPECT_TRUE(attempt(Granularity::kCall, false).ok());
  EXPECT_EQ(models, 1) << "it was not paid for again";
  EXPECT_EQ(tools, 2) << "cache=false";
  const auto calls = journal_->calls(journal_->find_turn("e", "1").value()).value();
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_TRUE(calls[0].cached);
  EXPECT_FALSE(calls[1].cached);
  EXPECT_EQ(calls[1].exit_code, 0);
}

TEST_F(RunTest, ACallWhoseResultHoldsASecretIsNotKept) {
  int made = 0;
  for (int round = 0; round < 2; ++round) {
    auto run = begin({.execution = "e", .granularity = Granularity::kCall});
    (void)run->turn({.prompt = "p"}, [&](Turn& turn) -> Result<TurnOutput> {
      (void)turn.call({.name = "t", .arguments = R"({"authorization":"hush-hush"})"}, [&] {
        ++made;
        return Result<CallOutcome>(CallOutcome{R"({"token":"hush-hush"})"});
      });
      return Error{Code::kGone, 0, "killed", {}};
    });
  }
  EXPECT_EQ(made, 2);
  for (const auto& entry : std::filesystem::directory_iterator(root_)) {
    if (entry.path().filename().string().starts_with("journal.db")) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      EXPECT_EQ(bytes.find("hush-hush"), std::string::npos) << entry.path();
    }
  }
}

TEST_F(RunTest, OneExecutionHasOneRunAtATime) {
  auto run = begin({.execution = "e"});
  Journal other = Journal::open(*home_).value();
  StoreFiles files(*home_, "w");
  const auto second = Run::begin(other, files, {.execution = "e"});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_TRUE(Run::begin(other, files, {.execution = "f"}).ok());
}

TEST_F(RunTest, TwoRunsWithTheSameKeyAtOnceAreBothRecorded) {
  Journal other = Journal::open(*home_).value();
  StoreFiles files(*home_, "w");
  auto run = begin({.execution = "a"});
  auto second = std::move(Run::begin(other, files, {.execution = "b"}).value());
  const auto body = [&](Turn&) -> Result<TurnOutput> {
    const auto inner = second->turn({.prompt = "p"},
                                    [](Turn&) { return Result<TurnOutput>(TurnOutput{"inner"}); });
    EXPECT_TRUE(inner.ok());
    return TurnOutput{"outer"};
  };
  ASSERT_TRUE(run->turn({.prompt = "p"}, body).ok());
  EXPECT_EQ(journal_->turns("a").value()[0].text, "outer");
  EXPECT_EQ(journal_->turns("b").value()[0].text, "inner");
  EXPECT_EQ(journal_->turns("a").value()[0].key, journal_->turns("b").value()[0].key);
}

TEST_F(RunTest, WhatATurnSavesIsLoadedByNameWhenItIsFinished) {
  auto run = begin({.execution = "e"});
  const auto saving = [&](const std::string& name, const std::string& value) {
    return run->turn({.step = "s", .prompt = value}, [&](Turn& turn) -> Result<TurnOutput> {
      EXPECT_TRUE(turn.save(name, ArtifactKind::kContext, value).ok());
      EXPECT_EQ(turn.save(name, ArtifactKind::kBlob, value).error().code, Code::kConflict);
      EXPECT_EQ(turn.save("a/b", ArtifactKind::kBlob, "").error().code, Code::kInvalid);
      EXPECT_FALSE(journal_->load("e", name + value).ok());
      return TurnOutput{};
    });
  };
  ASSERT_TRUE(saving("x", "1").ok());
  EXPECT_EQ(run->load("e", "x").value().value, "1");
  EXPECT_EQ(run->load("e", "x").value().kind, ArtifactKind::kContext);
  EXPECT_EQ(run->load("e", "y").error().code, Code::kNotFound);
  EXPECT_EQ(run->load("nobody", "x").error().code, Code::kNotFound);
  ASSERT_TRUE(saving("x", "2").ok());
  EXPECT_EQ(run->load("e", "x").error().code, Code::kInvalid) << "ambiguous";
  EXPECT_EQ(run->load("e", "s_2/x").value().value, "2");
  // A turn from the record has what it saved.
  ASSERT_TRUE(run->finish().ok());
  auto again = begin({.execution = "e"});
  ASSERT_EQ(again
                ->turn({.step = "s", .prompt = "1"},
                       [](Turn&) { return Result<TurnOutput>(Error{Code::kSystem, 0, "ran", {}}); })
                .value()
                .how,
            How::kCached);
  EXPECT_EQ(again->load("e", "x").value().value, "1");
}

TEST_F(RunTest, LogsGoToTheTurnElseToTheExecutionElseNowhere) {
  auto run = begin({.execution = "e"});
  EXPECT_TRUE(run->log(R"({"a":1,"d":{"x":1}})").ok());
  EXPECT_TRUE(run->log(R"({"a":2,"d":{"y":2}})").ok());
  ASSERT_TRUE(run->turn({},
                        [&](Turn&) -> Result<TurnOutput> {
                          EXPECT_TRUE(run->log(R"({"cost":3,"password":"hush"})").ok());
                          return TurnOutput{};
                        })
                  .ok());
  EXPECT_FALSE(run->log("[]").ok());
  EXPECT_FALSE(run->log("nothing").ok());
  ASSERT_TRUE(run->finish().ok());
  EXPECT_EQ(run->log("{}").error().code, Code::kConflict);
  EXPECT_EQ(journal_->find_execution("e")->logs, R"({"a":2,"d":{"x":1,"y":2}})");
  EXPECT_EQ(journal_->find_turn("e", "1")->logs, R"({"cost":3,"password":"[redacted]"})");
}

TEST_F(RunTest, AWaitOutlivesItsRunAndTheAnswerLetsItGoOn) {
  using std::chrono::milliseconds;
  const WaitRequest request{wait_name(0, "Deploy?").value(), "Deploy?", R"({"type":"boolean"})",
                            milliseconds(5), milliseconds(1)};
  EXPECT_EQ(WaitRequest{}.timeout, milliseconds(600'000));
  EXPECT_EQ(WaitRequest{}.poll, milliseconds(5'000));
  {
    auto run = begin({.execution = "e"});
    EXPECT_EQ(run->wait(request).error().code, Code::kTimeout);
  }
  ASSERT_EQ(journal_->open_waits().value().size(), 1U);
  EXPECT_EQ(journal_->answer("e", request.name, "\"perhaps\"").error().code, Code::kInvalid);
  EXPECT_EQ(journal_->answer("e", "other", "true").error().code, Code::kNotFound);
  ASSERT_TRUE(journal_->answer("e", request.name, "true").ok());
  EXPECT_EQ(journal_->answer("e", request.name, "false").error().code, Code::kConflict);
  {
    auto run = begin({.execution = "e"});
    EXPECT_EQ(run->wait(request).value(), "true");
    ASSERT_TRUE(take(*run, "one").ok());
    ASSERT_TRUE(run->finish().ok());
  }
  auto replay = begin({.replay = Replay{"e"}});
  EXPECT_EQ(replay->wait(request).value(), "true") << "a replay has the answers of its source";
  const WaitRequest other{"n", "And now?", "", milliseconds(5), milliseconds(1)};
  EXPECT_EQ(replay->wait(other).error().code, Code::kTimeout);
  ASSERT_TRUE(journal_->abort_wait(replay->execution(), "n").ok());
  EXPECT_EQ(replay->wait(other).error().code, Code::kConflict);
}

}  // namespace
}  // namespace carrel::journal
