"""The paper's evaluation as data: what was published, and what to run for it."""
