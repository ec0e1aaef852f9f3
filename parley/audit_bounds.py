"""The statistics of an audit, in one place for Python: `parley.audit_bounds`.

>>> from parley.audit_bounds import Hits, pair_bound
>>> seen = {"hits_in": Hits.parse("490/500"), "hits_out": Hits.parse("10/500")}
>>> round(pair_bound(**seen, confidence=0.99, delta=0.0).epsilon_lower, 5)
3.11952
"""

from __future__ import annotations

from parley.privacy.audit.claimed_curve import ClaimedCurve, profile_ratio
from parley.privacy.audit.counts import Hits, LowerBound
from parley.privacy.audit.credible import credible_bound
from parley.privacy.audit.noise_scale import Residuals, factor_bound, shape_p
from parley.privacy.audit.one_run import estimated_mu, one_run_bound, one_run_fdp_bound
from parley.privacy.audit.pair import mu_bound, pair_bound
from parley.privacy.audit.whiteness import repeated_lag

__all__ = [
    "ClaimedCurve",
    "Hits",
    "LowerBound",
    "Residuals",
    "credible_bound",
    "estimated_mu",
    "factor_bound",
    "mu_bound",
    "one_run_bound",
    "one_run_fdp_bound",
    "pair_bound",
    "profile_ratio",
    "repeated_lag",
    "shape_p",
]
