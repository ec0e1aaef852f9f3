"""What every calibration of a job's noise needs: its choice, its cost, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parley.privacy.accounting.account_certificates import AccountCertificate
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.noise_shares import build_shares_event
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError


def build_cost(job: Job) -> Callable[[Mechanism], PrivacyEvent]:
    """Return the function from a mechanism to its cost on the sum, for the job's noise point."""

    def cost(mechanism: Mechanism) -> PrivacyEvent:
        if not job.privacy.point.in_contributions:
            return mechanism.event()
        # Parts of a noise, or all of it from every party: the number of samplers is the same.
        try:
            return build_shares_event(mechanism, job.parties.count)
        except ValueError as error:
            raise JobError(str(error)) from error

    return cost


def choose_calibration(job: Job) -> str:
    """Return the calibration of Gaussian noise, no lower than what the data's account charges."""
    asked = job.privacy.calibration
    by_rho = job.privacy.chosen_certificate is AccountCertificate.ZCDP
    return _BY_RHO.get(asked, asked) if by_rho else asked


@dataclass(frozen=True, kw_only=True)
class NoiseScaling:
    """How the noise of one guarantee is scaled.

    Attributes:
        build: Δ of the sum in grid units → the noise.
    """

    calibration: str
    build: Callable[[float], Mechanism]


_BY_RHO = {"exact": "cks20", "as-printed": "cks20"}
