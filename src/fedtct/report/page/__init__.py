"""The page that people look at first: one file that needs no network. A module is a section of it."""

from fedtct.report.page.write import write_report

__all__ = ["write_report"]
