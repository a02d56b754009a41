"""Threads, bytes in flight and progress of a process."""
