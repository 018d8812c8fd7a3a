"""Artifacts: directories that are built in a staging directory, sealed with checksums, and published by a rename.

manifest        content and verification of manifest.json    building  building and resuming, locks
durable         crash-safe files, checksums                  home      the data home, allowed names
checked_files   files whose pages are checked before use     page_sums kernels of their checksums
"""
