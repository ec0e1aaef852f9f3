"""Release a search log of real parties: three processes over TLS, with own ledgers and noise
shares.

    python examples/search_log_parties.py

Three search engines have the clicks of 1,000 users each, with a row per click. The unit is the
person. Each engine keeps at most K clicks per user, chosen by a hash under its own key. One release
counts the schema's public list of pairs, with noise that covers all of a user's clicks. ε protects
a user with all its clicks in one engine. No exact count is seen by anyone. The resulting log has
the form of the real one, with synthetic users.

The published method for search logs (`examples/search_log.py`) is refused, because it has no ε.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import parley
from parley.client.queries.base import QueryError
from parley.deploy.child_processes import Supervisor, build_environment, find_free_ports
from parley.deploy.provisioning import make_deployment

PAIRS = ("book → shop", "google → google", "car price → dealer", "weather → forecast")
SCHEMA = f"""
[columns]
pair = {{ kind = "categorical", categories = [{", ".join(f'"{name}"' for name in PAIRS)}] }}
user = {{ kind = "ignore" }}
day = {{ kind = "label", positive = "weekday", negative = "weekend" }}
"""
DATA = """
[data.clicks]
path = "clicks.csv"
schema = "schema.toml"
epsilon = 1.0
delta = 1e-6
neighbouring = "add-or-remove-one"
unit = "person"
id = "user"
records-per-id = {most}
"""
MOST = 5
"""K, the maximum clicks of a user that count."""


def own_clicks(engine: int, users: int) -> pl.DataFrame:
    """Generate the clicks of one engine's users."""
    rng = np.random.default_rng(engine)
    owners = np.repeat(np.arange(users), 1 + rng.poisson(3, users))
    return pl.DataFrame(
        {
            "user": [f"{engine}-{owner}" for owner in owners],
            "pair": rng.choice(PAIRS, len(owners), p=[0.2, 0.5, 0.1, 0.2]),
            "day": rng.choice(["weekday", "weekend"], len(owners)),
        }
    )


def main(users: int = 1000, epsilon: float = 1.0) -> str:
    """Create a deployment, start its parties, query them, and return the text to print."""
    with tempfile.TemporaryDirectory() as home, Supervisor() as supervisor:
        folder, names = Path(home) / "made", ["north", "south", "east"]
        (port,) = find_free_ports(1)
        make_deployment(folder, hosts=["127.0.0.1"], parties=names, port=port)
        for engine, name in enumerate(names):
            own, log = folder / "parties" / name, folder / f"{name}.log"
            own_clicks(engine, users).write_csv(own / "clicks.csv")
            (own / "schema.toml").write_text(SCHEMA)
            with (own / "party.toml").open("a") as file:
                file.write(DATA.format(most=MOST))
            command = ["parley", "party", str(own)]  # it waits until the session opens the port
            supervisor.start(name, command, environment=build_environment(), log=log)
        with parley.Session(
            deployment=str(folder / "server"),
            schema=str(folder / "parties" / "north" / "schema.toml"),
            dataset="clicks",
            neighbouring="add-or-remove-one",
            unit="person",
            records_per_id=MOST,
            epsilon=1.0,
            delta=1e-6,
            out=Path(home) / "session",
        ) as session:
            return told(session, epsilon)


def told(session: parley.Session, epsilon: float) -> str:
    """Return the refusal of the published method, and the log."""
    try:
        session.search_log(["pair"], method="as-printed", epsilon=epsilon)
    except QueryError as error:
        refused = str(error)
    log = session.search_log(["pair"], clicks=MOST, epsilon=epsilon)
    return f"As printed: {refused}\n\n{log}\n{log.frame.head(8)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1000)
    print(main(parser.parse_args().users))
