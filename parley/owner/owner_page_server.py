"""Serve the owner's page on 127.0.0.1, which shows pending requests and takes decisions.

A program that can call the server could approve requests. So it answers only a browser that
received its address by hand:

- The token is in the fragment of the address, which no browser sends. The page's own script puts it
  into a header, which no form and no page of another origin can do. The script then removes it from
  the address, so that it does not stay in the browser's history.
- Host must be this server's own, so that a name rebound to 127.0.0.1 is refused. The same holds for
  an Origin, if there is one.
- The page's policy allows only its one script, no external content, and no frame.

It reads the party's folder again for every request, and caches no data.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from pathlib import Path
from typing import Any

from parley.client.contract.strict_decoding import parse_strict_json
from parley.exit_status import get_exit_status
from parley.local_http_server import LocalHttpServer
from parley.owner.approval_requests import open_party
from parley.owner.owner_status import build_status
from parley.safe_io.json_writing import format_json

_MAX_BYTES = 4096
_HEADER = "X-Parley-Token"


class OwnerPage(LocalHttpServer):
    """The server of one party's page.

    Attributes:
        address: Address of the page, with the token.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        super().__init__(port, _Handler)
        self.folder, self.token = folder, secrets.token_urlsafe(32)
        self.host = f"127.0.0.1:{self.server_port}"
        self.html = files("parley.owner").joinpath("templates/owner.html").read_bytes()
        self.policy = _build_policy(self.html.decode())

    @property
    def address(self) -> str:
        """Address of the page, with its secret token."""
        return f"http://{self.host}/#{self.token}"


@contextmanager
def serve_page(folder: Path, *, port: int = 0) -> Iterator[OwnerPage]:
    """Serve the page of a party's folder; the port closes at the end of the `with` block."""
    with OwnerPage(folder, port=port) as page:
        yield page


def _build_policy(html: str) -> str:
    """Return a policy that allows only the page's own script and style, by digest, and its own
    server.
    """

    def only(tag: str) -> str:
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {only('script')}; style-src {only('style')}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class _RefusedRequest(Exception):
    """A request that is answered only with a status."""


class _Handler(BaseHTTPRequestHandler):
    server: OwnerPage
    server_version, sys_version = "parley", ""

    def do_GET(self) -> None:
        self._answer({"/": self._send_page, "/status": self._send_status})

    def do_POST(self) -> None:
        self._answer({"/decide": self._decide})

    def _answer(self, paths: dict[str, Callable[[], None]]) -> None:
        self.server.mark_answered(self.connection)
        own = f"http://{self.server.host}"
        try:
            if self.headers.get_all("Host") != [self.server.host]:
                raise _RefusedRequest(421)
            if self.headers.get_all("Origin", [own]) != [own]:
                raise _RefusedRequest(403)
            if self.path not in paths:
                raise _RefusedRequest(404)
            paths[self.path]()
        except _RefusedRequest as refused:
            self._send(refused.args[0], b"", "text/plain")

    def _send_page(self) -> None:
        self._send(200, self.server.html, "text/html; charset=utf-8")

    def _check_token(self) -> None:
        given = self.headers.get_all(_HEADER) or [""]
        expected = self.server.token.encode()
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(errors="replace"), expected):
            raise _RefusedRequest(403)

    def _send_status(self) -> None:
        self._check_token()
        self._send_json(self._read_folder(build_status))

    def _decide(self) -> None:
        self._check_token()
        asked = self._read_decision()
        self._send_json(self._read_folder(lambda party: {"said": party.decide(**asked)}))

    def _read_folder(self, say: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the folder's current content, or what is wrong with it, for its owner."""
        try:
            with open_party(self.server.folder) as party:
                return say(party)
        except Exception as error:
            if get_exit_status(error) is None:
                raise
            return {"error": str(error)}

    def _read_decision(self) -> dict[str, Any]:
        """Return a decision: `{"name": …, "accepted": …, "reason": …}`."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Content-Type") != "application/json":
            raise _RefusedRequest(415)
        if not re.fullmatch(r"[0-9]{1,5}", length) or int(length) > _MAX_BYTES:
            raise _RefusedRequest(413)
        try:
            asked = parse_strict_json(self.rfile.read(int(length)))
        except ValueError:
            raise _RefusedRequest(400) from None
        types = {"name": str, "accepted": bool, "reason": str}
        if not isinstance(asked, dict) or {k: type(v) for k, v in asked.items()} != types:
            raise _RefusedRequest(400)
        return asked

    def _send_json(self, content: dict[str, Any]) -> None:
        self._send(200, format_json(content).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", self.server.policy),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the owner's terminal shows only the address."""
