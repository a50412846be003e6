"""Wire APIs, one module each."""
