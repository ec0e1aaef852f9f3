"""Database URLs; a password is never in a job, policy, run folder or message.

| URL | is |
|---|---|
| `sqlite:///ward.db`, `sqlite:////srv/ward.db` | a file: relative, and from the root |
| `postgresql://me@host:5432/clinic?sslmode=verify-full` | a server, by psycopg |

PostgreSQL's own library finds the password: in `PGPASSWORD`, or in the file that `PGPASSFILE`
names, or else in `~/.pgpass`, which it reads only with mode 600. A party and a simulation may also
name an environment variable that contains the whole URL, including the password: `env:NAME`. One
text always names one database, and its charges stay together; no ε depends on which database it is.

    >>> is_database("sqlite:///ward.db"), is_database("env:CLINIC"), is_database("ward.csv")
    (True, True, False)
"""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"://[^/@]*:.*@|[?&](ssl)?password=")
POSTGRESQL_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
"""Schemes of a URL of a PostgreSQL database."""

ENV_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
"""Pattern of a source that is an environment variable."""

WHERE_SECRETS_GO = (
    "put it into PGPASSWORD, ~/.pgpass or the file that PGPASSFILE names (with mode 600)"
)
"""Where a user puts a password, for messages."""


def check_no_password(text: str, what: str) -> None:
    """Raise ValueError if a URL contains a password; the message does not show it."""
    if _PASSWORD.search(text):
        raise ValueError(f"Expected {what} without a password, got one: {WHERE_SECRETS_GO}.")


def is_database(source: str) -> bool:
    """Return whether a source of records is a database URL or a variable that contains one."""
    return "://" in source or source.startswith("env:")


def check_source(source: str, query: str) -> None:
    """Raise ValueError unless there is a query exactly if the source is a database.

    The message shows none of the text, because a mistaken key may hold a password.
    """
    if is_database(source) != bool(query.strip()):
        raise ValueError(
            "Expected query = 'SELECT …' if the source is a database, and only then, "
            + ("got a query without one." if query.strip() else "got a database without one.")
        )
    if not query.strip():
        return
    check_no_password(source, "a source")
    scheme = source.partition("://")[0]
    if not (ENV_VARIABLE.fullmatch(source) or scheme == "sqlite" or scheme in POSTGRESQL_SCHEMES):
        raise ValueError(
            "Expected as source sqlite:///FILE, postgresql://USER@HOST/DATABASE, or env:NAME (an "
            "environment variable that contains such a URL), got another text."
        )


def parse_sqlite_path(url: str) -> str:
    """Return the file of a `sqlite:///` URL.

    >>> parse_sqlite_path("sqlite:///ward.db"), parse_sqlite_path("sqlite:////srv/ward.db")
    ('ward.db', '/srv/ward.db')
    """
    return url.removeprefix("sqlite://").removeprefix("/")
