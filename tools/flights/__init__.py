"""The demo: real flights as messages, with a proof of exactly-once. Started by ``tools/demo``."""
