"""Every plot is Vega-Lite as its schema has it: a page draws them without asking."""

import json

import pytest
from altair.vegalite.v6.schema.core import Root
from jsonschema import ValidationError

from parley.presentation import distribution_plots, plots
from parley.presentation.interval_plots import plot_interval_rows, plot_interval_steps
from parley.presentation.plots import Bars, Curve, Level, Palette

AXES = {"x_title": "round", "y_title": "records"}
LINES = [Curve(name="loss", points=[(1, 0.7), (2, 0.5)]), Curve(name="own", points=[(1, 0.6)])]
PLOTS = {
    "curves": lambda: plots.plot_curves(LINES, [Level(name="baseline", value=0.4)]),
    "many rounds": lambda: plots.plot_curves(
        [Curve(name="loss", points=[(x, 1 / x) for x in range(1, 400)], dash=(2, 3))],
        most=1.0,
    ),
    "bars": lambda: plots.plot_bars([Bars(name="sizes", bars=[(0, 1, 5), (1, 2, 3)])], **AXES),
    "ranking": lambda: plots.plot_ranking([("ours", 3.0, "3", Palette.ACCENT)]),
    "heat": lambda: distribution_plots.plot_heat_map([(1, "a", 0.2), (2, "a", 0.4)], **AXES),
    "ranges": lambda: distribution_plots.plot_ranges([("a", 0.1, 0.2, 0.3, 0.4, 0.5)], **AXES),
    "unit square": lambda: plots.plot_unit_square(LINES, [(0.0, 0.2, 0.4, 0.5)], **AXES),
    "interval rows": lambda: plot_interval_rows([("a", 1.0, 2.0, 3.0)], from_zero=True),
    "interval steps": lambda: plot_interval_steps([(0.0, 1.0, 1.0, 2.0, 3.0)], x_title="x"),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_valid_vega_lite(name, monkeypatch):
    specs, draw = [], plots.vl_convert.vegalite_to_svg

    def drawn(spec, **options):
        specs.append(json.loads(json.dumps(spec)))
        return draw(spec, **options)

    monkeypatch.setattr(plots.vl_convert, "vegalite_to_svg", drawn)
    assert "<svg" in plots.draw_figure("Loss", "It falls.", PLOTS[name]()).plot
    (spec,) = specs
    # No background, so that a page's own shows: null, of which the schema knows nothing.
    assert spec.pop("background") is None
    Root.validate(spec)


def test_the_schema_finds_a_word_that_is_none_of_it():
    with pytest.raises(ValidationError):
        Root.validate({"mark": "bar", "widht": 1})
