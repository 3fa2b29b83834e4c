"""Durable files, receipts and locks: everything that outlives a process is written through here."""
