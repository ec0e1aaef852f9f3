"""A server with its queue, and parties with records."""

import pytest
from attending import Consortium


@pytest.fixture
def consortium(tmp_path):
    made = Consortium(tmp_path)
    yield made
    made.close()
