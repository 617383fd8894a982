"""What script/bench runs. Python's standard library only.

main.py       the words of the command line; which tools and scenarios there are in this run
scenarios.py  what is measured: steps over a source, and the raw limit of each
rounds.py     runs a scenario: the tools in turns, round after round, the raw limit beside each
tools.py      how each tool is told to make a store, take a snapshot and give it back
measure.py    one process: its time, its peak memory; files: their size, and their absence from the page cache
report.py     the measurements as a table and as JSON
"""
