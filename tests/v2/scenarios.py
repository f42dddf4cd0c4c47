"""Stories of logins and logouts, in the guest, as root: what a user's sandboxes have while a
session lasts, and what is left of them afterwards.

The users are `resident`, who lingers, `visitor`, who comes and goes, and `carrel-test`, who has no
session. Prints a line for each story, and at the end "scenarios: N passed, N failed".
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback

import service

CARREL = "/usr/local/bin/carrel"
GROUPS = "/sys/fs/cgroup"
SLOW = 60  # seconds; the machine may be emulated
STORY_SECONDS = 240


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def uid_of(user):
    return int(run(["id", "-u", user]).stdout)


def eventually(question, seconds=SLOW):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = question()
        if answer:
            return answer
        time.sleep(0.2)
    return question()


class Session:
    """A login of a user, through PAM: a shell that takes one command after the other."""

    def __init__(self, user):
        self.process = subprocess.Popen(
            ["su", "-l", user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )
        status, text = self.run("cat /proc/self/cgroup")
        assert "/session-" in text, f"the login made no session: {text}"

    def run(self, command):
        """(status, what it said)"""
        self.process.stdin.write(f'{{ {command}; }} </dev/null\necho "=status=$?="\n')
        self.process.stdin.flush()
        text = ""
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the session ended: {text}")
            found = re.fullmatch(r"(.*)=status=(\d+)=\n", line)
            if found:
                return int(found.group(2)), text + found.group(1)
            text += line

    def carrel(self, *words):
        return self.run(shlex.join([CARREL, *words]))

    def on_terminal(self, *words):
        """The same with a terminal for its output."""
        command = shlex.quote(shlex.join([CARREL, *words]))
        return self.run(f"script -qec {command} /dev/null")

    def create(self, *words):
        status, text = self.carrel("create", *words)
        assert status == 0, text
        return text.strip()

    def info(self, box):
        status, text = self.carrel("info", "--json", box)
        assert status == 0, text
        return json.loads(text)

    def close(self):
        self.process.stdin.close()
        self.process.wait(SLOW)


def enforced(info):
    return {row["name"]: row for row in info["enforcement"]}


def checks_of(text):
    return {check["name"]: check for check in json.loads(text)["checks"]}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def group_of(pid):
    return re.search(r"^0::(.*)$", read(f"/proc/{pid}/cgroup"), re.MULTILINE).group(1)


def first_process(home, box):
    record = read(f"{home}/run/box/{box}/record")
    return int(re.search(r"^pid=(\d+)$", record, re.MULTILINE).group(1))


def first_process_of(user, box):
    return first_process(f"/home/{user}/.local/share/carrel", box)


def alive(pid):
    try:
        return read(f"/proc/{pid}/stat").split()[2] not in "ZX"
    except OSError:
        return False


def wait_for_logout(user):
    """Until the user's service manager is gone."""
    directory = f"/run/user/{uid_of(user)}"
    assert eventually(lambda: not os.path.exists(directory)), "the service manager did not end"


def scopes(user):
    manager = f"{GROUPS}/user.slice/user-{uid_of(user)}.slice/user@{uid_of(user)}.service"
    return [
        name
        for _, names, _ in os.walk(manager)
        for name in names
        if name.startswith("carrel-") and name.endswith(".scope")
    ]


def assert_limits(work):
    assert read(f"{work}/memory.max") == str(128 << 20)
    assert read(f"{work}/memory.swap.max") == "0"
    assert read(f"{work}/cpu.max") == "50000 100000"
    assert read(f"{work}/pids.max") == "42"


LIMITS = ["--memory", "128m", "--cpus", "0.5", "--pids", "40"]


def root_limits_survive_a_reload():
    """systemd takes controllers away that it does not need itself; not the sandboxes'."""
    box = run([CARREL, "create", *LIMITS]).stdout.strip()
    group = group_of(first_process("/var/lib/carrel", box))
    assert group.startswith("/carrel/carrel-"), group
    work = f"{GROUPS}{os.path.dirname(group)}/work"
    for _ in range(2):
        assert_limits(work)
        run(["systemctl", "daemon-reload"])
        run(["systemd-run", "-q", "--wait", "-p", "CPUWeight=50", "true"])
    assert_limits(work)
    assert run([CARREL, "rm", box]).returncode == 0
    assert not os.path.exists(os.path.dirname(work)), "the group is still there"


