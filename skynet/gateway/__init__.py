"""The WebSocket gateway: sockets, connections, dispatch, events and runs."""
