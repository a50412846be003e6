"""``python -m skynet.cli``: the ``skynet`` command of a checkout that is not installed."""

from skynet.cli import main

main()
