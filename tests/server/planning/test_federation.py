"""A party that holds too few records is said by its name, where it has one."""

import numpy as np
import pytest

from parley.server.jobs.federation import Federation
from parley.server.jobs.section import JobError


@pytest.mark.parametrize(("names", "who"), [(("north", "south"), "south"), ((), "party 1")])
def test_the_smallest_party_is_named(names, who) -> None:
    with pytest.raises(JobError, match=rf"min-records = 5 records, {who} holds 3\."):
        Federation.of_sizes(np.array([8, 3]), 5, names)
