"""A database by its URL, whose password stands in no job, policy, run folder or message.

| URL | is |
|---|---|
| `sqlite:///ward.db`, `sqlite:////srv/ward.db` | a file: relative, and from the root |
| `postgresql://me@host:5432/clinic?sslmode=verify-full` | a server, by psycopg |

PostgreSQL's own library finds the password: in `PGPASSWORD`, or in the file that `PGPASSFILE`
names, else `~/.pgpass`, which it reads where its mode is 600. A party and a simulation may also
name a variable of the environment that holds the whole URL, password and all: `env:NAME`. One text
always names one place, and what is charged there stays together: no ε rests on which.

    >>> is_database("sqlite:///ward.db"), is_database("env:CLINIC"), is_database("ward.csv")
    (True, True, False)
    >>> format_safe_url(parse_postgresql_url("postgresql://me:secret@host/clinic?sslpassword=other"))
    'postgresql://me@host/clinic'
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_PASSWORD = re.compile(r"://[^/@]*:.*@|[?&](ssl)?password=")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")

ENV_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
"""A source that is a variable of the environment, by its name."""

WHERE_SECRETS_GO = (
    "it goes into PGPASSWORD, or into ~/.pgpass or the file that PGPASSFILE names, of mode 600"
)
"""A password."""


def check_no_password(text: str, what: str) -> None:
    """Raises ValueError, which does not show it, where a URL has a password in it."""
    if _PASSWORD.search(text):
        raise ValueError(f"Expected {what} without a password, got one: {WHERE_SECRETS_GO}.")


def is_database(source: str) -> bool:
    """Whether a source of records is a database's URL, or a variable that holds one."""
    return "://" in source or source.startswith("env:")


def check_source(source: str, query: str) -> None:
    """Raises ValueError unless a query stands beside a database, and only there.

    Of its text nothing is shown: whoever mistook the key may have written a password.
    """
    if is_database(source) != bool(query.strip()):
        raise ValueError(
            "Expected query = 'SELECT …' beside a source that is a database, and beside no other, "
            + ("got a query without one." if query.strip() else "got a database without one.")
        )
    if not query.strip():
        return
    check_no_password(source, "a source")
    scheme = source.partition("://")[0]
    if not (ENV_VARIABLE.fullmatch(source) or scheme == "sqlite" or scheme in _POSTGRESQL):
        raise ValueError(
            "Expected as source sqlite:///FILE, postgresql://USER@HOST/DATABASE, or env:NAME, a "
            "variable of the environment that holds such a URL; got another text."
        )


def parse_sqlite_path(url: str) -> str:
    """The file of a `sqlite:///` URL.

    >>> parse_sqlite_path("sqlite:///ward.db"), parse_sqlite_path("sqlite:////srv/ward.db")
    ('ward.db', '/srv/ward.db')
    """
    return url.removeprefix("sqlite://").removeprefix("/")


def parse_postgresql_url(text: str) -> str:
    """The URL of a PostgreSQL database, as libpq takes it.

    Raises:
        ValueError: another scheme, or no URL; nothing else of the text is shown.
    """
    scheme, _, rest = text.partition("://")
    if not rest or scheme not in _POSTGRESQL:
        scheme = scheme if rest else ""
        raise ValueError(f"Expected a path, sqlite:/// or postgresql://, got {scheme}://.")
    try:
        urlsplit(text).port  # noqa: B018 - which is a number
    except ValueError:
        # The text may hold a password, so that neither it nor the cause is shown.
        raise ValueError(
            "Expected postgresql://user@host:port/database, got another text."
        ) from None
    return f"postgresql://{rest}"


def format_safe_url(url: str) -> str:
    """How messages call it: without password and options."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return f"postgresql://{user.partition(':')[0]}{at}{host}{parts.path}"
