#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "attacks/egress_attack.h"
#include "support/box.h"
#include "support/nursery.h"

// Attacks on the egress process: its death, its policy while it changes, what it has to carry.
namespace carrel::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;

class EgressLifeAttack : public EgressAttack {
 protected:
  [[nodiscard]] long resident_kib() const {
    return std::atol(status_field(egress_process(), "VmRSS").c_str());
  }
  // A program in a sandbox.
  std::unique_ptr<Process> start(const std::string& id, const std::string& code) {
    return std::make_unique<Process>(
        launch({"exec", "--timeout", "110", id, "--", "python3", "-c", text_of(code)}));
  }
  // One that has said "begun".
  std::unique_ptr<Process> begin(const std::string& id, const std::string& code) {
    auto process = start(id, code);
    EXPECT_TRUE(process->wait_for_output("begun", seconds(20))) << process->out() << process->err();
    return process;
  }
  // By its own user: root in a container may do that to nobody else.
  [[nodiscard]] bool limit_descriptors(pid_t process, const std::string& count) const {
    const std::string id = std::to_string(Place::user_id());
    return std::system(((as_root() ? ""
                                   : "setpriv --clear-groups --reuid " + id + " --regid $(id -g " +
                                         id + ") ") +
                        "prlimit --pid " + std::to_string(process) + " --nofile=" + count + ":")
                           .c_str()) == 0;
  }
  [[nodiscard]] long open_descriptors() const {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(egress_process()) +
                                                  "/fd");
    return std::distance(all, std::filesystem::directory_iterator());
  }
  // For the next one-shot, by the nursery of a keeper that is there.
  void have_network_made_ahead() {
    ASSERT_NE(wait_for_nursery(GetParam()), 0);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(carrel({"run", "--network", "allow=tcp:allowed.test:7000", "--", "true"}).status,
                0);
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
  // Nothing else of the program runs meanwhile: the command that waits for the sandbox does it.
  void expect_one_shot_regains_its_network() {
    Process one(launch({"run", "--network", "allow=tcp:allowed.test:7000", "--", "python3", "-c",
                        text_of("for line in sys.stdin:\n"
                                "    attempt('allowed ' + line.strip(), echoes, 'allowed.test')\n"
                                "    attempt('evil', echoes, '11.6.6.6')\n"
                                "    print('tried', line.strip(), flush=True)\n")}));
    const auto tried = [&](const std::string& when) {
      one.write(when + "\n");
      EXPECT_TRUE(one.wait_for_output("tried " + when, seconds(20))) << one.out() << one.err();
      return one.out().find("through allowed " + when) != std::string::npos;
    };
    EXPECT_TRUE(tried("before"));
    for (int deaths = 0; deaths < 3; ++deaths) {
      kill_egress();
      int tries = 0;
      EXPECT_TRUE(eventually(seconds(15), [&] {
        return tried("again" + std::to_string(deaths) + "." + std::to_string(++tries));
      }));
    }
    EXPECT_EQ(one.out().find("through evil"), std::string::npos);
    EXPECT_EQ(one.wait(seconds(20)).status, 0);
  }
};
CARREL_AS_BOTH(EgressLifeAttack);

// CARREL_RELOADS=1000 is the long run.
TEST_P(EgressLifeAttack, D29_APolicyThatChangesIsTheOldOneOrTheNewOne) {
  const auto reloads = number_from("CARREL_RELOADS", 40);
  const std::string id = create({"--network", "allow=tcp:allowed.test:7000"});
  const auto client =
      begin(id,
            "kept = socket.create_connection(('allowed.test', 7000), 3 * SLOWNESS)\n"
            "kept.settimeout(5 * SLOWNESS)\n"
            "print('begun', flush=True)\n"
            "good = bad = evil = rounds = 0\n"
            "import select\n"
            "while not select.select([sys.stdin], [], [], 0)[0]:\n"
            "    rounds += 1\n"
            "    kept.sendall(TOKEN)\n"
            "    if kept.recv(100) != TOKEN:\n"
            "        print('through cut', flush=True)\n"
            "    for host in ('11.6.6.6', 'evil.test', '10.1.2.3'):\n"
            "        try:\n"
            "            if echoes(host):\n"
            "                print('through', host, flush=True)\n"
            "        except OSError:\n"
            "            pass\n"
            "    try:\n"
            "        good += echoes('allowed.test')\n"
            "    except OSError:\n"
            "        bad += 1\n"
            "print('rounds', rounds, good, bad)\n"
            "attempt('allowed', lambda: good and not bad)\n");
  for (unsigned long i = 0; i < reloads; ++i) {
    if (i % 8 == 7) {
      EXPECT_NE(carrel({"net", "set", id, "allow=no such thing"}).status, 0);
    } else {
      set_network(id, i % 2 == 0 ? "allow=tcp:allowed.test:7000,tcp:a.wild.test:7000"
                                 : "allow=tcp:allowed.test:7000");
    }
  }
  client->write("\n");
  const Run run = client->wait(seconds(60));
  EXPECT_THAT(run.out, HasSubstr("through allowed\n")) << run.err;
  EXPECT_THAT(run.out, testing::Not(HasSubstr("through cut")));
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 7000"});
  set_network(id, "allow=tcp:11.6.6.6:7000");
  EXPECT_EQ(through_in(id,
                       "attempt('evil', echoes, '11.6.6.6')\n"
                       "attempt('allowed', echoes, 'allowed.test')\n"),
            Names{"evil"});
}

