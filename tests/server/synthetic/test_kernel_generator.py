"""The generator of random features: no records, a fit that goes astray."""

import numpy as np
import pytest

from parley.client.algorithms.kernel_mean_embedding import RandomFeatures
from parley.privacy.accounting.threat_model import Neighbouring
from parley.server.synthetic.kernel_generator import RecordShape, fit

SUMMED = RandomFeatures(
    features=5, sizes=(3, 2), classes=2, frequencies=4, length_scale=1.0, seed=0, digest="",
    neighbouring=Neighbouring.REPLACE_ONE, bound=1e6,
)  # fmt: skip


@pytest.mark.parametrize(
    ("sums", "counts", "said"),
    [
        (1.0, [-30.0, 28.0], "positive number of records, got -2"),
        (1.0, [0.0, 0.0], "positive number of records, got 0"),
        (1e30, [1e-30, 1e-30], "finite generator, got one that diverged"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_release_that_no_generator_can_be_fitted_to_is_refused(sums, counts, said):
    released = np.concatenate([np.full(16, sums), counts])
    with pytest.raises(ValueError, match=said):
        fit(SUMMED, RecordShape(sizes=(3, 2)), released, steps=2, seed=0)
