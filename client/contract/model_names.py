"""Names of models of your own code: what travels is the name, never a path, never the code.

>>> public_name("/home/ann/models/tumour.py:net"), public_name("hospital_nets:tumour")
('tumour.py:net', 'hospital_nets:tumour')
>>> beside("tumour.py:net", Path("/srv/party")), beside("mlp", Path("/srv/party"))
('/srv/party/tumour.py:net', 'mlp')
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def public_name(kind: str) -> str:
    """The name under which server and parties speak of a model: of a file without its folder."""
    place, colon, function = kind.rpartition(":")
    return f"{Path(place).name}:{function}" if colon and place.endswith(".py") else kind


def own_file_digest(kind: str) -> str | None:
    """SHA-256 of the file that a model of your own code is in; None where there is no such file."""
    place, colon, _ = kind.rpartition(":")
    file = Path(place)
    if not colon or file.suffix != ".py" or not file.is_file():
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()


def beside(kind: str, folder: Path) -> str:
    """The same model, where a file is meant from `folder` on."""
    place, colon, function = kind.rpartition(":")
    return f"{folder / place}:{function}" if colon and place.endswith(".py") else kind
