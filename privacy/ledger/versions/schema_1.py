"""Version 1: head, records, data sets and checkpoints, as Parley 0.1.0 made them."""

revision = "1"
down_revision = None
