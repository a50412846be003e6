"""The app: configuration, gateway, methods, HTTP surface and command line."""