TEST_P(EgressLifeAttack, D29_AConnectionThatIsBeingMadeIsJudgedByTheNewPolicy) {
  internet().run("ip addr del 10.1.2.3/32 dev lo; ip route add blackhole 10.1.2.3");
  ASSERT_TRUE(eventually(seconds(5), [&] {
    return through_outside("attempt('there', echoes, '10.1.2.3')\n").empty();
  }));
  const std::string id = create({"--network", "allow=tcp:inside.test:7000,tcp:10.1.2.3:7000"});
  const std::string code =
      "sock = socket.create_connection(('inside.test', 7000), 3)\n"
      "sock.sendall(TOKEN)\n"
      "print('begun', flush=True)\n"
      "sock.settimeout(6 * SLOWNESS)\n"
      "attempt('reached', lambda: sock.recv(100))\n";
  for (const bool changed : {true, false}) {
    const auto calls = [&] {
      const std::vector<std::string> all = internet().packets();
      return std::count(all.begin(), all.end(), "tcp 10.1.2.3 7000");
    };
    const auto before = calls();
    const auto client = begin(id, code);
    ASSERT_TRUE(eventually(seconds(5), [&] { return calls() > before; })) << "nobody calls";
    if (changed) {
      set_network(id, "allow=tcp:inside.test:7000");
    }
    internet().run("ip route del blackhole 10.1.2.3; ip addr add 10.1.2.3/32 dev lo");
    const Run run = client->wait(seconds(20));
    EXPECT_EQ(run.out.find("through reached") == std::string::npos, changed) << run.out << run.err;
    EXPECT_EQ(internet().connections().empty(), changed);
    set_network(id, "allow=tcp:inside.test:7000,tcp:10.1.2.3:7000");
    const std::string closed = changed ? "closed-first" : "closed-second";
    internet().run("ip addr del 10.1.2.3/32 dev lo; ip route add blackhole 10.1.2.3; touch " +
                   closed);
    ASSERT_TRUE(eventually(seconds(5), [&] {
      return std::filesystem::exists(internet().directory() + "/" + closed);
    }));
  }
}

