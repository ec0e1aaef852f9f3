"""Which records count: a condition on raw columns, as Python, as text and as strict JSON.

Comparisons of a column with a constant, `in`, `is null`, and/or/not; nothing else: no column beside
a column, no arithmetic, no call, so that a condition means the same in every party and in every
version. Numbers are compared as the schema's public range leaves them; an empty category is the
cell "(missing)", one like the others, which `is null` names.

    >>> old = (col.age > 60) & ~(col["sex"] == "Female")
    >>> str(old)
    "age > 60 and not sex == 'Female'"
    >>> parse_where("18 <= age < 65 or `ward name` in ('A', 'B')").columns == {"age", "ward name"}
    True
    >>> decode_where(old.to_json()) == old
    True
    >>> parse_where("age > b")
    Traceback (most recent call last):
        ...
    parley.client.queries.filters.expressions.WhereError: Expected a constant after 'age >', got...
"""

from parley.client.queries.filters.expressions import Expression as Expression
from parley.client.queries.filters.expressions import WhereError as WhereError
from parley.client.queries.filters.expressions import col as col
from parley.client.queries.filters.parser import decode_where as decode_where
from parley.client.queries.filters.parser import parse_where as parse_where
