"""How tensors move inside a host: shared memory, the board on it, and the programs that post and read there."""
