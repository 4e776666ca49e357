"""What a worker does about its leases: it extends them, and learns of cancellations."""
