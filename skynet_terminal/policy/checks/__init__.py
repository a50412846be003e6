"""What rules ask of a command where a table cannot say it. Each answers with the part that it is about, or None."""
