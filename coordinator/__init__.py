"""Who is in: membership, barriers and liveness of a cluster, and the HTTP API that shows them. Never a tensor byte."""
