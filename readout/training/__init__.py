"""The transformer grown from scratch: its task, its trainer and the measures taken while it grows."""
