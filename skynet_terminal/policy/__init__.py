"""Which commands may run: decided on what they are, not on how they are spelt."""
