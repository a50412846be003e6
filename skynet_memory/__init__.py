"""Storage: the database, migrations, sessions, transcripts, usage."""
