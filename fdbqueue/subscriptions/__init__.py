"""Subscriptions: durable relations to a queue, each with a place in every level of it."""
