"""Duration of runs at an endpoint whose latency varies: this version, an earlier commit, and bounds.

endpoint     a fake endpoint with a latency of its own for each prompt
simulation   the same run in virtual time, without any overhead

    python -m benchmarks.execution --methods ircot ra_isf --concurrency 32 --commit ../idx-b93c095
"""
