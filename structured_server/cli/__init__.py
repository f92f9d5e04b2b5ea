"""The command line: thin, every command hands over at once."""
