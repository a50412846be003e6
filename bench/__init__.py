"""Measures the gateway against the budgets of docs/design: ``python -m bench`` prints the table, see README.md here."""
