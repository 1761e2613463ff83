# Changes configuration files through open files and mappings, which must change nothing.
import mmap, os, sys
good, evil = b"[core]\n\tbare = false\n", b"[core]\n\tpager = e\n#"
evil = evil.ljust(len(good), b"\n")
for config in sys.argv[1:]:
    fd = os.open(config + ".lock", os.O_RDWR | os.O_CREAT)
    os.write(fd, good)
    shared = mmap.mmap(fd, len(good))
    os.rename(config + ".lock", config)
    shared[:] = evil
    assert open(config, "rb").read() == good, config
    os.pwrite(fd, evil, 0)
    shared.flush()
    assert open(config, "rb").read() == good, config
    # The configuration itself.
    fd = os.open(config, os.O_RDWR)
    shared = mmap.mmap(fd, len(good))
    shared[:] = evil
    assert open(config, "rb").read() == good, config
    try:
        shared.flush()
    except OSError:
        pass
    assert open(config, "rb").read() == good, config
shared = os.path.dirname(sys.argv[1]) + "/tine/config"
before = open(shared, "rb").read()
fd = os.open(shared, os.O_RDWR)
m = mmap.mmap(fd, len(before))
m[:] = b"#" * len(before)
assert open(shared, "rb").read() == before
# What becomes a git directory with a file that is mapped.
os.makedirs("late/refs")
fd = os.open("late/config", os.O_RDWR | os.O_CREAT)
os.write(fd, good)
os.link("late/config", "late/alias")
m = mmap.mmap(fd, len(good))
os.mkdir("late/objects")
m[:] = evil
m.flush()
open("late/alias", "wb").write(evil)
assert open("late/config", "rb").read() == good
