"""Draw who holds which key and who calls whom: `python docs/make_deployment_figure.py`.

Writes `docs/deployment.svg`. docs/deployment-services.md lists the keys.
"""

from __future__ import annotations

from pathlib import Path

from svg_drawing import build_drawing, format_arrow, format_box, format_text

WIDTH, HEIGHT = 640, 560
LINE = 20

PARTY = (
    "identity.key: signs mask keys",
    "party.key, party.pem: TLS",
    "records, ledger and its key",
)
"""What each party holds."""


def format_holder(
    box: tuple[float, float, float, float], name: str, lines: tuple[str, ...], kind: str = "box"
) -> list[str]:
    """Return a box with a name and lines of text."""
    x, y, width, height = box
    texts = [format_text(x + 12, y + 46 + LINE * at, line) for at, line in enumerate(lines)]
    return [
        format_box(x, y, width, height, kind),
        format_text(x + 12, y + 25, name, "name"),
        *texts,
    ]


def build_svg() -> str:
    """Return the drawing: operator and authority on top, the server, and two parties below."""
    body = [
        *format_holder((16, 16, 270, 82), "Operator", ("operator.key, operator.pem: TLS",)),
        format_text(28, 82, "submits jobs, watches runs"),
        *format_holder(
            (354, 16, 270, 82), "Authority (offline)", ("ca.key: certifies the others",)
        ),
        format_text(366, 82, "calls no one"),
        *format_holder(
            (160, 196, 320, 104),
            "Server",
            ("server.key, server.pem: TLS", "roster: all public keys", "its ledger and runs"),
            "charged",
        ),
        *format_holder((16, 420, 290, 124), "Party north", PARTY),
        *format_holder((334, 420, 290, 124), "Party south", PARTY),
        format_text(28, 526, "party.toml, ca.crt, roster"),
        format_text(346, 526, "party.toml, ca.crt, roster"),
        format_arrow([(230, 98), (270, 194)]),
        format_text(16, 152, "calls port 9092, TLS 1.3"),
        format_arrow([(440, 98), (400, 194)], faint=True),
        format_text(436, 152, "certificates, sent by hand"),
        format_arrow([(200, 420), (240, 302)]),
        format_arrow([(440, 420), (400, 302)]),
        format_text(16, 366, "calls port 9092, TLS 1.3"),
        format_text(446, 366, "calls port 9092, TLS 1.3"),
        format_text(320, 350, "masked vectors", "small mid"),
        format_text(320, 370, "and sealed shares", "small mid"),
    ]
    label = (
        "Operator and parties call the server on one port; no one calls a party or the operator. "
        "The authority is offline and certifies the others. Each party holds its identity key, "
        "its TLS key, policy, ledger and records. Masked vectors and sealed shares pass the server."
    )
    return build_drawing(WIDTH, HEIGHT, label, body)


if __name__ == "__main__":
    Path(__file__).with_name("deployment.svg").write_text(build_svg(), encoding="utf-8")
