"""Servers that the tests of remote stores start: real ones where they are installed, and one that does as it is told.

Each listens on the loopback interface on a port of its own and ends with its `with` block."""

import contextlib
import http.server
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def deaf_port():
    """A port at which nobody listens: it is taken, so that no other program can have it meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def wait_until_open(port, process):
    for _ in range(3000):
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args[0]} does not listen")


@contextlib.contextmanager
def running(command, port, **keywords):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **keywords)
    try:
        wait_until_open(port, process)
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def folder():
    path = Path(tempfile.mkdtemp(prefix="kjit-remote-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


NGINX = """
daemon off; master_process off; pid {root}/pid; error_log {root}/error.log; worker_rlimit_nofile 4096;
events {{ worker_connections 2048; }}
http {{
  access_log off; client_body_temp_path {root}/tmp; client_max_body_size 300m; keepalive_requests 100000;
  proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  server {{ listen 127.0.0.1:{port} backlog=2048; root {root}/data;
    location / {{ dav_methods PUT DELETE; create_full_put_path on; }} }}
}}
"""


@contextlib.contextmanager
def nginx():
    """nginx with WebDAV: the URL of a store."""
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    with folder() as root:
        port = free_port()
        (root / "data").mkdir()
        (root / "conf").write_text(NGINX.format(root=root, port=port))
        with running([program, "-c", str(root / "conf")], port):
            yield f"http://127.0.0.1:{port}/kjit"


@contextlib.contextmanager
def redis():
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    with folder() as root:
        port = free_port()
        with running([program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(root),
                      "--requirepass", "pass", "--tcp-backlog", "511"], port):
            yield f"redis://:pass@127.0.0.1:{port}/1"


@contextlib.contextmanager
def s3():
    """moto's S3 server, by the Python that KJIT_TEST_MOTO_PYTHON names or this one."""
    python = os.environ.get("KJIT_TEST_MOTO_PYTHON", sys.executable)
    port = free_port()
    command = [python, "-c", "import sys; from moto.server import main; main(sys.argv[1:])", "-H", "127.0.0.1", "-p",
               str(port)]
    with running(command, port):
        import urllib.request
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT"), timeout=30)
        yield f"s3://bucket/kernels|endpoint=http://127.0.0.1:{port}|region=us-east-1"


class Handler(http.server.BaseHTTPRequestHandler):
    """An HTTP store in memory that heeds If-None-Match and misbehaves as `server.fault` says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the head and the body of an answer are two packets

    def log_message(self, *_):
        pass

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def misbehave(self):
        """True when the fault took the answer's place."""
        fault = self.server.fault
        self.server.asked += 1
        if fault == "stall":
            self.server.released.wait(30)
            self.close_connection = True
        elif fault == "500":
            self.answer(500, b"no")
        elif fault == "redirect":
            self.answer(302, Location=self.server.elsewhere + self.path)
        elif fault == "cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n\x89KJIT\r\n\x1a half")
            self.close_connection = True
        elif fault == "drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n")
            with contextlib.suppress(OSError):
                for byte in b"\x89KJIT\r\n\x1a" + bytes(1000):
                    self.wfile.write(bytes([byte]))
                    if self.server.released.wait(0.05):
                        break
            self.close_connection = True
        elif fault == "gigabyte":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n\x89KJIT\r\n\x1a"
                             + (2).to_bytes(4, "little") + (128).to_bytes(4, "little")
                             + (4096).to_bytes(8, "little"))
            with contextlib.suppress(OSError):
                for _ in range(16384):
                    self.wfile.write(bytes(65536))
            self.close_connection = True
        elif fault == "garbage":
            self.wfile.write(bytes((i * 37 + 11) % 256 for i in range(4000)))
            self.close_connection = True
        elif fault == "lie":
            self.answer(200, b"<html>welcome to the hotel's network</html>")
        elif fault == "headers":
            with contextlib.suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X-Much: " + b"y" * 60000 + b"\r\n" * 1)
                for _ in range(4000):
                    self.wfile.write(b"X-Much: " + b"y" * 60000 + b"\r\n")
            self.close_connection = True
        else:
            return False
        return True

    def do_GET(self):
        if self.misbehave():
            return
        with self.server.mutex:
            body = self.server.objects.get(self.path)
        self.answer(404 if body is None else 200, body or b"")

    do_HEAD = do_GET

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.misbehave():
            return
        with self.server.mutex:
            there = self.path in self.server.objects
            refused = there and self.headers.get("If-None-Match") == "*"
            if not refused:
                self.server.objects[self.path] = body
        self.answer(412 if refused else 201)

    def do_DELETE(self):
        if self.misbehave():
            return
        with self.server.mutex:
            gone = self.server.objects.pop(self.path, None) is not None
        self.answer(204 if gone else 404)


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        pass  # a client that leaves early is what is tested


@contextlib.contextmanager
def faulty(fault=None):
    """The server in memory: its `url`, its `objects`, and `fault`, which may be changed at any time."""
    server = Server(("127.0.0.1", 0), Handler)
    server.objects, server.fault, server.asked = {}, fault, 0
    server.mutex, server.released = threading.Lock(), threading.Event()
    server.elsewhere = ""
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    # It looks that often whether it is to end.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def redis_liar(answer):
    """A server that answers whatever it is asked with the same bytes; "stall" never answers."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    done = threading.Event()

    def serve(connection):
        with connection, contextlib.suppress(OSError):
            while connection.recv(65536):
                if answer == "stall":
                    done.wait(30)
                    return
                connection.sendall(answer)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        done.set()
        listener.close()
