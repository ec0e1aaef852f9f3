"""What a run's synthetic table came to."""

from __future__ import annotations

from parley.server.records.facts import Facts, Figure

__all__ = ["Synthetic"]


class Synthetic(Facts):
    """A table that was drawn from what a run released: drawing costs nothing.

    Every figure below `records` looks at the records, and is a simulation's alone. An AUC is that
    of a model which was fitted to a table and is asked about held-out records: logistic regression
    on the codes, and boosted trees. TV is total variation, the mean over columns or pairs.

    Attributes:
        path: of the table, within the run's folder.
        rows, seed: how many were drawn, and from which public seed.
        tables: how many were released.
        records: N̂, how many records there are as the release says.
        tv1, tv2: between the table and the training records, of columns and of pairs.
        tstr_auc, tstr_trees_auc: fitted to this table.
        real_auc, real_trees_auc: fitted to the training records themselves.
        twin_auc: fitted to the table that the same release without noise gives.
        independent_auc: fitted to columns drawn independently of each other, without noise.
        copies, held_out_copies: share of the table's rows that equal a training record, and of
            the held-out records that do: information, and no evidence of privacy.
    """

    path: str
    rows: int
    seed: int
    tables: int
    records: float
    tv1: Figure = None
    tv2: Figure = None
    tstr_auc: Figure = None
    tstr_trees_auc: Figure = None
    real_auc: Figure = None
    real_trees_auc: Figure = None
    twin_auc: Figure = None
    independent_auc: Figure = None
    copies: Figure = None
    held_out_copies: Figure = None
