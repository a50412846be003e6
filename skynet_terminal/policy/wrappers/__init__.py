"""Programs that start other programs, and what it is that they start."""