def long_lived_has_limits_from_a_scope():
    session = Session("resident")
    box = session.create(*LIMITS, "--require", "memory,cpu,pids")
    rows = enforced(session.info(box))
    for name in ("memory", "cpu", "pids"):
        assert rows[name]["by"] == "cgroup v2", rows[name]
    group = group_of(first_process_of("resident", box))
    place = r"/user@\d+\.service/.*/carrel-keeper-[0-9a-f]+-[0-9a-f]+\.scope/carrel-"
    assert re.search(place, group), group
    work = f"{GROUPS}{os.path.dirname(group)}/work"
    assert_limits(work)
    status, text = session.carrel("stats", "--json", box)
    assert status == 0 and json.loads(text)["memory_bytes"] > 0, text
    # It is killed for its memory, that is told, and the sandbox goes on.
    status, text = session.carrel("sh", "--json", box, "python3 -c 'x = bytearray(300 << 20)'")
    assert json.loads(text)["oom_killed"], text
    status, text = session.carrel("sh", box, "echo still here")
    assert text == "still here\n", text
    # Forks end at the limit.
    bomb = "import os, time\nn = 0\ntry:\n  while n < 200:\n    if os.fork() == 0: time.sleep(60)\n"
    bomb += "    n += 1\nexcept BlockingIOError: print(n)\n"
    status, text = session.carrel("exec", box, "--", "python3", "-c", bomb)
    assert 30 <= int(text) <= 40, text
    status, text = session.carrel("rm", box)
    assert status == 0, text
    assert not os.path.exists(os.path.dirname(work)), "the group is still there"
    # With nothing left to keep, the keeper goes, and its scope with it.
    assert eventually(lambda: not scopes("resident")), scopes("resident")
    session.close()


def second_keeper_finds_what_the_first_left():
    session = Session("resident")
    box = session.create("--require", "memory")
    pid = first_process_of("resident", box)
    keeper = [one for one in run(["pgrep", "-u", "resident", "-f", "^/usr/local/bin/carrel keeper"])
              .stdout.split() if one != str(pid)]
    assert len(keeper) == 1, keeper
    run(["kill", "-KILL", *keeper])
    assert eventually(lambda: not alive(keeper[0]))
    assert alive(pid), "the sandbox ended with its keeper"
    status, text = session.carrel("sh", box, "echo still here")
    assert text == "still here\n", text
    other = session.create("--require", "memory")
    assert len(scopes("resident")) == 2, scopes("resident")
    work = os.path.dirname(f"{GROUPS}{group_of(pid)}")
    status, text = session.carrel("rm", box, other)
    assert status == 0, text
    assert not alive(pid)
    assert not os.path.exists(work), "the group is still there"
    assert eventually(lambda: not scopes("resident")), scopes("resident")
    session.close()


def one_shot_with_required_limits_has_a_scope():
    session = Session("resident")
    code = "x = bytearray(200 << 20)"
    status, text = session.carrel("run", "--memory", "64m", "--require", "memory,cpu", "--json",
                                  "--", "python3", "-c", code)
    result = json.loads(text)
    assert result["oom_killed"] and result["exit_code"] == 137, text
    times = []
    for words in (["--require", "memory"], []):
        begin = time.monotonic()
        status, text = session.carrel("run", *words, "--", "echo", "ran")
        times.append(round(1000 * (time.monotonic() - begin)))
        assert (status, text) == (0, "ran\n"), text
    print(f"    {times[0]} ms with a scope, {times[1]} ms without")
    assert eventually(lambda: not scopes("resident")), scopes("resident")
    session.close()


def one_shot_below_the_manager_uses_the_keepers_scope():
    session = Session("resident")
    box = session.create()
    # A user's service is below the same manager as the keeper; a login session is not.
    service = "systemd-run --user --quiet --wait --pipe "
    status, text = session.run(
        service + f"{CARREL} run --memory 64m --json -- python3 -c 'x = bytearray(200 << 20)'")
    assert json.loads(text)["oom_killed"], text
    status, text = session.run(service + f"script -qec '{CARREL} run -- echo ran' /dev/null")
    assert text.replace("\r", "") == "ran\n", text
    status, text = session.on_terminal("run", "--", "echo", "ran")
    assert "held by watchdog only" in text and "--require memory asks systemd" in text, text
    assert session.carrel("rm", box)[0] == 0
    session.close()


def doctor_finds_everything_for_root():
    done = run([CARREL, "doctor", "--json"])
    assert done.returncode == 0, done
    for name, check in checks_of(done.stdout).items():
        assert check["status"] != "missing", check
        assert name != "delegation" or check["detail"].startswith("not needed"), check


def doctor_names_the_state():
    session = Session("resident")
    status, text = session.carrel("doctor", "--json")
    assert status == 0, text
    checks = checks_of(text)
    for name in ("delegation", "memory", "cpu", "pids", "linger", "clone_into_cgroup",
                 "cgroup_kill", "sandbox"):
        assert checks[name]["status"] == "ok", checks[name]
    assert checks["delegation"]["detail"].startswith("yes: systemd"), checks["delegation"]
    assert checks["linger"]["detail"].startswith("yes"), checks["linger"]
    session.close()
    session = Session("visitor")
    checks = checks_of(session.carrel("doctor", "--json")[1])
    assert checks["delegation"]["status"] == "ok", checks["delegation"]
    assert checks["linger"]["status"] == "warning", checks["linger"]
    assert checks["linger"]["fix"] == "loginctl enable-linger visitor", checks["linger"]
    session.close()
    wait_for_logout("visitor")


