"""Sandboxes that rest, start again and have copies; what they use and how they are reached."""

from __future__ import annotations

import time
import uuid

from support import eventually

from carrel import Carrel, Sandbox


def need(route: str) -> None:
    """The daemon says that it has it."""
    with Carrel() as carrel:
        assert f"/v1/sandboxes/{{id}}/{route}" in carrel.openapi()["paths"]


def test_a_paused_sandbox_stands_still_and_goes_on() -> None:
    need("pause")
    with Sandbox() as box:
        counter = box.spawn("while :; do echo x; sleep 0.02; done")
        next(counter.follow())
        assert box.pause().state == "paused"
        assert box.is_alive()
        assert box.resume().running
        before = counter.info().stdout_range[1]
        time.sleep(0.2)
        assert counter.info().stdout_range[1] > before


def test_a_stopped_sandbox_starts_again_with_its_workspace() -> None:
    need("stop")
    with Sandbox(workspace=f"stops-{uuid.uuid4().hex[:8]}") as box:
        box.run("echo kept > f; cd /tmp")
        assert box.stop(grace=0.2).state == "stopped"
        assert box.is_alive()
        assert box.start().running
        assert box.run("pwd; cat f").stdout == "/workspace\nkept\n"


def test_a_fork_goes_on_by_itself() -> None:
    need("forks")
    with Sandbox(workspace=f"origin-{uuid.uuid4().hex[:8]}") as box:
        box.run("echo one > f")
        taken = box.snapshot("before")
        box.run("echo two > f")
        with box.fork() as now, box.fork(snapshot=taken.id) as then:
            assert now.id != box.id
            assert now.run("cat f; echo three > f").stdout == "two\n"
            assert then.run("cat f").stdout == "one\n"
            assert now.info().lease_ends is not None
        assert box.run("cat f").stdout == "two\n"
        with Carrel() as carrel:
            assert {now._id, then._id}.isdisjoint(info.id for info in carrel.sandboxes())


def test_usage_is_told() -> None:
    need("usage")
    with Sandbox() as box:
        box.spawn(["sleep", "30"])
        assert eventually(lambda: (box.usage().pids or 2) >= 2)


def test_a_service_is_there_when_it_is_ready() -> None:
    """R174"""
    need("services")
    web = {
        "command": "sleep 0.2; exec python3 -m http.server 8000 --bind 127.0.0.1",
        "ready": {"port": 8000},
    }
    with Sandbox(services={"web": web}) as box:
        assert not box.services()[0].ready
        (service,) = box.services(wait=20)
        assert service.ready and service.name == "web" and service.restarts == 0
        with box.http(8000) as client:
            assert client.get("/").status_code == 200
        info = box.info()
        assert info.services == (service,)
        assert [one["by"] for one in info.held_by] == ["lease"]


def test_a_port_is_public_only_if_it_is_said() -> None:
    """R172, R173"""
    need("ports")
    with Sandbox() as box:
        assert {name: box.id in link for name, link in box.info().links.items()} == {
            "website": True,
            "vnc": True,
        }
        place = box.publish(8080)
        assert place.port == 8080 and not place.public and box.id in place.path
        assert box.ports() == []
        assert box.publish(8080, public=True).public
        assert [one.port for one in box.ports()] == [8080]


def test_a_server_inside_is_reached_without_a_network() -> None:
    """R171"""
    need("ports")
    with Sandbox() as box:
        box.files.write("site/index.html", "from inside")
        box.spawn(
            ["python3", "-m", "http.server", "--bind", "127.0.0.1", "8080"],
            workdir="/workspace/site",
        )
        with box.http(8080) as client:
            assert eventually(lambda: client.get("/").status_code == 200)
            assert client.get("/index.html").text == "from inside"
            assert client.get("/none").status_code == 404
        assert box.run("true").success
        with box.http(8081) as client:
            assert client.get("/").status_code == 503
