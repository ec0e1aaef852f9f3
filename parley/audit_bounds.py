"""Re-export the statistics of an audit for Python users: `parley.audit_bounds`.

>>> from parley.audit_bounds import Hits, pair_bound
>>> seen = {"hits_in": Hits.parse("490/500"), "hits_out": Hits.parse("10/500")}
>>> round(pair_bound(**seen, confidence=0.99, delta=0.0).epsilon_lower, 5)
3.11952
"""

from __future__ import annotations

from collections.abc import Callable

from parley.privacy.audit.claimed_curve import ClaimedCurve as ClaimedCurve
from parley.privacy.audit.claimed_curve import profile_ratio as profile_ratio
from parley.privacy.audit.event_counts import Hits as Hits
from parley.privacy.audit.event_counts import LowerBound as LowerBound
from parley.privacy.audit.noise_scale import Residuals as Residuals
from parley.privacy.audit.noise_scale import factor_bound as factor_bound
from parley.privacy.audit.noise_scale import repeated_lag as repeated_lag
from parley.privacy.audit.noise_scale import shape_p as shape_p
from parley.privacy.audit.one_run import one_run_bound as one_run_bound
from parley.privacy.audit.one_run import one_run_fdp_bound as one_run_fdp_bound
from parley.privacy.audit.two_world_bounds import mu_bound as mu_bound
from parley.privacy.audit.two_world_bounds import pair_bound as pair_bound

BOUNDS: dict[str, Callable[..., LowerBound]] = {
    "pair": pair_bound,
    "mu": mu_bound,
    "one-run": one_run_bound,
    "one-run-fdp": one_run_fdp_bound,
    "factor": factor_bound,
}
"""Bound function by the name of its method."""
