"""Print the TLS key exchange between a server and a party, read from the handshake.

The server's credentials are those of a deployment. A relay between the two ends records the first
bytes of each. Parley does not rely on the result.

    python benchmarks/tls_group.py
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from parley.deploy import certificate_making
from parley.deploy.stream.grpc_options import load_server_credentials

# https://www.iana.org/assignments/tls-parameters, supported groups.
GROUPS = {0x11EC: "X25519MLKEM768", 29: "x25519", 23: "secp256r1", 24: "secp384r1", 25: "secp521r1"}
_KEY_SHARE = 51


def _key_share(hello: bytes, *, of_server: bool) -> bytes:
    """Return the key_share extension of a ClientHello or ServerHello (RFC 8446, section 4.1)."""
    at = 5 + 4 + 2 + 32  # record, handshake header, version, random
    at += 1 + hello[at]  # session id
    at += 3 if of_server else 2 + int.from_bytes(hello[at : at + 2], "big")  # cipher suites
    at += 0 if of_server else 1 + hello[at]  # compression
    at += 2
    while int.from_bytes(hello[at : at + 2], "big") != _KEY_SHARE:
        at += 4 + int.from_bytes(hello[at + 2 : at + 4], "big")
    return hello[at + 4 : at + 4 + int.from_bytes(hello[at + 2 : at + 4], "big")]


def _named(code: bytes) -> str:
    number = int.from_bytes(code, "big")
    return GROUPS.get(number, hex(number))


def _offered(share: bytes) -> list[str]:
    names, at = [], 2
    while at < len(share):
        names.append(_named(share[at : at + 2]))
        at += 4 + int.from_bytes(share[at + 2 : at + 4], "big")
    return names


def _relay(source: socket.socket, target: socket.socket, noted: bytearray) -> None:
    while piece := source.recv(1 << 16):
        noted += piece
        target.sendall(piece)


def main() -> None:
    noted = bytearray(), bytearray()
    with tempfile.TemporaryDirectory() as made, socket.create_server(("127.0.0.1", 0)) as between:
        folder = Path(made)
        certificate_making.make_authority(folder, name="handshake")
        certificate_making.make_server_certificate(folder, authority=folder, hosts=["localhost"])
        server = grpc.server(ThreadPoolExecutor(1))
        port = server.add_secure_port("localhost:0", load_server_credentials(folder))
        server.start()
        asked = grpc.ssl_channel_credentials(root_certificates=(folder / "ca.crt").read_bytes())
        name = f"localhost:{between.getsockname()[1]}"
        with grpc.secure_channel(name, asked) as channel:
            ready = grpc.channel_ready_future(channel)
            client, _ = between.accept()
            inside = socket.create_connection(("localhost", port))
            for ends in ((client, inside, noted[0]), (inside, client, noted[1])):
                threading.Thread(target=_relay, args=ends, daemon=True).start()
            # Without a certificate the client is refused after both hellos.
            while len(noted[1]) < 5 or len(noted[1]) < int.from_bytes(noted[1][3:5], "big"):
                threading.Event().wait(0.01)
            ready.cancel()
        server.stop(None)
    row = {
        "grpcio": grpc.__version__,
        "client_offers_shares_of": _offered(_key_share(bytes(noted[0]), of_server=False)),
        "agreed": _named(_key_share(bytes(noted[1]), of_server=True)[:2]),
    }
    print(json.dumps(row, allow_nan=False))


if __name__ == "__main__":
    main()
