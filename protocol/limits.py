"""Every bound and default of hocket, in one place.

Names end in their unit: ``_s`` seconds, ``_nbytes`` bytes. A limit is checked before anything is allocated.
"""

from typing import Final

PROTOCOL_VERSIONS: Final = (1, 1)
"""Oldest and newest protocol version that this build speaks."""

# --- addresses -------------------------------------------------------------------------------------------------------
COORDINATOR_HOST: Final = "127.0.0.1"
COORDINATOR_PORT: Final = 7420
HTTP_PORT: Final = 7421
DATA_PORT: Final = 7422
SOCKET_NAME: Final = "worker.sock"
SOCKET_MODE: Final = 0o600
"""Who may connect to a worker's Unix socket: its own user, unless a service serves others (``--socket-mode``)."""

# --- time ------------------------------------------------------------------------------------------------------------
OPERATION_TIMEOUT_S: Final = 300.0
"""What an operation gets when neither it, its group nor its client names a timeout."""
LATE_WARNING_S: Final = 10.0
"""A wait that lasts longer than this is logged with the ranks that are missing."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""A stranger that has not finished its handshake by then is disconnected."""
HEARTBEAT_S: Final = 1.0
LIVENESS_S: Final = 5.0
"""Silence of a worker that lasts this long counts as the loss of its host."""
RECONNECT_FIRST_S: Final = 0.1
RECONNECT_LAST_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 10.0
VERDICT_TIMEOUT_S: Final = 10.0
"""How long hosts may take to agree on the outcome of a contested operation before the slowest counts as lost."""
EXCHANGE_GRACE_S: Final = 30.0

# --- frames ----------------------------------------------------------------------------------------------------------
MESSAGE_NBYTES: Final = 4 << 20
"""Largest msgpack part of a frame from an authenticated peer."""
HANDSHAKE_NBYTES: Final = 4096
"""Largest frame before authentication; payloads are not taken then at all."""
PAYLOAD_NBYTES: Final = 1 << 46
"""Largest raw payload of a frame (64 TiB: beyond any memory, well inside 64 bits)."""
FRAME_FDS: Final = 250
"""File descriptors that one frame may carry (the kernel's limit is 253)."""
SEND_QUEUE_NBYTES: Final = 1 << 20
IDENTITY_NBYTES: Final = 256
"""Longest job, group, channel or client name."""

# --- board -----------------------------------------------------------------------------------------------------------
BLOCK_NBYTES: Final = 1 << 20
"""Capacity of one data slot; a larger array moves block by block."""
SMALL_NBYTES: Final = 32 << 10
"""Up to here every rank reduces the whole array by itself, which saves one wait."""
DIRECT_NBYTES: Final = 8 << 20
"""From here on ranks of one host read one another's memory, where they may, instead of copying through the board."""
SIGNATURE_NBYTES: Final = 32 << 10
"""Room for one encoded signature, list of sizes included."""
MEMBERS: Final = 4096
"""Largest group."""

# --- point to point --------------------------------------------------------------------------------------------------
EAGER_NBYTES: Final = 64 << 10
"""A message up to this size travels with its announcement and its send completes at once."""
EAGER_WINDOW_NBYTES: Final = 4 << 20
"""Eager bytes that one rank may have under way to another one; beyond it, sends wait to be taken."""
EAGER_OVERHEAD_NBYTES: Final = 256
"""What an eager message counts in that window beyond its own bytes, so that empty ones are bounded, too."""
PIECE_NBYTES: Final = 1 << 20
"""A message beyond `EAGER_NBYTES` travels in pieces of this size."""
GRANT_NBYTES: Final = 8 << 20
"""Bytes of one message that its receiver lets come ahead of what has arrived."""

# --- between hosts ---------------------------------------------------------------------------------------------------
BLOCK_WINDOW: Final = 4
"""Blocks that a host may be ahead of another one in the same operation."""
FEEDBACK_NBYTES: Final = 4 << 30
"""What a channel of a group remembers on each host for the error feedback of compressed sums, all names together."""

# --- objects ---------------------------------------------------------------------------------------------------------
OBJECT_DEPTH: Final = 200
"""How deep containers of an object may be nested (msgpack itself ends at 511)."""
OBJECT_INLINE_NBYTES: Final = 64 << 10
"""Longer bytes in an object travel beside its structure, as arrays do: copied less often, and of any length."""
