"""Running a worker that a module defines, in one process or several."""
