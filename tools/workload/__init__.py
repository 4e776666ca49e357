"""What clients do to queues, and what must hold: under chaos, and in the simulation."""
