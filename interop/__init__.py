"""Interoperability: unmodified OpenClaw and OpenAI clients against the gateway, started as a person starts it."""
