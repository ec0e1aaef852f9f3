"""A search log: as printed, what that needs, and with an ε that holds.

    python examples/search_log.py

Three users' clicks. The counts that the course prints as its output are
allowed by the printed rule at no sensible ε: one user alone costs 17.3. And the rule's own bound is
read off the records, so that even a small one protects nobody: take one user away, and outputs that
were likely become impossible.
"""

from __future__ import annotations

import math

from parley.privacy.accounting.rounding import shown_up
from parley.privacy.sampling.stream import NoiseStream
from parley.simulations.search_log import COURSE, SearchLog, synthetic_log

PRINTED = (0, 3, 20, 0, 4)


def table(log: SearchLog) -> str:
    """Users × pairs."""
    widths = [max(len(name), 4) for name in log.pairs]
    lines = [" " * 14 + "  ".join(name.rjust(w) for name, w in zip(log.pairs, widths, strict=True))]
    for user, row in zip(log.users, log.clicks, strict=True):
        cells = "  ".join(str(n).rjust(w) for n, w in zip(row, widths, strict=True))
        lines.append(f"{user:<14}{cells}")
    return "\n".join(lines)


def main(seed: int | None = None) -> str:
    """All of it, as text; `seed` makes it repeatable, and then it protects nobody."""

    def stream(label: str) -> NoiseStream:
        entropy = NoiseStream.from_entropy()
        return entropy if seed is None else NoiseStream.from_seed(seed, "search-log", label)

    costs = ", ".join(
        f"{user} {shown_up(cost)}"
        for user, cost in zip(COURSE.users, COURSE.costs(PRINTED), strict=True)
    )
    epsilon, delta = COURSE.needed(PRINTED)
    parts = [
        "The log:",
        table(COURSE),
        f"\nAs printed, output counts {PRINTED} with users drawn by their share:",
        table(COURSE.as_printed(PRINTED, stream("draws"))),
        f"\nWhat the users cost in it: {costs}.",
        f"The printed rule would need a limit of {shown_up(epsilon)} for it, that is "
        f"δ ≥ 1 − {1 - delta:.0e}: nothing.",
        "\nThe most clicks that the rule itself allows:",
    ]
    for limit in (math.log(2), 2.0, 5.0):
        output = COURSE.most(limit)
        parts.append(
            f"  limit {shown_up(limit, 4)}: {sum(output)} clicks {output}; "
            f"{COURSE.most_relaxed(limit):.5f} if they need not be whole"
        )
    fewer = COURSE.without("081").needed((0, 1, 0, 0, 0))[0]
    parts.append(
        "Even these have no ε: they are computed from the log. With user 081 a click on 'book' "
        f"costs at most {shown_up(max(COURSE.costs((0, 1, 0, 0, 0))), 4)};\nwithout, one user has "
        f"all of 'book', its cost is {shown_up(fewer)}, and the click can never be shown. Whoever "
        "sees one\nknows that 081, or somebody like them, was there."
    )
    public = ("book", "google", "car price", "weather")
    made, counts = synthetic_log(
        COURSE, pairs=public, clicks=10, epsilon=1.0, stream=stream("noise")
    )
    parts += [
        "\nWith ε = 1 (unit: a user with all its clicks, who may come or go; against whoever sees",
        "the answer), a public list of pairs and at most 10 clicks a user, the noisy counts are",
        f"  {counts}",
        "and users that never were, drawn from them:",
        table(made),
        "Three users cannot hide and be counted: the noise has scale 10. Beside the clicks of",
        "3,000 users the same noise is little.",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    print(main())
