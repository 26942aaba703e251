"""Runs as folders: configuration, checkpoints, metrics, resuming, and several runs compared.

Its modules, each after those that it imports:

- what a run is: toml, values, settings, checks, combinations, methods, config
- its folder: lock, places, metrics, checkpoint, rewind, environment, provenance, finding_types, watcher, folder
- running it: jobs, execute, plan
- what came of it: summary, common_class, findings
- several runs: choose, compare
- reading them: caveats, tables, reading
- using its model: saved, predictions
"""
