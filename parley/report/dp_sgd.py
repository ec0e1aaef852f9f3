"""The report's section on DP-SGD: every party's account, and the largest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.report.parts import prose, table
from parley.report.words import cost, epsilon_text, number

__all__ = ["dp_sgd_section"]

_SHOWN = 50


def dp_sgd_section(
    facts: Mapping[str, Any],
    *,
    delta: float | None,
    relation: str,
    lower_outside: bool = False,
) -> str:
    """HTML of the section's body, from `dp_sgd` of `summary.json`.

    ``lower_outside``: what was charged for a record is the lower bound of the noise on the sum.
    """
    parties, largest = list(facts["parties"]), facts["largest"]
    share = facts.get("clipped_share")
    stated = " and ".join(
        f"ε = {epsilon_text(largest[name])} by {name.upper()}"
        for name in ("rdp", "pld", "exact")
        if name in largest
    )
    sigma = f"σ = {number(facts['noise_multiplier'], 4)}"
    noise = f"σC on the sum, {sigma}"
    if share:
        noise = f"σ′C on the sum, σ′ = {number(facts['gradient_multiplier'], 4)}"
    told = (
        f"In every round each party took {number(facts['steps_per_round'])} steps of DP-SGD: "
        f"Poisson batches at rate q = {number(facts['sampling_rate'])}, every record's gradient "
        f"clipped to C = {number(facts['clip_norm'])}, Gaussian noise of {noise}. The largest "
        f"account of a party is {stated}, at δ = {cost(delta)}, per record; {relation}. "
        + (
            "These accounts hold against the server too; what was charged is the lower bound that "
            "the server's noise on the sum gives. "
            if lower_outside
            else "A record is charged the steps of its own party alone. "
        )
        + (
            f"A share of {share:g} of every step's privacy went to the fraction of clipped "
            "gradients, which is released too. Charged is what both releases come to together, "
            f"{sigma}."
            if share
            else "How many gradients were clipped isn't told: it would be a release too. "
            "With unit record `dp-sgd.clipped-fraction-share` makes it, within the same ε."
        )
    )
    names = [name for name in ("rdp", "pld", "exact") if name in largest]
    # Few lines say it where many parties have the same account: those with most steps first.
    order = sorted(parties, key=lambda party: (-party["steps"], party["party"]))
    rows = [
        [
            str(party["party"]),
            number(party["records"]),
            number(facts["sampling_rate"]),
            number(facts["noise_multiplier"], 4),
            number(facts["clip_norm"]),
            number(party["steps"]),
            *(epsilon_text(party["epsilon"].get(name)) for name in names),
        ]
        for party in order[:_SHOWN]
    ]
    caption = "Every party's account"
    if len(parties) > _SHOWN:
        caption = f"The {_SHOWN} largest accounts of {number(len(parties))} parties"
    head = ["party", "records", "q", "σ", "C", "steps", *(f"ε by {n.upper()}" for n in names)]
    return f"<p>{prose(told)}</p>{table(caption, head, rows)}"
