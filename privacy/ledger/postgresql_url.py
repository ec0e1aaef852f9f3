"""URLs of PostgreSQL databases: the form for its own library, and the form for messages.

>>> format_safe_url(parse_postgresql_url("postgresql://me:secret@host/clinic?sslpassword=other"))
'postgresql://me@host/clinic'
"""

from __future__ import annotations

from urllib.parse import urlsplit

from parley.privacy.ledger.database_url import POSTGRESQL_SCHEMES


def parse_postgresql_url(text: str) -> str:
    """Return the URL of a PostgreSQL database in the form for libpq.

    Raises:
        ValueError: another scheme, or no URL; the message shows no other part of the text.
    """
    scheme, _, rest = text.partition("://")
    if not rest or scheme not in POSTGRESQL_SCHEMES:
        scheme = scheme if rest else ""
        raise ValueError(f"Expected a path, sqlite:/// or postgresql://, got {scheme}://.")
    try:
        urlsplit(text).port  # noqa: B018 - which is a number
    except ValueError:
        # The text may contain a password, so neither the text nor the cause is shown.
        raise ValueError("Expected postgresql://user@host:port/database, got other text.") from None
    return f"postgresql://{rest}"


def format_safe_url(url: str) -> str:
    """Return the URL for messages, without password and options."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return f"postgresql://{user.partition(':')[0]}{at}{host}{parts.path}"
