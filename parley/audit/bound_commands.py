"""`parley audit bound …`: calculators on the audit's own statistics, for counts that one has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import click
import typer

from parley.server.records.plain_json import json_text

if TYPE_CHECKING:
    from parley.privacy.audit.counts import LowerBound

bound_app = typer.Typer(
    suggest_commands=False,
    no_args_is_help=True,
    help="Compute a lower bound on ε from counts. A bound, not an estimate; it holds with the "
    "confidence asked for, not certainly.",
)

Confidence = Annotated[float, typer.Option(help="1 − α, above ½ and below 1.")]
Delta = Annotated[float, typer.Option(help="δ of the claim.")]
HitsIn = Annotated[str, typer.Option(help="HITS/TRIALS of an event with the canary.")]
HitsOut = Annotated[str, typer.Option(help="HITS/TRIALS of it without.")]
FalsePositives = Annotated[str, typer.Option(help="ERRORS/TRIALS without the canary.")]
FalseNegatives = Annotated[str, typer.Option(help="ERRORS/TRIALS with it.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@bound_app.command()
def pair(
    hits_in: HitsIn,
    hits_out: HitsOut,
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    copies: Annotated[int, typer.Option(min=1, help="Records that make the canary.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Two worlds and one event: assumes nothing of the noise."""
    from parley.privacy.audit.counts import Hits  # noqa: PLC0415 - start-up: scipy, for this command alone
    from parley.privacy.audit.pair import pair_bound  # noqa: PLC0415 - start-up: scipy, for this command alone

    _show(
        lambda: pair_bound(
            Hits.parse(hits_in),
            Hits.parse(hits_out),
            confidence=confidence,
            delta=delta,
            copies=copies,
        ),
        as_json=as_json,
    )


@bound_app.command()
def mu(
    false_positives: FalsePositives,
    false_negatives: FalseNegatives,
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """μ of the Gaussian curve from a test's two error rates, and ε of that curve."""
    from parley.privacy.audit.counts import Hits  # noqa: PLC0415 - start-up: scipy, for this command alone
    from parley.privacy.audit.pair import mu_bound  # noqa: PLC0415 - start-up: scipy, for this command alone

    errors = (false_positives, false_negatives)
    _show(
        lambda: mu_bound(*map(Hits.parse, errors), confidence=confidence, delta=delta),
        as_json=as_json,
    )


Canaries = Annotated[int, typer.Option(min=1, help="m coins that decided over canaries.")]
Guesses = Annotated[int, typer.Option(min=0, help="r guesses; r was fixed beforehand.")]
Right = Annotated[int, typer.Option(min=0, help="v of them right.")]


@bound_app.command("one-run")
def one_run(
    canaries: Canaries,
    guesses: Guesses,
    right: Right,
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """One run with many canaries: assumes nothing of the noise."""
    from parley.privacy.audit.one_run import one_run_bound  # noqa: PLC0415 - start-up: scipy, for this command alone

    _show(
        lambda: one_run_bound(
            canaries=canaries, guesses=guesses, right=right, confidence=confidence, delta=delta
        ),
        as_json=as_json,
    )


@bound_app.command("one-run-fdp")
def one_run_fdp(
    canaries: Canaries,
    guesses: Guesses,
    right: Right,
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """One run with many canaries: Gaussian curve assumed."""
    from parley.privacy.audit.one_run import one_run_fdp_bound  # noqa: PLC0415 - start-up: scipy, for this command alone

    _show(
        lambda: one_run_fdp_bound(
            canaries=canaries, guesses=guesses, right=right, confidence=confidence, delta=delta
        ),
        as_json=as_json,
    )


@bound_app.command()
def factor(
    law: Annotated[str, typer.Option(help="gaussian | l2-laplace | laplace-l1")],
    vectors: Annotated[int, typer.Option(min=1, help="N noise vectors seen.")],
    dimension: Annotated[int, typer.Option(min=1, help="d of each.")],
    mean_norm: Annotated[
        float,
        typer.Option(
            help="Mean L2 norm (l2-laplace), mean L1 norm (laplace-l1), or root mean square of "
            "the L2 norm (gaussian)."
        ),
    ],
    sensitivity: Annotated[float, typer.Option(help="Δ, in the same unit.")] = 1.0,
    reach: Annotated[float, typer.Option(help="The part of Δ that neighbours really reach.")] = 1.0,
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """The noise's scale from its own size: presumes the shape of its law."""
    from parley.privacy.audit.noise_scale import Residuals, factor_bound  # noqa: PLC0415 - start-up: scipy, for this command alone

    def bound() -> LowerBound:
        seen = Residuals.from_mean_norm(
            law, vectors=vectors, dimension=dimension, mean_norm=mean_norm
        )
        return factor_bound(
            seen, sensitivity=sensitivity, reach=reach, confidence=confidence, delta=delta
        )

    _show(bound, as_json=as_json)


@bound_app.command()
def bayes(
    false_positives: FalsePositives,
    false_negatives: FalseNegatives,
    confidence: Confidence = 0.95,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """A credible value, not a bound: posteriors of a test's two error rates."""
    from parley.privacy.audit.counts import Hits  # noqa: PLC0415 - start-up: scipy, for this command alone
    from parley.privacy.audit.credible import credible_bound  # noqa: PLC0415 - start-up: scipy, for this command alone

    errors = (false_positives, false_negatives)
    _show(
        lambda: credible_bound(*map(Hits.parse, errors), confidence=confidence, delta=delta),
        as_json=as_json,
    )


def _show(compute: Callable[[], LowerBound], *, as_json: bool) -> None:
    """Prints a bound; a number that it refuses is wrong input."""
    try:
        bound = compute()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        typer.echo(json_text(bound.to_json()))
        return
    from parley.privacy.accounting.rounding import as_written, shown_down  # noqa: PLC0415 - start-up: for this command alone

    word = "credible" if bound.method == "bayes" else "confidence"
    mu_text = "" if bound.mu_lower is None else f", μ ≥ {shown_down(bound.mu_lower)}"
    typer.echo(
        f"ε ≥ {shown_down(bound.epsilon_lower)} at δ = {as_written(bound.delta)}{mu_text} "
        f"({word} {100 * bound.confidence:g} %, {bound.method})"
    )
