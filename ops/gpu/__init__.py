"""What an operator runs on a machine with a GPU before serving from it."""
