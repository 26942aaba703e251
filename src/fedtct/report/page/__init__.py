"""The report of runs: one page in one file, without anything from a network. Each section is a module."""

from fedtct.report.page.write import write_report

__all__ = ["write_report"]