TEST_P(EgressLifeAttack, D31_KilledInTheMiddleOfTransfersItOpensNothing) {
  const std::string id = create({"--network", "allow=http:allowed.test"});
  ASSERT_EQ(through_in(id, "attempt('before', answers, 'allowed.test')\n"), Names{"before"});
  const auto client =
      begin(id,
            "import selectors\n"
            "chosen = selectors.DefaultSelector()\n"
            "for number in range(100):\n"
            "    sock = socket.create_connection(('allowed.test', 80), 5)\n"
            "    sock.sendall(request('allowed.test', '/drip/200'))\n"
            "    chosen.register(sock, selectors.EVENT_READ, number)\n"
            "heard, ended, begun = set(), set(), None\n"
            "while len(ended) < 100:\n"
            "    for key, _ in chosen.select(1):\n"
            "        try:\n"
            "            data = key.fileobj.recv(65536)\n"
            "        except OSError:\n"
            "            data = b''\n"
            "        if data:\n"
            "            heard.add(key.data)\n"
            "        else:\n"
            "            ended.add(key.data)\n"
            "            chosen.unregister(key.fileobj)\n"
            "            begun = begun or time.time()\n"
            "    if begun is None and len(heard) == 100:\n"
            "        print('begun', flush=True)\n"
            "        begun = 0\n"
            "    if begun and time.time() - begun > 10:\n"
            "        print('through', 100 - len(ended), 'without an end')\n"
            "        break\n"
            "attempt('all were heard and ended', lambda: len(heard) == 100 and len(ended) == 100)\n"
            "for host in ('11.6.6.6', '11.1.1.1', 'allowed.test', 'evil.test'):\n"
            "    attempt(host, answers, host)\n"
            "    attempt('lookup at ' + host, finds, '11.0.0.53', 'allowed.test')\n");
  kill_egress();
  const Run run = client->wait(seconds(60));
  EXPECT_THAT(run.out, HasSubstr("through all were heard and ended\n")) << run.out << run.err;
  EXPECT_EQ(run.out.find("through "), run.out.rfind("through ")) << run.out;
  EXPECT_EQ(through_in(id,
                       "attempt('after', answers, 'allowed.test')\n"
                       "attempt('evil', answers, '11.6.6.6')\n"),
            Names{"after"});
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 80"});
  EXPECT_EQ(carrel({"rm", id}).status, 0);
}

TEST_P(EgressLifeAttack, D31_TheCommandOfAOneShotBringsItsEgressProcessBack) {
  expect_one_shot_regains_its_network();
}

// Its first sockets were made with its network, and not by its guest.
TEST_P(EgressLifeAttack, D31_SoDoesThatOfOneWhoseNetworkWasMadeAhead) {
  const Box box(GetParam());
  have_network_made_ahead();
  expect_one_shot_regains_its_network();
}

// Whoever serves the network has said that it holds before the first command runs.
TEST_P(EgressLifeAttack, D31_ACommandWaitsForAnEgressProcessThatStandsStill) {
  const Box box(GetParam());
  have_network_made_ahead();
  const pid_t egress = egress_process();
  ASSERT_GT(egress, 0);
  ASSERT_EQ(::kill(egress, SIGSTOP), 0);
  Process one(launch({"run", "--network", "allow=tcp:allowed.test:7000", "--", "echo", "ran"}));
  EXPECT_FALSE(one.says_within(milliseconds(700), "ran"));
  EXPECT_EQ(::kill(egress, SIGCONT), 0);
  EXPECT_THAT(one.wait(seconds(20)).out, HasSubstr("ran"));
}

// No command is given meanwhile: the keeper does it.
TEST_P(EgressLifeAttack, D31_TheKeeperBringsTheEgressProcessOfLongLivedSandboxesBack) {
  const std::string id = create({"--network", "allow=tcp:allowed.test:7000"});
  auto client = begin(id,
                      "import time\n"
                      "address = socket.getaddrinfo('allowed.test', 7000)[0][4][0]\n"
                      "print('begun', flush=True)\n"
                      "sys.stdin.readline()\n"
                      "end = time.time() + 30\n"
                      "while time.time() < end:\n"
                      "    attempt('evil', echoes, '11.6.6.6')\n"
                      "    try:\n"
                      "        if echoes(address):\n"
                      "            print('served', flush=True)\n"
                      "            break\n"
                      "    except OSError:\n"
                      "        time.sleep(0.1)\n");
  kill_egress();
  client->write("\n");
  EXPECT_TRUE(client->wait_for_output("served", seconds(30))) << client->out() << client->err();
  EXPECT_EQ(client->out().find("through evil"), std::string::npos);
}

