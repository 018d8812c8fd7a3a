"""Artifacts on disk: staged, sealed with checksums, published by rename.

manifest   content and verification of manifest.json    building  locks, sealing, renaming, resuming
durable    crash-safe files, checksums                  home      the data home, allowed names
"""
