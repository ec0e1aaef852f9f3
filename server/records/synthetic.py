"""What a run's synthetic table came to."""

from __future__ import annotations

from parley.server.records.facts import Facts, Figure

GRID = "grid"
"""Tensor of a model file: `[K, n, …]` some images of every class, from 0 to 255."""


class Synthetic(Facts):
    """A table that was drawn from what a run released: drawing costs nothing.

    Every figure below `records` looks at the records, and is a simulation's alone. An AUC or an
    accuracy is that of a model which was fitted to a table and is asked about held-out records:
    logistic regression on the codes, and boosted trees. TV is total variation, the mean over
    columns or pairs.

    Attributes:
        path: of the records, within the run's folder.
        rows, seed: how many were drawn, and from which public seed.
        tables, classes: how many tables were released, or classes with a sum of random features.
        records: N̂, how many records there are as the release says.
        tv1, tv2: between the table and the training records, of columns and of pairs.
        held_out_tv2, independent_tv2: of held-out records, and of independent columns.
        tstr_auc, tstr_trees_auc: fitted to this table.
        real_auc, real_trees_auc: fitted to the training records themselves.
        twin_auc: fitted to the table that the same release without noise gives.
        independent_auc: fitted to columns drawn independently of each other, without noise.
        tstr_accuracy, real_accuracy: likewise; twin_accuracy: of arrays.
        majority_accuracy: of always answering the training records' commonest label.
        copies, held_out_copies: share of the rows that equal one of some training records, and one
            of as many held-out records: information, and no evidence of privacy, as what follows.
        nearest, held_out_nearest: mean distance of a row to the closest of them: the share of
            columns that differ, of arrays the root mean square of the entries' difference.
        membership_auc: how well a record's distance to the closest row tells training records from
            held-out ones: .5 is chance.
    """

    path: str
    rows: int
    seed: int
    tables: int = 0
    classes: int = 0
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
    held_out_tv2: Figure = None
    independent_tv2: Figure = None
    tstr_accuracy: Figure = None
    real_accuracy: Figure = None
    twin_accuracy: Figure = None
    majority_accuracy: Figure = None
    nearest: Figure = None
    held_out_nearest: Figure = None
    membership_auc: Figure = None
