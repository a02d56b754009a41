"""What a person runs: the command line, and one module per pipeline."""
