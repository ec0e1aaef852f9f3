"""Names of models of your own code: what travels is the name, never a path, never the code.

>>> public_name("/home/ann/models/tumour.py:net"), public_name("hospital_nets:tumour")
('tumour.py:net', 'hospital_nets:tumour')
>>> beside("tumour.py:net", Path("/srv/party")), beside("mlp", Path("/srv/party"))
('/srv/party/tumour.py:net', 'mlp')
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["beside", "public_name"]


def public_name(kind: str) -> str:
    """The name under which server and parties speak of a model: of a file without its folder."""
    place, colon, function = kind.rpartition(":")
    return f"{Path(place).name}:{function}" if colon and place.endswith(".py") else kind


def beside(kind: str, folder: Path) -> str:
    """The same model, where a file is meant from `folder` on."""
    place, colon, function = kind.rpartition(":")
    return f"{folder / place}:{function}" if colon and place.endswith(".py") else kind
