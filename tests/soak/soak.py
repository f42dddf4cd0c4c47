"""Runs Carrel for a long time, kills it at random moments, and looks for what is left behind."""

import json
import os
import pathlib
import random
import signal
import sys
import time

from place import Place, become_reaper, eventually

CHURN = 200
MILLISECONDS = {"run": 15, "create": 60, "rm": 30, "sh": 15}


def fail(place, what, details):
    print(f"FAILED: {what}: {details}")
    print(f"the state is in {place.home}")
    place.end_processes()
    sys.exit(1)


def expect_ok(place, *words):
    status, out, err = place.carrel(*words)
    if status != 0:
        fail(place, "carrel " + " ".join(words), f"status {status}: {err}")
    return out


def listed(place):
    rows = json.loads(expect_ok(place, "ls", "--json"))["sandboxes"]
    return {row["id"] for row in rows if row["state"] == "running"}


def one_kill(place, number):
    """Kills one command, and in some rounds the keeper; then one more command cleans up."""
    action = random.choice(sorted(MILLISECONDS))
    alive = sorted(place.boxes())
    if action in ("rm", "sh") and not alive:
        alive = [expect_ok(place, "create").strip()]
    words = {
        "run": ["run", "--", "sleep", "60"],
        "create": ["create"],
        "rm": ["rm", *alive[:1]],
        "sh": ["sh", *alive[:1], "sleep 0.01; true"],
    }[action]
    process = place.start(*words)
    wait = random.uniform(0, MILLISECONDS[action] / 1000)
    time.sleep(wait)
    with_keeper = random.random() < 0.25
    if with_keeper:
        place.kill_keepers()
    process.kill()
    process.communicate()
    expect_ok(place, "ls")
    wrong = eventually(3, place.inconsistencies)
    what = f"round {number}, {action} killed after {wait * 1000:.1f} ms" + (
        ", with the keeper" if with_keeper else "")
    if wrong:
        fail(place, what, wrong)
    if eventually(3, lambda: listed(place) ^ place.boxes()):
        fail(place, what, f"listed are {listed(place)}, alive are {place.boxes()}")
    for one in sorted(place.boxes()):
        # The keeper may just be removing one whose maker was killed.
        if place.carrel("sh", one, "true")[0] != 0 and one in place.boxes():
            fail(place, what, f"sandbox {one} does not answer")
    if len(alive) > 4:
        expect_ok(place, "rm", "--force", *alive)


def many_kills(place, rounds):
    expect_ok(place, "run", "--", "true")
    for number in range(rounds):
        one_kill(place, number)
        if number % 100 == 99:
            print(f"  {number + 1} kills", flush=True)
    expect_ok(place, "rm", "--all", "--force")
    wrong = eventually(3, place.inconsistencies)
    if wrong or place.boxes():
        fail(place, "after all kills", wrong)


def creates_while_keepers_die(place):
    processes = [place.start("create") for _ in range(50)]
    for _ in range(8):
        time.sleep(0.15)
        place.kill_keepers()
    ids = set()
    for process in processes:
        out, err = process.communicate(timeout=120)
        if process.returncode != 0:
            fail(place, "a create while keepers die", err)
        ids.add(out.strip())
    if len(ids) != 50 or place.boxes() != ids:
        fail(place, "creates while keepers die", f"{len(ids)} told, {len(place.boxes())} alive")
    expect_ok(place, "rm", "--all", "--force")


def churn(place):
    """The keeper neither grows nor keeps descriptors."""
    expect_ok(place, "create", "--name", "stays")
    sizes = []
    for number in range(CHURN):
        one = expect_ok(place, "create").strip()
        expect_ok(place, "sh", one, "echo x >/tmp/x")
        expect_ok(place, "rm", "--force", one)
        expect_ok(place, "run", "--", "true")
        if number in (CHURN // 10, CHURN - 1):
            keeper = place.keepers()[0]
            status = pathlib.Path("/proc", str(keeper), "status").read_text()
            resident = int(status.split("VmRSS:")[1].split()[0])
            sizes.append((resident, len(os.listdir(f"/proc/{keeper}/fd"))))
    (before, files_before), (after, files_after) = sizes
    if after > before * 1.5 + 1024 or files_after > files_before + 2:
        fail(place, "the keeper grows", sizes)
    expect_ok(place, "rm", "--all", "--force")
    wrong = eventually(3, place.inconsistencies)
    if wrong:
        fail(place, "after the churn", wrong)


def main():
    program, rounds = sys.argv[1], int(sys.argv[2])
    seed = int(os.environ.get("CARREL_SEED", random.randrange(1 << 32)))
    random.seed(seed)
    print(f"seed {seed}")
    become_reaper()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for as_root in [True, False] if os.geteuid() == 0 else [False]:
        place = Place(program, as_root)
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            before = mounts.read()
        print("as root" if as_root else "as an ordinary user", flush=True)
        many_kills(place, rounds)
        creates_while_keepers_die(place)
        churn(place)
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            if mounts.read() != before:
                fail(place, "the mounts of the host", "changed")
        place.close()
    print("nothing is left behind")


if __name__ == "__main__":
    main()
