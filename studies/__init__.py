"""One-off experiments behind results/findings.md."""
