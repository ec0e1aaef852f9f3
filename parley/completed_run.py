"""`Run`: what `parley.run` returns, with the model, its privacy cost and its figures."""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.client.own_code.own_code_names import is_own_code
from parley.presentation.short_run import list_run_lines
from parley.privacy.accounting.rounding import format_rounded_up
from parley.safe_io.plurals import format_noun
from parley.server.records.run_reader import read_rounds
from parley.server.records.run_result import RunResult, build_report_frame

if TYPE_CHECKING:
    from parley.prediction.estimator import Estimator
    from parley.server.records.round_line import RoundLine

_METRICS = ("auc", "average_precision", "recall", "precision", "log_loss", "brier", "rmse", "r2")


class Run(RunResult):
    """A run that ended: `run.model`, `run.epsilon`, `run.metrics`, `run.report`."""

    @classmethod
    def of(cls, result: RunResult) -> Run:
        """Return the run with the attributes of an engine's result."""
        return cls(summary=result.summary, folder=result.folder, theta=result.theta)

    @cached_property
    def model(self) -> Estimator:
        """Fitted model; scikit-learn takes it as a fitted estimator."""
        from parley.prediction.model_loading import load_model  # noqa: PLC0415 - start-up: a run predicts nothing (0.1 s)
        from parley.server.jobs.job_file import load_job  # noqa: PLC0415 - start-up: likewise

        job = load_job(self.folder / "job.toml")
        named = (job.model.kind, str(getattr(job.model, "features", "")))
        return load_model(self.folder, own_models=tuple(filter(is_own_code, named)))

    @property
    def epsilon(self) -> float:
        """Privacy cost ε charged, against the server and the parties that may collude with it."""
        return float(self.summary.primary.epsilon)

    @property
    def delta(self) -> float:
        """Privacy cost δ charged, next to `epsilon`."""
        return float(self.summary.primary.delta)

    @property
    def accuracy(self) -> float | None:
        """Share of held-out records answered right (simulation only); R² of a regression."""
        return self.summary.accuracy

    @property
    def metrics(self) -> dict[str, float]:
        """Figures measured on held-out records, by name (simulation only)."""
        summary = self.summary
        found = {"r2" if summary.metric == "r2" else "accuracy": summary.accuracy}
        found |= {name: getattr(summary.judgement, name, None) for name in _METRICS}
        return {name: float(value) for name, value in found.items() if value is not None}

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """One dictionary per round: `pandas.DataFrame(run.rounds)`."""
        lines, _ = read_rounds(self.folder)
        return [_flatten_round(line) for line in lines]

    @property
    def report(self) -> Path:
        """HTML report, a page that needs no network."""
        return self.folder / "report.html"

    def certificate(
        self,
        path: str | Path | None = None,
        *,
        key: str | Path | None = None,
        ledger: str | None = None,
    ) -> Path:
        """Write the run's signed certificate as JSON and as one HTML page; return the JSON file.

        Args:
            path: JSON file; default certificate.json in the run's folder. The page's name ends in
                .html.
            key: file of the signing key, made if there is none; default certificate.key in your
                configuration folder.
            ledger: path or URL of the run's ledger, if its job names a URL.

        Raises:
            CertificateError: a file exists already, or the run cannot be certified, for example
                because its noise was seeded.
        """
        from parley.certificate.certificate_files import write_certificate  # noqa: PLC0415 - spares cryptography and jinja2

        target = None if path is None else Path(path)
        own = None if key is None else Path(key)
        return write_certificate(self.folder, target, key=own, ledger=ledger)[1]

    def __repr__(self) -> str:
        summary = self.summary
        measured = "" if self.accuracy is None else f", accuracy={self.accuracy:.3f}*"
        ended = "" if summary.status == "complete" else f", {summary.status}"
        text = (
            f"<Run {summary.model.rpartition(':')[2][:_MAX_MODEL]}, {summary.parties} "
            f"{format_noun(summary.parties, 'party')}, "
            f"epsilon={format_rounded_up(self.epsilon, 3)}{measured}{ended}"
        )
        folder, room = str(self.folder), _MAX_REPR - len(text) - len(", folder=''>")
        shown = folder if len(folder) <= room else f"…{folder[1 - room :]}"
        return f"{text}, folder={shown!r}>"

    def __str__(self) -> str:
        return "\n".join(list_run_lines(self.summary, self.folder))

    def _repr_html_(self) -> str:
        """Return the lines that the terminal prints, then the report, folded."""
        return f"<pre>{escape(str(self))}</pre>{build_report_frame(self.report, 'Report')}"


_MAX_REPR, _MAX_MODEL = 119, 16


def _flatten_round(line: RoundLine) -> dict[str, Any]:
    """Return a round's figures, one value per name."""
    spent = line.guarantees[0].epsilon_charged if line.guarantees else None
    return {"round": line.round, "epsilon": spent, "seconds": line.seconds, **line.simulation_only}
