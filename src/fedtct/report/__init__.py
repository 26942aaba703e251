"""Pictures of runs, as PNG and SVG files."""

from fedtct.report.plots import write_plots
from fedtct.report.split_plot import write_split_plot

__all__ = ["write_plots", "write_split_plot"]
