"""Keeps sandboxes up for as long as this process lives.

A sandbox has a lease: it ends by itself when nobody renews it, so that a program that was killed
leaves nothing behind. One thread of this process renews the leases of all its sandboxes, whatever
its event loops and threads are busy with.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from ._endpoint import Endpoint
from ._steps import Request
from ._transport import HttpTransport
from .errors import GoneError, NotFoundError, SandboxError


@dataclass
class _Lease:
    endpoint: Endpoint
    seconds: float
    next: float


class LeaseKeeper:
    """Renews each lease when a third of it has passed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: dict[str, _Lease] = {}
        self._thread: threading.Thread | None = None

    def hold(self, endpoint: Endpoint, box_id: str, seconds: float) -> None:
        with self._changed:
            self._leases[box_id] = _Lease(endpoint, seconds, time.monotonic() + seconds / 3)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="carrel-leases", daemon=True)
                self._thread.start()
            self._changed.notify()

    def release(self, box_id: str) -> None:
        with self._changed:
            self._leases.pop(box_id, None)
            self._changed.notify()

    def _run(self) -> None:
        transports: dict[Endpoint, HttpTransport] = {}
        try:
            while True:
                with self._changed:
                    if not self._leases:
                        # The next one that is held starts another thread.
                        self._thread = None
                        return
                    box_id, lease = min(self._leases.items(), key=lambda item: item[1].next)
                    wait = lease.next - time.monotonic()
                    if wait > 0:
                        self._changed.wait(wait)
                        continue
                transport = transports.setdefault(lease.endpoint, HttpTransport(lease.endpoint))
                self._renew(transport, box_id, lease)
        finally:
            for transport in transports.values():
                transport.close()

    def _renew(self, transport: HttpTransport, box_id: str, lease: _Lease) -> None:
        try:
            path = f"/v1/sandboxes/{box_id}/lease"
            body = {"seconds": lease.seconds}
            transport.send(Request("PUT", path, json=body, patience=10.0, repeatable=True))
        except (GoneError, NotFoundError):
            self.release(box_id)
        except SandboxError:
            # A daemon that is away may be back in time.
            lease.next = time.monotonic() + min(1.0, lease.seconds / 10)
        else:
            lease.next = time.monotonic() + lease.seconds / 3


KEEPER = LeaseKeeper()


def _forget_after_fork() -> None:
    """A child has no such thread; the sandboxes are its parent's."""
    global KEEPER
    KEEPER = LeaseKeeper()


os.register_at_fork(after_in_child=_forget_after_fork)
