"""The file: SQLite, commits, versions, snapshots and watches."""
