"""The values of the paper on LBCAS (Suzaki and others, Linux Symposium 2009): Ubuntu 9.04 with a desktop, 8 GB of
ext3 with 2 GB in use, blocks packed with zlib."""

SIZES = (64, 128, 256, 512)
"""The block sizes in KiB."""
WAYS = {"normal": "as it is", "readahead": "with read-ahead", "opt": "optimized"}
"""The three ways of starting the machine. Read-ahead reads the files of a list in the background."""

# Table 1: the percentage of time that the guest waits for its disk, for each block size.
WAITING = {
    "normal": (12.2, 15.1, 14.0, 21.3),
    "readahead": (25.9, 18.9, 20.6, 25.7),
    "opt": (5.1, 5.6, 6.3, 11.0),
}
# Table 2, first part: MB of opened files, of the blocks that are needed, and of all requests; the requests, and KB
# of each.
FILES_MB, FILES, NEEDED_MB = 203, 2248, 127
REQUESTED_MB = {"normal": 208, "readahead": 231, "opt": 140}
REQUESTS = {"normal": (6379, 33), "readahead": (5827, 41), "opt": (2129, 67)}
# Table 2, second part: for each block size, downloaded MB, unpacked MB, and the needed part of the unpacked bytes in
# percent.
DOWNLOADED_MB = {
    "normal": (86.1, 96.8, 114, 144),
    "readahead": (93.4, 104, 123, 153),
    "opt": (55.3, 55.3, 55.6, 55.6),
}
UNPACKED_MB = {"normal": (247, 290, 358, 474), "readahead": (272, 315, 386, 508), "opt": (144, 149, 159, 176)}
OCCUPANCY = {
    "normal": (51.5, 43.9, 35.5, 26.9),
    "readahead": (46.9, 40.3, 35.0, 25.1),
    "opt": (88.7, 85.3, 80.0, 71.8),
}
# Table 3: requests, downloads, blocks from storage, blocks from memory, and how many requests needed one, two and
# three blocks.
FUNCTIONS = {
    ("normal", 64): (6338, 3958, 1663, 3647, (4148, 1450, 740)),
    ("normal", 128): (6381, 2321, 1729, 3793, (4919, 1462, 0)),
    ("normal", 256): (6379, 1435, 1748, 3908, (5667, 712, 0)),
    ("normal", 512): (6395, 948, 1769, 4019, (6054, 341, 0)),
    ("readahead", 64): (5825, 4344, 1172, 3626, (3537, 1259, 1029)),
    ("readahead", 128): (5834, 2526, 1200, 3761, (4181, 1653, 0)),
    ("readahead", 256): (5827, 1544, 1179, 3908, (5023, 804, 0)),
    ("readahead", 512): (5822, 1015, 1172, 4023, (5434, 388, 0)),
    ("opt", 64): (2165, 2296, 626, 1311, (941, 380, 844)),
    ("opt", 128): (2148, 1189, 593, 1398, (1116, 1032, 0)),
    ("opt", 256): (2129, 634, 576, 1409, (1639, 490, 0)),
    ("opt", 512): (2132, 353, 517, 1520, (1874, 258, 0)),
}
FRAGMENTED = {"normal": 0.21, "opt": 1.11}
"""Figure 8: the percentage of fragmented files."""
DELIVERY_SHARE = {"normal": "> 20", "opt": "< 14"}
"""Figure 12: the part of the start that the client of the disk takes, in percent."""


def check_identities(requests: int, unpacked: int, from_memory: int, spans: dict[int, int]) -> None:
    """Checks the identities of Table 3: each request needs one block or more, and each of these is unpacked or
    found in memory."""
    assert requests == sum(spans.values()), (requests, spans)
    assert unpacked + from_memory == sum(blocks * count for blocks, count in spans.items()), (unpacked, from_memory, spans)



def check_own_rows() -> None:
    for requests, downloads, storage, memory, spans in FUNCTIONS.values():
        check_identities(requests, downloads + storage, memory, dict(enumerate(spans, 1)))
