"""What comes after messages: successors."""
