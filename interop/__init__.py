"""Interoperability tests: unmodified OpenClaw and OpenAI clients against the gateway, started as a person would start it."""
