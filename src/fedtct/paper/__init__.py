"""The paper's evaluation as data: what was published, what to run for it, and both side by side.

Its modules, each after those that it imports:

- what was published: protocol, tables, figures, order
- running it: folder, record, runner, carry
- ours beside it: results, report
"""
