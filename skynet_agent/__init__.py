"""Models: messages, wire APIs, providers, the router and the turn."""
