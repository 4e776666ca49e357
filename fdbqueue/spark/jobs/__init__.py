"""Jobs on top of the data source: load, drain and replay."""
