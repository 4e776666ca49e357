"""``format("fdbqueue")``: tables and streams of a queue, and writing into one."""
