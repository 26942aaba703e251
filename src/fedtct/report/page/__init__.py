"""The report of runs: one page in one file, without anything from a network. Each section is a module.

Its modules, each after those that it imports:

- what is shown: problems, blocks
- the results, on top: chosen, headline, footnotes, results
- other sections: progress, dealing, silos, classes, stage2, traffic, reproduce
- the page: write
"""

from fedtct.report.page.write import write_report

__all__ = ["write_report"]
