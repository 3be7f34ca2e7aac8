"""The agent of one host: its shared memory, its ranks' sessions, and the data links to other hosts."""
