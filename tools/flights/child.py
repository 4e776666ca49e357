"""A process of the demo: runs the function that it is sent."""

import pickle
import sys

if __name__ == "__main__":
    function, arguments = pickle.load(sys.stdin.buffer)
    function(*arguments)
