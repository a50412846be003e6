"""The OpenClaw v3 wire: frames, handshake, device proof, scopes, errors, params and results. Pure."""
