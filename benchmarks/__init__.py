"""Measurements: one file a question; run as ``python -m benchmarks.<name>``. Figures: ``benchmarks/README.md``."""