// A program that sits on the ports of the network while nobody serves it delays the next process,
// and does not keep it away.
TEST_P(EgressLifeAttack, D31_ASandboxThatCannotBeServedNowIsServedLater) {
  const std::string id = create({"--network", "allow=tcp:allowed.test:7000"});
  ASSERT_EQ(through_in(id, "attempt('before', echoes, 'allowed.test')\n"), Names{"before"});
  auto squatter = begin(id,
                        "import time\n"
                        "print('begun', flush=True)\n"
                        "sock = socket.socket()\n"
                        "sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                        "until = time.time() + 20\n"
                        "while time.time() < until:\n"
                        "    try:\n"
                        "        sock.bind(('127.0.0.1', 61001))\n"
                        "        sock.listen()\n"
                        "        break\n"
                        "    except OSError:\n"
                        "        pass\n"
                        "print('sitting', flush=True)\n"
                        "sys.stdin.readline()\n"
                        "sock.close()\n"
                        "time.sleep(1)\n"
                        "end = time.time() + 20\n"
                        "while time.time() < end:\n"
                        "    try:\n"
                        "        if echoes('allowed.test'):\n"
                        "            print('served', flush=True)\n"
                        "            break\n"
                        "    except OSError:\n"
                        "        pass\n"
                        "    time.sleep(0.1)\n");
  kill_egress();
  ASSERT_TRUE(squatter->wait_for_output("sitting", seconds(20))) << squatter->err();
  (void)carrel({"exec", id, "--", "true"});  // starts the next, which finds the port taken
  squatter->write("\n");
  EXPECT_TRUE(squatter->wait_for_output("served", seconds(25))) << squatter->out();
}

TEST_P(EgressLifeAttack, D31_StalledOrOutOfDescriptorsItOpensNothing) {
  const std::string id = create({"--network", "allow=tcp:allowed.test:7000"});
  const std::string code =
      "attempt('allowed', echoes, 'allowed.test')\n"
      "attempt('evil', echoes, '11.6.6.6')\n"
      "attempt('evil lookup', finds, '11.0.0.53', 'evil.test')\n";
  ASSERT_EQ(through_in(id, code), Names{"allowed"});
  const pid_t egress = egress_process();
  ASSERT_GT(egress, 0);
  {
    // A client that is there before: the commands of the program would wait for the process.
    Process client(launch({"exec", id, "--", "bash", "-c",
                           "echo here; read; exec python3 -c \"$0\"", text_of(code)}));
    ASSERT_TRUE(client.wait_for_output("here", seconds(10)));
    ASSERT_EQ(::kill(egress, SIGSTOP), 0);
    client.write("\n");
    const Run run = client.wait(seconds(60));
    ::kill(egress, SIGCONT);
    EXPECT_THAT(run.out, HasSubstr("finished")) << run.err;
    EXPECT_THAT(run.out, testing::Not(HasSubstr("through")));
  }
  EXPECT_EQ(through_in(id, code), Names{"allowed"});
  ASSERT_TRUE(limit_descriptors(egress, "40"));
  const std::string many =
      "socks = []\n"
      "for _ in range(60):\n"
      "    try:\n"
      "        socks.append(socket.create_connection(('allowed.test', 7000), 2))\n"
      "        socks[-1].sendall(TOKEN)\n"
      "    except OSError:\n"
      "        pass\n"
      "attempt('evil', echoes, '11.6.6.6')\n"
      "for sock in socks:\n"
      "    sock.close()\n";
  EXPECT_EQ(through_in(id, many), Names{});
  ASSERT_TRUE(limit_descriptors(egress, "1024"));
  EXPECT_TRUE(eventually(seconds(10), [&] { return through_in(id, code) == Names{"allowed"}; }));
  EXPECT_EQ(egress_process(), egress);
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 7000"});
}

