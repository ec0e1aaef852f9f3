"""Data that are handed over in memory: y of a pair, names, and what a draft leaves out."""

import numpy as np
import polars as pl
import pytest

from parley.client.data.data_error import DataError
from parley.server.jobs.job_file import load_job
from parley.simulations.data.in_memory_data import build_in_memory_data

N = 120
RNG = np.random.default_rng(46)
X = RNG.uniform(0, 1, (N, 3))
OUT = (X[:, 0] > 0.5).astype(int)
FRAME = pl.DataFrame(X, schema=["a", "b", "c"])


def given(data, **how):
    several = len(data) if isinstance(data, list) else 5
    return build_in_memory_data(load_job(overrides=[f"parties.count={several}"]), data, **how)


@pytest.mark.parametrize(
    "y",
    [
        OUT,
        OUT.tolist(),
        OUT[:, None],
        [[value] for value in OUT],
        pl.Series("out", OUT),
        pl.DataFrame({"out": OUT}),
        {"out": OUT},
        OUT > 0,
    ],
    ids=["array", "list", "[N, 1]", "rows", "series", "frame", "mapping", "truth values"],
)
@pytest.mark.parametrize("x", [X, FRAME], ids=["array", "frame"])
def test_y_of_a_pair_is_the_label_in_whichever_form(x, y):
    found = given((x, y))
    name = "out" if isinstance(y, pl.Series | pl.DataFrame | dict) else "y"
    assert found.schema.label_column == name
    assert len(found.schema.features) == 3
    assert found.frames[0].columns[name].shape == (N,)
    again = given([(x, y), (x, y)])
    assert again.schema.label_column == name


@pytest.mark.parametrize(
    ("y", "got"),
    [
        (OUT[None, :], r"shape \[1, 120\]"),
        (np.c_[OUT, OUT], r"shape \[120, 2\] \(give one of its columns\)"),
        (pl.DataFrame({"p": OUT, "q": OUT}), "2 columns"),
        (OUT[:-1], "119 labels for 120 rows"),
        ([*OUT, 1], "121 labels for 120 rows"),
        (OUT[:, None, None], r"shape \[120, 1, 1\]"),
        ([[1], [1, 2]] * 60, "rows of unequal lengths"),
        (None, r"shape \[\]"),
    ],
)
def test_y_that_is_no_label_a_row_is_refused(y, got):
    with pytest.raises(DataError, match=rf"y of shape \[120\] or \[120, 1\].*got {got}"):
        given((X, y))


def test_the_label_of_a_pair_is_not_named_again():
    assert given((X, OUT), label="y").schema.label_column == "y"
    with pytest.raises(DataError, match="no label together with a pair"):
        given((X, OUT), label="x1")


class Doubled:
    """A frame in which one name stands twice, as pandas allows."""

    def __init__(self, *columns):
        self.columns = columns

    def __getitem__(self, name):
        return np.column_stack([OUT] * list(self.columns).count(name)).squeeze()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("score", "score", "out"), r"\['score'\] more than once"),
        ((5, "5", "out"), r"\['5' and 5\] more than once"),
        ((1, 1.0, "out"), r"\[1 and 1\.0\] more than once"),
        ((True, "True", "out"), r"\['True' and True\] more than once"),
    ],
)
def test_two_columns_of_one_name_are_refused_as_in_a_file(names, said):
    with pytest.raises(DataError, match=f"every column name once.*{said}"):
        given(Doubled(*names))


def test_a_column_that_a_draft_ignores_is_named_in_a_warning():
    table = {"a": X[:, 0], "b": [f"{value:.4f}" for value in X[:, 1]], "out": OUT}
    with pytest.warns(UserWarning, match=r"ignores 'b' \(numbers that are stored as text"):
        given(table)


def test_a_party_whose_column_is_of_text_is_named_with_the_column():
    first = {"a": X[:, 0], "b": X[:, 1], "out": OUT}
    second = first | {"b": [f"{value:.4f}" for value in X[:, 1]]}
    with pytest.raises(DataError, match=r"party 2, column 'b': .*numbers: in memory, party 1"):
        given([first, second])
    empty = first | {"b": np.full(N, None)}
    assert given([first, empty]).schema.columns["b"].kind == "numeric"


def test_nullable_whole_numbers_of_pandas_keep_their_digits():
    pd = pytest.importorskip("pandas")
    codes = pd.Series(900_000_000_000_207_008 + OUT, dtype="Int64")
    codes[0] = pd.NA
    schema = given(pd.DataFrame({"a": X[:, 0], "code": codes, "out": OUT})).schema
    assert schema.columns["code"].texts == ["900000000000207008", "900000000000207009"]


@pytest.mark.filterwarnings("ignore")
def test_a_label_may_be_named_as_a_frames_column_is_also_by_a_number() -> None:
    rng = np.random.default_rng(0)
    columns = {0: rng.normal(size=60), ("x", 1): rng.normal(size=60)}
    for label in (2, ("x", 2)):
        frame = {**columns, label: rng.choice(["no", "yes"], 60)}
        given = build_in_memory_data(load_job(), frame, label=label)
        assert given.schema.label.positive == ("yes",)