def without_a_bus_there_is_the_next_best():
    def as_user(*words):
        return run(["setpriv", "--reuid", "carrel-test", "--regid", "carrel-test",
                    "--clear-groups", "env", "-i", "HOME=/tmp", "CARREL_HOME=/tmp/carrel-nobus",
                    "PATH=/usr/bin:/bin", CARREL, *words])

    result = as_user("run", "--memory", "64m", "--json", "--", "python3", "-c",
                     "x = bytearray(200 << 20)")
    assert json.loads(result.stdout)["oom_killed"], result
    refused = as_user("run", "--require", "memory", "--", "true")
    assert refused.returncode == 125, refused
    assert "there is no systemd of this user's" in refused.stderr, refused.stderr
    box = as_user("create").stdout.strip()
    rows = enforced(json.loads(as_user("info", "--json", box).stdout))
    assert rows["memory"]["by"] == "watchdog" and rows["pids"]["by"] == "rlimit", rows
    assert "there is no systemd of this user's" in rows["memory"]["note"], rows["memory"]
    checks = checks_of(as_user("doctor", "--json").stdout)
    assert checks["delegation"]["status"] == "missing", checks["delegation"]
    assert checks["delegation"]["fix"] == "sudo loginctl enable-linger carrel-test", checks
    assert as_user("rm", box).returncode == 0


def logout_without_linger_ends_sandboxes_and_that_was_said():
    session = Session("visitor")
    status, text = session.on_terminal("create", "--name", "mine")
    assert status == 0, text
    assert "it ends when you log out; to keep it: loginctl enable-linger visitor" in text, text
    info = session.info("mine")
    assert enforced(info)["logout"]["by"] == "ends it", info
    pid = first_process_of("visitor", info["id"])
    assert alive(pid)
    session.close()
    wait_for_logout("visitor")
    assert not alive(pid), "the sandbox outlived the logout, and carrel said that it would not"
    session = Session("visitor")
    status, text = session.carrel("ls")
    assert status == 0 and "mine" not in text, text
    session.close()
    wait_for_logout("visitor")


def logout_with_linger_leaves_sandboxes_alone():
    run(["loginctl", "enable-linger", "visitor"])
    session = Session("visitor")
    status, text = session.on_terminal("create", "--name", "kept")
    assert status == 0 and "log out" not in text, text
    info = session.info("kept")
    assert enforced(info)["logout"]["by"] == "leaves it alone", info
    assert session.carrel("sh", "kept", "echo remembered > note")[0] == 0
    pid = first_process_of("visitor", info["id"])
    session.close()
    # Longer than logind waits before it stops a user's manager.
    time.sleep(15)
    assert alive(pid), "the sandbox ended at the logout"
    session = Session("visitor")
    status, text = session.carrel("sh", "kept", "cat note")
    assert text == "remembered\n", text
    assert session.carrel("rm", "kept")[0] == 0
    run(["loginctl", "disable-linger", "visitor"])
    session.close()
    wait_for_logout("visitor")


STORIES = [
    root_limits_survive_a_reload,
    long_lived_has_limits_from_a_scope,
    second_keeper_finds_what_the_first_left,
    one_shot_with_required_limits_has_a_scope,
    one_shot_below_the_manager_uses_the_keepers_scope,
    doctor_finds_everything_for_root,
    doctor_names_the_state,
    without_a_bus_there_is_the_next_best,
    logout_without_linger_ends_sandboxes_and_that_was_said,
    logout_with_linger_leaves_sandboxes_alone,
    *service.STORIES,
]


def too_long(*_):
    raise TimeoutError(f"the story takes longer than {STORY_SECONDS} seconds")


def main():
    signal.signal(signal.SIGALRM, too_long)
    run(["install", "-m", "0755", os.environ["CARREL_BINARY"], CARREL])
    run(["loginctl", "enable-linger", "resident"])
    failed = 0
    stories = [story for story in STORIES if not sys.argv[1:] or sys.argv[1] in story.__name__]
    for story in stories:
        begin = time.monotonic()
        signal.alarm(STORY_SECONDS)
        try:
            story()
            print(f"  ok {story.__name__} ({time.monotonic() - begin:.0f} s)", flush=True)
        except Exception:  # whatever it is, the other stories are still worth telling
            failed += 1
            print(f"  FAILED {story.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"scenarios: {len(stories) - failed} passed, {failed} failed")


main()