TEST_P(EgressLifeAttack, D40_OneSandboxHasNoMoreConnectionsThanItMayHave) {
  const std::string id = create({"--network", "allow=tcp:allowed.test:7000,allowed.test"});
  const std::string other = create({"--network", "allow=tcp:allowed.test:7000"});
  const auto flood =
      start(id,
            "import resource\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(7)[1],) * 2)\n"
            "where = socket.gethostbyname('allowed.test')\n"
            "socks, count = [], " +
                std::to_string(number_from("CARREL_CONNECTIONS", 1500)) +
                "\n"
                "def opened(port, data):\n"
                "    for number in range(count):\n"
                "        sock = socket.socket()\n"
                "        sock.setblocking(False)\n"
                "        try:\n"
                "            sock.connect((where, port))\n"
                "        except OSError:\n"
                "            pass\n"
                "        socks.append(sock)\n"
                "        if len(socks) > 900:\n"
                "            socks.pop(0).close()\n"
                "        if number % 100 == 99:\n"
                "            time.sleep(0.02)\n"
                "# Those that say nothing are counted from the beginning.\n"
                "opened(443, b'')\n"
                "print('begun', flush=True)\n"
                "sys.stdin.readline()\n"
                "for sock in socks:\n"
                "    sock.close()\n"
                "socks.clear()\n"
                "# That those were closed is seen a moment later.\n"
                "until, alive = time.time() + 20 * SLOWNESS, 0\n"
                "while alive < 256 and time.time() < until:\n"
                "    for sock in socks:\n"
                "        sock.close()\n"
                "    socks.clear()\n"
                "    time.sleep(1)\n"
                "    alive = 0\n"
                "    for _ in range(300):\n"
                "        sock = socket.socket()\n"
                "        sock.settimeout(3 * SLOWNESS)\n"
                "        socks.append(sock)\n"
                "        try:\n"
                "            sock.connect((where, 7000))\n"
                "            sock.sendall(TOKEN)\n"
                "            alive += sock.recv(100) == TOKEN\n"
                "        except OSError:\n"
                "            pass\n"
                "print('alive', alive, flush=True)\n");
  long most = 0;
  const bool begun = eventually(seconds(20), [&] {
    most = std::max(most, open_descriptors());
    return flood->says_within(milliseconds(5), "begun");
  });
  EXPECT_TRUE(begun) << flood->err();
  RecordProperty("descriptors", std::to_string(most));
  EXPECT_LT(most, 400) << "connections that are too many are kept";
  // Others are served meanwhile, and nothing grows without end.
  EXPECT_EQ(through_in(other,
                       "begun = time.time()\n"
                       "attempt('other', echoes, 'allowed.test')\n"
                       "attempt('slowly', lambda: time.time() - begun > 3 * SLOWNESS)\n"),
            Names{"other"});
  EXPECT_LT(resident_kib(), 96 << 10);
  const Run usage = carrel({"net", "usage", "--json", id});
  EXPECT_EQ(usage.status, 0) << usage.err;
  flood->write("\n");
  const Run run = flood->wait(seconds(60));
  EXPECT_THAT(run.out, HasSubstr("alive 256\n")) << run.err;
  EXPECT_LT(resident_kib(), 160 << 10);
}

TEST_P(EgressLifeAttack, D40_AFloodOfLookupsLeavesOthersAlone) {
  const std::string id = create({"--network", "allow=allowed.test", "--cpus", "2"});
  const std::string other = create({"--network", "allow=http:allowed.test"});
  const auto flood = begin(id,
                           "for _ in range(6):\n"
                           "    if os.fork() == 0:\n"
                           "        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                           "        sock.connect(('11.0.0.53', 53))\n"
                           "        message = question('secret.evil.test')\n"
                           "        until = time.time() + " +
                               std::to_string(number_from("CARREL_FLOOD_SECONDS", 6)) +
                               "\n"
                               "        while time.time() < until:\n"
                               "            for _ in range(500):\n"
                               "                try:\n"
                               "                    sock.send(message)\n"
                               "                except OSError:\n"
                               "                    pass\n"
                               "        os._exit(0)\n"
                               "time.sleep(0.5)\n"
                               "print('begun', flush=True)\n"
                               "while True:\n"
                               "    try:\n"
                               "        os.wait()\n"
                               "    except OSError:\n"
                               "        break\n");
  EXPECT_EQ(through_in(other,
                       "begun = time.time()\n"
                       "for _ in range(5):\n"
                       "    attempt('other', answers, 'allowed.test')\n"
                       "print('took', time.time() - begun)\n"
                       "attempt('slowly', lambda: time.time() - begun > 5 * SLOWNESS)\n"),
            Names{"other"});
  EXPECT_LT(resident_kib(), 96 << 10);
  EXPECT_FALSE(flood->wait(seconds(100)).timed_out);
  EXPECT_THAT(internet().queries(), testing::Not(Contains(HasSubstr("evil"))));
}

