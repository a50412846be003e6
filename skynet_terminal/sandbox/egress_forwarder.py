"""What gives a sandboxed command its proxy: a listener on 127.0.0.1 whose connections go to a Unix socket.

``python3 -I -S egress_forwarder.py PORT SOCKET COMMAND [ARGUMENT…]``, within a network namespace of its own. The
process itself becomes the command, so the command has the process id, group, terminal and signals that it would have
without; a process apart, in a session of its own, forwards, until the sandbox's end kills it.

It runs by itself in whatever Python 3 the sandbox has, and so imports nothing of the gateway's, and at the start next
to nothing at all: the command waits for it.
"""

from __future__ import annotations

import _socket
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    import socket

PIECE_BYTES = 65_536
BACKLOG = 128
IN, OUT, ERROR, HANG_UP = 1, 4, 8, 16  # of epoll(7)


def main(port: int, path: str, argv: list[str]) -> None:
    """Listen, leave somebody behind who forwards, and become the command."""
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    child = os.fork()
    if child == 0:
        try:
            leave(listener.fileno())
            forward(listener, path)
        finally:
            os._exit(1)
    os.waitpid(child, 0)  # it has left behind the one that forwards, and ended
    listener.close()
    become(argv)


def leave(kept: int) -> None:
    """Be nobody's child, in no terminal's session, and hold nothing open that somebody waits to see closed.

    Args:
        kept: the one descriptor that stays open.
    """
    os.setsid()
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    most = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, kept)
    os.closerange(kept + 1, most)
    os.chdir("/")


def become(argv: list[str]) -> None:
    """Execute the command with the environment and the signals that this process was given."""
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what is ignored stays so
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - Python may have added LC_CTYPE to its own
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
        env = {name: value for name, _, value in pairs}
    except OSError:
        env = dict(os.environb)
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - whom to run is the caller's to decide
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127 if error.errno in (2, 20) else 126)


def forward(listener: _socket.socket, path: str) -> None:
    """Join each connection to one of its own to the socket, for ever."""
    import select

    listener.setblocking(False)
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    pairs: dict[int, Pair] = {}
    while True:
        for descriptor, events in poll.poll():
            if descriptor == listener.fileno():
                join(listener, path, poll, pairs)
            elif descriptor in pairs:
                pairs[descriptor].on_event(descriptor, events)


def join(listener: _socket.socket, path: str, poll: select.epoll, pairs: dict[int, Pair]) -> None:
    import socket

    try:
        descriptor, _ = listener._accept()  # type: ignore[attr-defined]
    except OSError:
        return
    near = socket.socket(fileno=descriptor)
    far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        far.connect(path)
    except OSError:
        near.close()
        far.close()
        return
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    Pair(near, far, poll, pairs)


class Pair:
    """Two connected sockets. What one gives goes to the other, a piece at a time."""

    def __init__(self, near: socket.socket, far: socket.socket, poll: select.epoll, pairs: dict[int, Pair]) -> None:
        self.ways = [Way(near, far), Way(far, near)]
        self.poll = poll
        self.pairs = pairs
        for way in self.ways:
            way.source.setblocking(False)
            poll.register(way.source.fileno(), IN)
            pairs[way.source.fileno()] = self

    def on_event(self, descriptor: int, events: int) -> None:
        """Move what can be moved, and wait for what cannot."""
        if events & (HANG_UP | ERROR):
            self.hang_up(descriptor)
        for way in self.ways:
            way.move()
        there, back = self.ways
        if (there.is_over and back.is_over) or (there.is_hung_up and back.is_hung_up):
            self.close()
            return
        for way, other in ((there, back), (back, there)):
            if not way.is_hung_up:
                self.poll.modify(way.source.fileno(), way.wants_input() | other.wants_output())

    def hang_up(self, descriptor: int) -> None:
        """Nothing can be sent to it any more; what it sent can still be read, and polling would never wait again."""
        there, back = self.ways
        way, other = (there, back) if there.source.fileno() == descriptor else (back, there)
        if not way.is_hung_up:
            way.is_hung_up = True
            self.poll.unregister(descriptor)
        other.is_over, other.piece = True, b""

    def close(self) -> None:
        for way in self.ways:
            if not way.is_hung_up:
                self.poll.unregister(way.source.fileno())
            del self.pairs[way.source.fileno()]
            way.source.close()


class Way:
    """One direction. It reads only when it has passed on all it read, so whoever is slow holds up whoever is fast."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.piece = b""
        self.is_over = False
        self.is_hung_up = False

    def move(self) -> None:
        try:
            if not self.piece and not self.is_over:
                self.piece = self.source.recv(PIECE_BYTES)
                if not self.piece:
                    self.end()
            if self.piece:
                self.piece = self.piece[self.target.send(self.piece) :]
        except BlockingIOError:
            pass
        except OSError:  # one end is broken; what goes the other way may still arrive
            self.end()

    def end(self) -> None:
        self.is_over, self.piece = True, b""
        try:
            self.target.shutdown(1)
        except OSError:
            pass

    def wants_input(self) -> int:
        return 0 if self.piece or self.is_over else IN

    def wants_output(self) -> int:
        """Whether the target is waited for: with a piece in hand, or as the source can be read without waiting."""
        return OUT if self.piece or (self.is_hung_up and not self.is_over) else 0


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
