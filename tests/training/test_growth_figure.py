"""The figure of growth shows each seed's measures."""

from readout.figures.growth import PANELS, growth


def test_every_panel_has_a_line_a_seed_that_ends_at_the_last_checkpoint():
    rows = [{"step": step} | {name: step / 10 for name, _ in PANELS} for step in (0, 5, 10)]
    run = {"checkpoints": rows, "phases": [{"name": "copy", "end": 4}]}
    figure = growth({"seeds": {"0": run, "1": run}})
    assert len(figure.axes) == len(PANELS)
    for axes in figure.axes:
        ends = [line.get_ydata()[-1] for line in axes.lines if line.get_label() in ("0", "1")]
        assert ends == [1.0, 1.0]
