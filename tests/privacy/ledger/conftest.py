"""An open ledger with one budget, and ledgers of earlier versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from ledgers import ADULT, place_older

from parley.privacy.ledger.ledger import Ledger


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url) as opened:
        opened.register(ADULT)
        yield opened


@pytest.fixture
def placed(ledger_url: str) -> Callable[[str], str]:
    """Puts an older ledger where a test may change it: a path, or a PostgreSQL schema."""

    def place(name: str) -> str:
        place_older(name, ledger_url)
        return ledger_url

    return place
