"""Artifacts on disk: built aside, sealed with checksums, there by rename.

manifest   contents of a manifest.json, and whether to believe it    building  locks, sealing, renaming, resuming
durable    files that outlive a crash, checksums                     home      the data home, names allowed in it
"""
