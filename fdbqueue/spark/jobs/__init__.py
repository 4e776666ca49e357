"""Jobs on the data source: load, drain and replay."""
