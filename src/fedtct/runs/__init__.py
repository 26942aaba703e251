"""Runs as folders: configuration, checkpoints, metrics, resuming, and several runs compared."""
