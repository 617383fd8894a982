"""Lists everything in a folder, one line for each path: type, owner, times and contents.

  tree.py FOLDER      of this machine
  tree.py nfs://…     by NFS, through libnfs

Two equal folders give the same lines, whatever they are read through. The lines have no size for folders and no
number for devices, because NFS and local file systems report them differently. Extended attributes are listed
only for folders of this machine, with --xattrs.
"""

import ctypes
import ctypes.util
import hashlib
import os
import stat
import sys

PIECE_BYTES = 1 << 20


class Local:
    def __init__(self, root, with_xattrs):
        self.root, self.with_xattrs = os.fsencode(root), with_xattrs

    def _path(self, path):
        return self.root + b"/" + path if path else self.root

    def status(self, path):
        found = os.lstat(self._path(path))
        times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        return found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_size, found.st_ino, times

    def names(self, path):
        return os.listdir(self._path(path))

    def target(self, path):
        return os.readlink(self._path(path))

    def pieces(self, path):
        with open(self._path(path), "rb", buffering=0) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def xattrs(self, path):
        if not self.with_xattrs:
            return {}
        names = os.listxattr(self._path(path), follow_symlinks=False)
        return {name: os.getxattr(self._path(path), name, follow_symlinks=False).hex() for name in sorted(names)}


class NfsUrl(ctypes.Structure):
    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


class NfsStatus(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "dev ino mode nlink uid gid rdev size blksize blocks atime mtime ctime atime_nsec mtime_nsec ctime_nsec used"
        ).split()
    ]


class NfsEntry(ctypes.Structure):
    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p)]


class Nfs:
    def __init__(self, url):
        self.lib = ctypes.CDLL(ctypes.util.find_library("nfs"))
        self.lib.nfs_init_context.restype = ctypes.c_void_p
        self.lib.nfs_parse_url_dir.restype = ctypes.POINTER(NfsUrl)
        self.lib.nfs_readdir.restype = ctypes.POINTER(NfsEntry)
        self.lib.nfs_get_error.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(self.lib.nfs_init_context())
        parsed = self.lib.nfs_parse_url_dir(self.context, os.fsencode(url))
        if not parsed:
            sys.exit(f"{url}: {self._said()}")
        self._ok(self.lib.nfs_mount(self.context, parsed.contents.server, parsed.contents.path), url)

    def _said(self):
        return os.fsdecode(self.lib.nfs_get_error(self.context) or b"?")

    def _ok(self, result, what):
        if result < 0:
            sys.exit(f"{what}: {self._said()}")
        return result

    def status(self, path):
        found = NfsStatus()
        self._ok(self.lib.nfs_lstat64(self.context, b"/" + path, ctypes.byref(found)), path)
        times = tuple(
            seconds * 10**9 + nanoseconds
            for seconds, nanoseconds in (
                (found.atime, found.atime_nsec), (found.mtime, found.mtime_nsec), (found.ctime, found.ctime_nsec),
            )
        )
        return found.mode, found.nlink, found.uid, found.gid, found.size, found.ino, times

    def names(self, path):
        folder = ctypes.c_void_p()
        self._ok(self.lib.nfs_opendir(self.context, b"/" + path, ctypes.byref(folder)), path)
        names = []
        while entry := self.lib.nfs_readdir(self.context, folder):
            names.append(entry.contents.name)
        self.lib.nfs_closedir(self.context, folder)
        return [name for name in names if name not in (b".", b"..")]

    def target(self, path):
        buffer = ctypes.create_string_buffer(4097)
        self._ok(self.lib.nfs_readlink(self.context, b"/" + path, buffer, 4096), path)
        return buffer.value

    def pieces(self, path):
        file = ctypes.c_void_p()
        self._ok(self.lib.nfs_open(self.context, b"/" + path, os.O_RDONLY, ctypes.byref(file)), path)
        buffer = ctypes.create_string_buffer(PIECE_BYTES)
        while count := self._ok(self.lib.nfs_read(self.context, file, ctypes.c_uint64(PIECE_BYTES), buffer), path):
            yield buffer.raw[:count]
        self.lib.nfs_close(self.context, file)

    def xattrs(self, path):
        return {}


def tell(tree, path, first_names):
    mode, links, uid, gid, size, number, times = tree.status(path)
    words = [os.fsdecode(path) or "/", stat.filemode(mode), f"{uid}:{gid}", *(f"{time}" for time in times)]
    if stat.S_ISREG(mode):
        digest = hashlib.blake2b(digest_size=16)
        for piece in tree.pieces(path):
            digest.update(piece)
        same = first_names.setdefault(number, path) if links > 1 else path
        words += [f"links {links}", f"size {size}", digest.hexdigest(), "as " + os.fsdecode(same)]
    elif stat.S_ISLNK(mode):
        words += ["to " + os.fsdecode(tree.target(path))]
    for name, value in tree.xattrs(path).items():
        words += [f"{name}={value}"]
    line = "\t".join(words).encode("utf-8", "surrogateescape").replace(b"\n", b"\\n")
    sys.stdout.buffer.write(line + b"\n")
    if stat.S_ISDIR(mode):
        for name in sorted(tree.names(path)):
            tell(tree, path + b"/" + name if path else name, first_names)


def main():
    words = sys.argv[1:]
    with_xattrs = "--xattrs" in words
    (root,) = [word for word in words if not word.startswith("--")]
    tree = Nfs(root) if root.startswith("nfs://") else Local(root, with_xattrs)
    tell(tree, b"", {})


main()
