"""Letting messages in and giving them their places."""
