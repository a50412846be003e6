"""People: identities, credentials, devices, and who is calling."""
