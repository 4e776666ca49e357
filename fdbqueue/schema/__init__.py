"""What is stored: keys, the codec of each value, and what every operation works on."""
