"""Schedules between hosts: which host sends which chunk to whom, round by round. Pure: no arrays, no sockets."""
