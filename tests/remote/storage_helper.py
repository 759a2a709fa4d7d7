#!/usr/bin/env python3
"""A storage helper of ccache's, written from the text of its protocol, version 1: it keeps objects in memory, and
misbehaves as `fault` says.

Tests run it in two ways: within a test (`running()`), or as a program `ccache-storage-…` that kjit starts, with its
settings in CRSH_* and the fault in the attribute "fault"."""

import contextlib
import os
import socket
import struct
import sys
import threading

GET, PUT, REMOVE, STOP = range(4)
OK, NOOP, ERROR = b"\0", b"\1", b"\2"
OVERWRITE = 1


class Helper:
    """The server: its `objects`, its `fault`, and how many requests were `asked`."""

    def __init__(self, path, fault=None):
        self.path, self.fault, self.objects, self.asked = path, fault, {}, 0
        self.mutex, self.released = threading.Lock(), threading.Event()
        self.clients, self.last_client = 0, 0.0
        self.listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o077)
        self.listener.bind(path)
        os.umask(mask)
        self.listener.listen(512)

    def serve_forever(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def close(self):
        self.released.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # a thread in accept() wakes by it
        self.listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    @contextlib.contextmanager
    def client(self):
        with self.mutex:
            self.clients += 1
        try:
            yield
        finally:
            with self.mutex:
                self.clients -= 1

    def serve(self, connection):
        with self.client(), connection, contextlib.suppress(OSError, EOFError):
            stream = connection.makefile("rb")
            if self.fault == "silent":
                self.released.wait(30)
            greeting = {"version": b"\2\1\0", "incapable": b"\1\1\1", "short greeting": b"\1\5"}
            connection.sendall(greeting.get(self.fault, b"\1\2\0\1"))
            while self.answer(connection, stream):
                pass

    @staticmethod
    def take(stream, count):
        data = stream.read(count)
        if len(data) != count:
            raise EOFError
        return data

    def answer(self, connection, stream):
        """One request; False ends the connection."""
        what = self.take(stream, 1)[0]
        if what == STOP:
            connection.sendall(OK)
            os._exit(0)
        key = self.take(stream, self.take(stream, 1)[0])
        value, overwrite = b"", False
        if what == PUT:
            overwrite = bool(self.take(stream, 1)[0] & OVERWRITE)
            value = self.take(stream, struct.unpack("=Q", self.take(stream, 8))[0])
        self.asked += 1
        if self.fault is not None and self.misbehave(connection, what):
            return self.fault in ("error", "lie", "nothing stored")
        connection.sendall(self.do(what, key, value, overwrite))
        return True

    def do(self, what, key, value, overwrite):
        with self.mutex:
            there = self.objects.get(key)
            if what == GET:
                return NOOP if there is None else OK + struct.pack("=Q", len(there)) + there
            if what == PUT:
                if there is not None and not overwrite:
                    return NOOP
                self.objects[key] = value
                return OK
            return NOOP if self.objects.pop(key, None) is None else OK

    def misbehave(self, connection, what):
        """True when the fault took the answer's place."""
        half = b"\x89KJIT\r\n\x1a half"
        if self.fault == "stall":
            self.released.wait(30)
        elif self.fault == "error":
            connection.sendall(ERROR + b"\x03no!")
        elif self.fault == "cut":
            connection.sendall(OK + struct.pack("=Q", 5000) + half if what == GET else b"")
        elif self.fault == "gigabyte":
            connection.sendall(OK + struct.pack("=Q", 1 << 30) + half)
        elif self.fault == "long value":
            header = half[:8] + struct.pack("=IIQ", 2, 128, 4096)
            connection.sendall(OK + struct.pack("=Q", 200 << 20) + header)
            for _ in range(3200):
                connection.sendall(bytes(65536))
        elif self.fault == "garbage":
            connection.sendall(bytes((i * 37 + 77) % 256 for i in range(4000)))
        elif self.fault == "drip":
            connection.sendall(OK + struct.pack("=Q", 500000))
            for byte in half + bytes(1000):
                connection.sendall(bytes([byte]))
                if self.released.wait(0.05):
                    break
        elif self.fault == "lie" and what == GET:
            connection.sendall(OK + struct.pack("=Q", 7) + b"welcome")
        elif self.fault == "nothing stored" and what == PUT:
            connection.sendall(NOOP)
        else:
            return False
        return True


@contextlib.contextmanager
def running(folder, fault=None):
    """The helper in a thread of this process."""
    helper = Helper(str(folder / "helper"), fault)
    helper.url = f"crsh:{helper.path}"
    threading.Thread(target=helper.serve_forever, daemon=True).start()
    try:
        yield helper
    finally:
        helper.close()


def main():
    count = int(os.environ["CRSH_NUM_ATTR"])
    attributes = {os.environ[f"CRSH_ATTR_KEY_{i}"]: os.environ[f"CRSH_ATTR_VALUE_{i}"] for i in range(count)}
    try:
        helper = Helper(os.environ["CRSH_IPC_ENDPOINT"], attributes.get("fault"))
    except OSError as error:
        sys.exit(f"{os.environ['CRSH_IPC_ENDPOINT']}: {error}")
    if "log" in attributes:
        with open(attributes["log"], "a") as log:
            print(os.getpid(), os.environ["CRSH_URL"], os.environ["CRSH_IDLE_TIMEOUT"], file=log)
    # A test that fails must not leave it behind for the ten minutes that kjit asks for.
    threading.Timer(float(attributes.get("seconds", 60)), helper.close).start()
    helper.serve_forever()


if __name__ == "__main__":
    main()
