"""An open ledger with one budget."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ledgers import ADULT

from parley.privacy.ledger.ledger import Ledger


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url) as opened:
        opened.register(ADULT)
        yield opened
