"""HTTP routes: the OpenAI surface and health."""
