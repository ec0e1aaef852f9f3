"""Public maps: what each gives, that a record is mapped by itself, and what is refused."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from parley.client.data.memory_table_format import build_table
from parley.client.data.schema import Schema
from parley.client.data.training_records import encode_features
from parley.client.features.feature_cache import load_or_compute
from parley.client.features.feature_error import FeatureError
from parley.client.features.map_building import build_map
from parley.client.features.own_feature_map import find_local_code
from parley.client.features.registry import FEATURES

IMAGES = Schema.from_toml(
    """
scaling = "unit"
[columns]
image = { kind = "array", shape = [9, 7], range = [0, 255], centre = 0 }
digit = { kind = "label", classes = [0, 1, 2] }
"""
)
TABLE = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
sex = { kind = "categorical", categories = ["f", "m"] }
gain = { kind = "numeric", range = [0, 1000], transform = "log1p" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
ROWS = {
    "age": np.array([0.0, 10.0, 55.0, 100.0]),
    "sex": np.array(["f", "m", "m", "f"]),
    "gain": np.array([0.0, 5.0, 99.0, 1000.0]),
}
SMALL = {
    "scattering": {"scales": 1, "groups": 9},
    "bins": {},
    "hats": {},
    "random-fourier": {"features": 20},
    "codes": {},
}
OWN = """
import torch
from torch import nn

class Mean(nn.Module):
    def forward(self, x):
        return x - x.mean(0)

