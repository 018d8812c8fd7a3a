"""The command line ``idx``, as ``python -m wikidx``."""

from .runtimes.cli import main

if __name__ == "__main__":
    main()
