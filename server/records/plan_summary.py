"""What a budget buys, before any data is touched: what `parley plan` says of a job.

Figures are for the *average* over the parties, in the model's own units and without the grid,
unless a name says otherwise; the grid's share is in `grid.inflation` and is charged by the run.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parley.safe_io.plurals import noun
from parley.server.records import guarantee_text, result_text
from parley.server.records.guarantee_facts import DataAccount, GuaranteeOutlook, RecordBounds
from parley.server.records.json_record import Facts
from parley.server.records.plan_parts import (
    Alternative,
    DistributedOutlook,
    DpSgdOutlook,
    EvaluationOutlook,
    Grid,
    Offer,
    SimulationOutlook,
    SyntheticOutlook,
)
from parley.server.records.result_text import release_ahead
from parley.server.records.summary_sections import (
    SUM,
    TRAINING,
    Section,
    html_table,
    of_guarantee,
    present,
    said,
)


class Outlook(Facts):
    """The outlook of a job.

    Attributes:
        chosen: by a rule, and from which public facts, in lines.
        min_records_from: where that number comes from, in words.
        lipschitz, lambda_, sensitivity: G, λ and Δ₂ of the average; absent where no objective is
            solved under noise on the sum, as `calibrations`, `noise_laws` and `alternatives` are.
        data_accounts: what the job's ledger says of its data, by their name in it.
        refusal: why a run of this job would be refused; absent if it would not.
    """

    format: Literal[2] = 2
    algorithm: str
    algorithm_title: str = ""
    model: str
    dimension: int
    parties: int
    min_records: int
    min_records_from: str
    rounds: int
    chosen: tuple[str, ...] = ()
    guarantees: tuple[GuaranteeOutlook, ...]
    class_weights: tuple[float, ...] | None = None
    lipschitz: float | None = None
    lambda_: float | None = Field(default=None, alias="lambda")
    sensitivity: float | None = None
    dp_sgd: DpSgdOutlook | None = None
    distributed: DistributedOutlook | None = None
    simulation: SimulationOutlook | None = None
    synthetic: SyntheticOutlook | None = None
    calibrations: dict[str, Offer] | None = None
    noise_laws: dict[str, Offer] | None = None
    evaluation: EvaluationOutlook | None = None
    grid: Grid
    alternatives: tuple[Alternative, ...] | None = None
    record_bounds: RecordBounds | None = None
    data_accounts: tuple[DataAccount, ...] | None = None
    data_note: str | None = None
    refusal: str | None = None

    @property
    def primary(self) -> GuaranteeOutlook:
        """The guarantee that the job's own ε and δ are asked for."""
        return self.guarantees[0]

    def sections(self) -> list[Section]:
        """What the job will come to, in order."""
        counted = self.dp_sgd is not None and bool(self.dp_sgd.clipped_fraction_share)
        found = [said("chosen", "; ".join(self.chosen))]
        for of in self.guarantees:
            found += of_guarantee("charged", of, rounds=self.rounds, counted=counted)
        found += [
            said("data set", guarantee_text.data_set(each)) for each in self.data_accounts or ()
        ]
        moved = guarantee_text.numbers(
            {"Δ₂ of the average": self.sensitivity, "G =": self.lipschitz, "λ =": self.lambda_}
        )
        found += [
            said("bounds", guarantee_text.bounds(self.record_bounds, self.primary)),
            Section("sensitivity", moved),
            Section(TRAINING, () if self.dp_sgd is None else guarantee_text.training(self.dp_sgd)),
            Section("steps", guarantee_text.distributed(self.distributed)),
            said("class weights", result_text.class_weights(self.class_weights)),
            said("evaluation", result_text.evaluation_ahead(self.evaluation)),
            said("synthetic", release_ahead(self.synthetic)),
            said("simulation", result_text.simulation_ahead(self.simulation)),
            said("ledger", self.data_note or ""),
            Section(SUM, guarantee_text.grid(self.grid)),
        ]
        return present(found)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        who = f"{self.parties} {noun(self.parties, 'party')}"
        job = (
            f"{self.algorithm_title or self.algorithm}, {self.model}: {who} of at least "
            f"{self.min_records} {noun(self.min_records, 'record')}, "
            f"{self.rounds} {noun(self.rounds, 'round')}"
        )
        rows = [(each.title, each.line) for each in self.sections()]
        shown = html_table([("job", job), *rows])
        refusal = html_table([("refused", self.refusal)]) if self.refusal else ""
        return f"<p>A plan: nothing is released or charged.</p>{refusal}{shown}"
