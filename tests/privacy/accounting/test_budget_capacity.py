"""The search for the largest count that fits, against counting one by one."""

from __future__ import annotations

import pytest

from parley.privacy.accounting.budget_capacity import find_largest_count


@pytest.mark.parametrize("most", [0, 1, 2, 7, 8, 9, 100])
def test_it_finds_what_counting_one_by_one_finds(most):
    for limit in range(most + 3):
        asked = []

        def fits(count, limit=limit, asked=asked):
            asked.append(count)
            return count <= limit

        found = find_largest_count(fits, maximum=most)
        assert found == max((count for count in range(1, most + 1) if count <= limit), default=0)
        assert all(1 <= count <= most for count in asked)


def test_a_large_count_takes_few_questions():
    asked = []
    assert (
        find_largest_count(lambda count: asked.append(count) or count <= 10**9, maximum=2**40)
        == 10**9
    )
    assert len(asked) <= 62
