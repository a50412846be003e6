"""WebSocket methods, one module a namespace; `skynet/app.py` lists them."""
