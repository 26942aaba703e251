"""A federation over a Flower grid: how its messages look, travel, are checked and are sorted in."""
