"""Made data for the demo, the tests and the benchmarks: dates, shapes, grids."""
