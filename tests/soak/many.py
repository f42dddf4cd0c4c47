"""Many live sandboxes, and many clients at once.

many.py PROGRAM ROOT USER SECONDS: ROOT live sandboxes as root, USER as an ordinary user, and 50
clients for SECONDS each. The daemon stays below 150 MiB, a shell command among many sandboxes takes
at most three times what it takes among ten (p99), no request fails, and nothing is left behind. A
number of 0 leaves that side out.
"""

import os
import random
import sys
import threading
import time

from daemon import Daemon
from place import Place, become_reaper, eventually

FEW = 10
COMMANDS = 2000
CLIENTS = 50
MOST_RESIDENT = 150 << 20
MOST_SLOWER = 3.0


def fail(place, what):
    print(f"FAILED: {what}")
    print(f"the state is in {place.home}")
    place.end_processes()
    sys.exit(1)


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def measure(client, boxes, commands=COMMANDS):
    """Seconds of shell commands, each in one of the sandboxes, whose shells are there."""
    for box in boxes:
        client.shell(box, ":")
    times = []
    for _ in range(commands):
        box = random.choice(boxes)
        began = time.monotonic()
        client.shell(box, ":")
        times.append(time.monotonic() - began)
    return times


def make_many(daemon, count):
    """`count` sandboxes by eight clients."""
    boxes, lock, wrong = [], threading.Lock(), []

    def work(share):
        client = daemon.client()
        try:
            for _ in range(share):
                box = client.create(memory="64m", tmp="8m", disk="8m")
                with lock:
                    boxes.append(box)
        except (RuntimeError, OSError) as error:
            wrong.append(str(error))

    shares = [count // 8 + (number < count % 8) for number in range(8)]
    threads = [threading.Thread(target=work, args=(share,)) for share in shares if share]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise RuntimeError(wrong[0])
    return boxes


def one_request(client, boxes, number):
    """Something that clients do; what was written is read again."""
    box = random.choice(boxes)
    kind = random.random()
    if kind < 0.6:
        word = f"w{number}-{random.randrange(1 << 30)}"
        if client.shell(box, f"echo {word}")["stdout"] != word + "\n":
            raise RuntimeError("another's output")
    elif kind < 0.75:
        result = client.want(200, "POST", box + "/exec", {"argv": ["true"]})
        if result["exit_code"] != 0:
            raise RuntimeError(str(result))
    elif kind < 0.9:
        path = f"{box}/files?path=/tmp/f{number}"
        client.connection.request("PUT", path, b"x" * 1000,
                                  {"content-type": "application/octet-stream"})
        answer = client.connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"write: {answer.status} {answer.read()}")
        answer.read()
        if client.want(200, "GET", path) != b"x" * 1000:
            raise RuntimeError("another's file")
    elif kind < 0.97:
        client.want(200, "GET", box)
    else:
        client.want(200, "GET", "/v1/sandboxes?limit=50")


def crowd(daemon, boxes, seconds):
    """The clients' requests, and what went wrong."""
    end = time.monotonic() + seconds
    done, wrong = [0] * CLIENTS, []

    def work(number):
        client = daemon.client()
        try:
            while time.monotonic() < end and not wrong:
                one_request(client, boxes, number)
                done[number] += 1
        except (RuntimeError, OSError) as error:
            wrong.append(f"client {number} after {done[number]} requests: {error}")
        client.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done), wrong


def check(place, live, seconds):
    daemon = Daemon(place, "--max-sandboxes", str(live + 50))
    client = daemon.client()
    boxes = make_many(daemon, FEW)
    few = percentile(measure(client, boxes), 0.99)
    began = time.monotonic()
    boxes += make_many(daemon, live - FEW)
    print(f"  {live} sandboxes, the last {live - FEW} in {time.monotonic() - began:.1f} s; "
          f"the daemon has {daemon.resident() >> 20} MiB", flush=True)
    many = percentile(measure(client, boxes), 0.99)
    print(f"  p99 of a command: {few * 1000:.2f} ms among {FEW}, {many * 1000:.2f} ms among {live}",
          flush=True)
    if many > few * MOST_SLOWER:
        fail(place, f"a command among {live} takes {many / few:.1f} times as long")
    # What is made once, and kept for the next request, is made in the first half.
    first, wrong = crowd(daemon, boxes, seconds / 2)
    before = (daemon.resident(), daemon.descriptors(), daemon.threads())
    second, more = crowd(daemon, boxes, seconds / 2)
    for one in wrong + more:
        fail(place, one)
    # Connections end in a moment.
    eventually(10, lambda: daemon.descriptors() > before[1] + 20)
    after = (daemon.resident(), daemon.descriptors(), daemon.threads())
    print(f"  {first + second} requests of {CLIENTS} clients in {seconds} s; memory, descriptors and "
          f"threads of the daemon: {before}, {after}", flush=True)
    if after[0] > MOST_RESIDENT or after[0] > before[0] * 1.5 + (16 << 20):
        fail(place, f"the daemon has {after[0] >> 20} MiB")
    if after[1] > before[1] + 20 or after[2] > before[2] + 8:
        fail(place, "the daemon keeps descriptors or threads")
    # The first connection was idle for so long that the daemon has ended it.
    client.close()
    client = daemon.client()
    for box in boxes:
        client.want(204, "DELETE", box + "?grace_ms=0")
    client.close()
    daemon.stop()
    wrong = eventually(10, place.inconsistencies)
    if wrong or place.boxes():
        fail(place, f"left behind: {wrong}")


def main():
    program, as_root, as_user, seconds = sys.argv[1], *map(int, sys.argv[2:5])
    random.seed(int(os.environ.get("CARREL_SEED", "1")))
    become_reaper()
    sides = [(True, as_root), (False, as_user)] if os.geteuid() == 0 else [(False, as_user)]
    for root, live in [side for side in sides if side[1] > 0]:
        print("as root" if root else "as an ordinary user", flush=True)
        place = Place(program, root)
        check(place, live, seconds)
        place.close()
    print("many sandboxes are served")


if __name__ == "__main__":
    main()
