"""The code behind script/bench. It uses Python's standard library only.

main.py       the arguments of the command line, and the tools and scenarios of this run
scenarios.py  the scenarios: steps over a source, and the raw limit of each step
rounds.py     runs a scenario: the tools in turns, round after round, the raw limit beside each
tools.py      the commands with which each tool makes a store, takes a snapshot and restores it
measure.py    one process: its time, its peak memory; files: their size, and their removal from the page cache
report.py     the measurements as a table and as JSON
"""