class Remember(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
    def forward(self, x):
        self.seen += 1
        return x

def net(features): return nn.Sequential(nn.Linear(features, 6), nn.ReLU()).eval()
def mean(features): return Mean()
def dropout(features): return nn.Dropout(0.5)
def norm(features): return nn.BatchNorm1d(features)
def memory(features): return Remember()
def broken(features): return nn.Linear(features + 1, 2)
def infinite(features): return nn.Threshold(100.0, float("inf"))
def text(features): return "no module"
"""


def cells(schema, columns):
    return encode_features(build_table(columns, schema, path="here"), schema.unscaled)[0]


def example(name, records=40):
    rng = np.random.default_rng(3)
    if name == "scattering":
        return IMAGES, cells(IMAGES, {"image": rng.integers(0, 256, (records, 9, 7))})
    numbers = rng.random(records)
    columns = {"age": numbers * 100, "sex": np.where(numbers < 0.4, "f", "m"), "gain": numbers}
    return TABLE, cells(TABLE, columns)


def own(tmp_path, function, **settings):
    file = tmp_path / "backbone.py"
    file.write_text(OWN)
    given = {"trained-on": "nothing", **settings}
    name = f"backbone.py:{function}"
    return build_map(name, given, own_maps={name: f"{file}:{function}"})


@pytest.mark.parametrize("name", FEATURES)
def test_a_record_has_the_same_bits_alone_among_others_and_in_any_order(name) -> None:
    schema, rows = example(name)
    features = build_map(name, SMALL[name]).bind(schema)
    whole = features.compute(rows)
    assert whole.shape == (40, features.width)
    assert whole.dtype == np.float32
    alone = np.concatenate([features.compute(rows[k : k + 1]) for k in range(40)])
    assert np.array_equal(alone, whole)
    order = np.random.default_rng(4).permutation(40)
    assert np.array_equal(features.compute(rows[order]), whole[order])
    assert len(np.unique(whole, axis=0)) > 3


def test_scattering_is_normalised_by_group_of_each_record() -> None:
    schema, rows = example("scattering")
    found = build_map("scattering", SMALL["scattering"]).bind(schema).compute(rows)
    groups = found.reshape(40, 9, -1)
    np.testing.assert_allclose(groups.mean(axis=2), 0, atol=1e-5)
    assert (np.abs(groups.std(axis=2) - 0.95) < 0.1).all()  # a little below 1: 1e-5 is added
    plain = build_map("scattering", {"scales": 1, "groups": 0}).bind(schema).compute(rows)
    assert plain.min() > -0.1  # averages of moduli


def test_bins_are_the_columns_ranges_in_equal_parts_or_at_the_edges_that_are_named() -> None:
    settings = {"bins": 4, "edges": {"gain": [1, 99]}, "products": [["age", "sex"]]}
    found = build_map("bins", settings).bind(TABLE).compute(cells(TABLE, ROWS))
    at = [np.flatnonzero(row).tolist() for row in found]
    # age 0–3, sex 4–5, gain 6–8 (an edge belongs to the bin above), age × sex from 9 on.
    assert at == [[0, 4, 6, 9], [0, 5, 7, 10], [2, 5, 8, 14], [3, 4, 8, 15]]


def test_hats_of_a_number_are_linear_between_knots_and_add_up_to_one() -> None:
    found = build_map("hats", {"intervals": 4}).bind(TABLE).compute(cells(TABLE, ROWS))
    # age 0–4, sex 5–6, gain 7–11: log1p(gain) of log1p(1000).
    np.testing.assert_allclose(
        found[:, :5].tolist()[1:3], [[0.6, 0.4, 0, 0, 0], [0, 0, 0.8, 0.2, 0]], atol=1e-7
    )
    assert found[:, 5:7].tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]
    place = found[:, 7:] @ np.arange(5) / 4
    np.testing.assert_allclose(place, np.log1p(ROWS["gain"]) / np.log1p(1000), atol=1e-6)
    for block in (found[:, :5], found[:, 7:]):
        np.testing.assert_allclose(block.sum(axis=1), 1, atol=1e-6)
        assert ((block > 0).sum(axis=1) <= 2).all()


def test_random_fourier_features_approximate_the_gaussian_kernel() -> None:
    rows = cells(TABLE, ROWS)
    found = (
        build_map("random-fourier", {"features": 20_000, "length-scale": 1.5})
        .bind(TABLE)
        .compute(rows)
    )
    squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found @ found.T, np.exp(-squares / (2 * 1.5**2)), atol=0.03)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_the_digest_is_of_name_settings_code_and_weights(tmp_path) -> None:
    maps = [
        build_map("scattering", {}),
        build_map("scattering", {"scales": 3}),
        build_map("bins", {}),
        build_map("random-fourier", {}),
        build_map("random-fourier", {"seed": 1}),
        own(tmp_path, "net"),
        own(tmp_path, "net", **{"trained-on": "ImageNet"}),
    ]
    assert len({made.digest for made in maps}) == len(maps)
    assert build_map("scattering", {"scales": 2, "angles": 8}).digest == maps[0].digest
    before = maps[5].digest
    (tmp_path / "elsewhere").mkdir()
    assert own(tmp_path / "elsewhere", "net").digest == before
    (tmp_path / "backbone.py").write_text(OWN + "\n# another\n")
    assert maps[5].digest != before


def test_the_digest_is_of_what_the_code_imports_near_it_too(tmp_path, monkeypatch) -> None:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "back.py").write_text("from . import layers\nimport torch, json.decoder\n")
    (package / "layers.py").write_text("def f():\n    from nets.deep.er import x\n")
    (package / "deep").mkdir()
    (package / "deep" / "er.py").write_text("from ...... import beyond\nfrom .. import back\n")
    (tmp_path / "beyond.py").write_text("")  # not of the package
    (package / "unused.py").write_text("")
    names = ["nets/__init__.py", "nets/deep/er.py", "nets/layers.py"]
    assert list(find_local_code(package / "back.py")) == names

    made = own(tmp_path, "net")
    alone = made.digest
    monkeypatch.setitem(sys.modules, "sizes", ModuleType("sizes"))
    (tmp_path / "backbone.py").write_text("import sizes\n" + OWN)
    (tmp_path / "elsewhere.py").write_text("WIDE = 4\n")
    (tmp_path / "sizes.py").symlink_to(tmp_path / "elsewhere.py")
    before = made.digest
    (tmp_path / "elsewhere.py").write_text("WIDE = 5\n")
    assert len({alone, before, made.digest}) == 3
    (tmp_path / "sizes.py").unlink()
    (tmp_path / "sizes.py").write_text("WIDE = = 5\n")
    with pytest.raises(FeatureError, match="Expected Python in"):
        _ = made.digest


def test_ones_own_module_is_frozen_and_loads_its_weights(tmp_path) -> None:
    weights = {"0.weight": torch.ones(6, 4), "0.bias": torch.arange(6.0)}
    save_file(weights, tmp_path / "public.safetensors")
    made = own(tmp_path, "net", weights="public.safetensors")
    rows = cells(TABLE, ROWS)
    wanted = np.maximum(rows.sum(axis=1, keepdims=True) + np.arange(6), 0)
    np.testing.assert_allclose(made.bind(TABLE).compute(rows), wanted, atol=1e-6)
    before = made.digest
    save_file({**weights, "0.bias": torch.zeros(6)}, tmp_path / "public.safetensors")
    assert made.digest != before
    save_file({"0.weight": torch.ones(5, 4)}, tmp_path / "public.safetensors")
    with pytest.raises(FeatureError, match="Cannot load the weights"):
        made.bind(TABLE)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("mean", "in a batch than for the record alone"), ("dropout", "draws random numbers"),
        ("norm", "keep records separate"), ("memory", "the buffer seen"),
        ("broken", "to take rows of 4 cells"), ("infinite", "finite features"),
        ("text", "torch.nn.Module"), ("absent", "Expected a class or function"),
    ],
)  # fmt: skip
def test_a_module_that_is_no_function_of_one_record_is_refused(tmp_path, function, said) -> None:
    with pytest.raises(FeatureError, match=said):
        own(tmp_path, function).bind(TABLE)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("scattering", {"scale": 1}, "Unknown key model.feature-settings.scale"),
        ("scattering", {"scales": True}, "to be a valid integer, got True"),
        ("scattering", {"groups": 10}, "groups that divide 81"),
        ("scattering", {"scales": 3}, "more than 8 pixels"),
        ("bins", {"edges": {"digit": [1]}}, "no arrays"),
        ("hats", {"intervals": 0}, "1 to 1000 intervals"),
        ("random-fourier", {"features": 3}, "even number"),
        ("random-fourier", {"features": 2**40}, "even number"),
        ("random-fourier", {"length-scale": 0}, "length-scale"),
        ("other", {}, "Expected features of scattering, random-fourier, bins, hats"),
        ("os.py:system", {}, "that the policy lists in features"),
    ],
)
def test_settings_and_names_that_are_unknown_are_refused(name, settings, said) -> None:
    with pytest.raises(FeatureError, match=said):
        build_map(name, settings).bind(IMAGES)


def test_columns_that_a_map_does_not_take_are_refused() -> None:
    for settings, said in (
        ({"edges": {"sex": [1]}}, "numeric columns"),
        ({"products": [["age", "wage"]]}, "columns of the schema"),
        ({"products": [["age", "age"]]}, "pairs of two"),
        ({"edges": {"age": [3, 1]}}, "increasing"),
    ):
        with pytest.raises(FeatureError, match=said):
            build_map("bins", settings).bind(TABLE)
    with pytest.raises(FeatureError, match="one column of kind array"):
        build_map("scattering", {}).bind(TABLE)


def test_a_disk_without_room_keeps_nothing_and_nobody_from_learning(tmp_path, monkeypatch) -> None:
    def full(_tensors, file):
        file.write_bytes(b"half")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("parley.client.features.feature_cache.save_file", full)
    assert load_or_compute(tmp_path / "f", "key", lambda: np.ones((1, 1), np.float32)).tolist() == [
        [1.0]
    ]
    assert list((tmp_path / "f").iterdir()) == []


def test_what_was_computed_is_kept_and_what_is_damaged_is_made_anew(tmp_path) -> None:
    made = []

    def compute():
        made.append(1)
        return np.full((3, 2), 0.5, np.float32)

    for _ in range(2):
        assert load_or_compute(tmp_path / "f", "key", compute).tolist() == [[0.5, 0.5]] * 3
    assert len(made) == 1
    (file,) = (tmp_path / "f").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(file.read_bytes()[:-3])
    load_or_compute(tmp_path / "f", "key", compute)
    for other in range(9):
        load_or_compute(tmp_path / "f", f"other-{other}", compute)
    assert len(list((tmp_path / "f").iterdir())) == 4
    assert len(made) == 11