// Half of the servers take nothing, and the others send back what the client does not read.
// CARREL_FLOOD_SECONDS=60 is the long run.
TEST_P(EgressLifeAttack, D40_WhatAStalledServerOrClientDoesNotTakeIsNotKept) {
  const auto length = number_from("CARREL_FLOOD_SECONDS", 3);
  const std::string id = create({"--network", "allow=tcp:allowed.test:9,tcp:allowed.test:7000"});
  ASSERT_EQ(through_in(id, "attempt('up', lambda: True)\n"), Names{"up"});
  const long before = resident_kib();
  const auto client =
      start(id,
            "socks = [socket.create_connection(('allowed.test', 9 if number % 2 else 7000), 3)\n"
            "         for number in range(100)]\n"
            "piece, sent, until = b'x' * 65536, 0, time.time() + " +
                std::to_string(length) +
                "\n"
                "for sock in socks:\n"
                "    sock.setblocking(False)\n"
                "while time.time() < until:\n"
                "    for sock in socks:\n"
                "        try:\n"
                "            sent += sock.send(piece)\n"
                "        except BlockingIOError:\n"
                "            pass\n"
                "print('begun', sent, flush=True)\n"
                "sys.stdin.readline()\n");
  EXPECT_TRUE(client->wait_for_output("begun", seconds(20) + seconds(length))) << client->err();
  EXPECT_LT(resident_kib() - before, 100 * 200) << "more than two pieces for each connection";
  client->write("\n");
  EXPECT_FALSE(client->wait(seconds(20)).timed_out);
}

TEST_P(EgressLifeAttack, TheEgressProcessHasGivenUpWhatItDoesNotNeed) {
  const std::string id = create({"--network", "allow=allowed.test"});
  const pid_t egress = egress_process();
  ASSERT_GT(egress, 0);
  EXPECT_EQ(status_field(egress, "Seccomp"), "2");
  EXPECT_EQ(status_field(egress, "NoNewPrivs"), "1");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
    EXPECT_EQ(status_field(egress, set), "0000000000000000") << set;
  }
  // It belongs to nobody who could look into it: what is undumpable is root's.
  struct stat memory{};
  ASSERT_EQ(::stat(("/proc/" + std::to_string(egress) + "/mem").c_str(), &memory), 0);
  EXPECT_EQ(memory.st_uid, 0U);
  const std::string limits = read_text("/proc/" + std::to_string(egress) + "/limits").value_or("");
  EXPECT_THAT(limits, testing::ContainsRegex("Max core file size +0 +0"));
}

// What the egress process says to a question of that user; empty: nothing.
std::string asked_as(uid_t user, const std::string& directory, const std::string& question) {
  int ends[2];
  if (::pipe(ends) != 0) {
    return "no pipe";
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const int place = ::open(directory.c_str(), O_PATH | O_DIRECTORY);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/egress", place);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    char answer[1000];
    if (::setresuid(user, user, user) != 0 ||
        ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      (void)!::write(ends[1], "not connected", 13);
      ::_exit(0);
    }
    (void)!::write(fd, question.data(), question.size());
    const ssize_t n = ::read(fd, answer, sizeof answer);
    (void)!::write(ends[1], answer, n > 0 ? static_cast<std::size_t>(n) : 0);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said(1000, '\0');
  const ssize_t n = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  said.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return said;
}

TEST_P(EgressLifeAttack, TheEgressProcessObeysItsOwnUserOnly) {
  const std::string id = create({"--network", "allow=allowed.test"});
  const std::string run = place().home(GetParam()) + "/run";
  const uid_t own = as_root() ? 0 : Place::user_id();
  const uid_t foreign = as_root() ? Place::user_id() : 0;
  const std::string question = "{\"op\":\"usage\",\"id\":\"" + id + "\"}\n";
  // The files are open to all for once: what is left is what the process itself looks at.
  for (const std::string& path : {place().home(GetParam()), run}) {
    ASSERT_EQ(::chmod(path.c_str(), 0711), 0);
  }
  ASSERT_EQ(::chmod((run + "/egress").c_str(), 0777), 0);
  EXPECT_EQ(asked_as(foreign, run, question), "");
  EXPECT_EQ(asked_as(foreign, run, "{\"op\":\"forget\",\"id\":\"" + id + "\"}\n"), "");
  EXPECT_THAT(asked_as(own, run, question), HasSubstr("connections"));
  // Nonsense ends nobody.
  for (const char* nonsense :
       {"{}\n", "[]\n", "x\n", "{\"op\":1}\n", "{\"op\":\"usage\",\"id\":7}\n",
        "{\"op\":\"attach\",\"id\":\"../../x\"}\n"}) {
    EXPECT_THAT(asked_as(own, run, nonsense), HasSubstr("error")) << nonsense;
  }
  EXPECT_THAT(asked_as(own, run, question), HasSubstr("connections"));
  for (const std::string& path : {run, place().home(GetParam())}) {
    ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  }
}

}  // namespace
}  // namespace carrel::test
