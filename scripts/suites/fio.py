"""fio: writes that are read back and compared, through each way of doing I/O."""

import time

from .programs import install_packages

CASES = {
    "sync-write": "--ioengine=sync --rw=write --bs=4k",
    "sync-randwrite": "--ioengine=sync --rw=randwrite --bs=4k",
    "sync-randwrite-odd": "--ioengine=sync --rw=randwrite --bs=3001",
    "sync-rw": "--ioengine=sync --rw=rw --bs=16k",
    "sync-randrw": "--ioengine=sync --rw=randrw --bs=64k",
    "sync-fsync": "--ioengine=sync --rw=randwrite --bs=16k --fsync=32",
    "sync-jobs": "--ioengine=sync --rw=randwrite --bs=8k --numjobs=4",
    "psync-write": "--ioengine=psync --rw=write --bs=1m",
    "psync-randwrite": "--ioengine=psync --rw=randwrite --bs=512",
    "psync-mixed-sizes": "--ioengine=psync --rw=randwrite --bsrange=512-128k --bs_unaligned=1",
    "psync-direct-write": "--ioengine=psync --rw=write --bs=64k --direct=1",
    "psync-direct-randwrite": "--ioengine=psync --rw=randwrite --bs=4k --direct=1",
    "psync-direct-randrw": "--ioengine=psync --rw=randrw --bs=16k --direct=1 --numjobs=2",
    "psync-fallocate": "--ioengine=psync --rw=randwrite --bs=32k --fallocate=keep",
    "psync-dsync": "--ioengine=psync --rw=randwrite --bs=64k --sync=dsync",
    "vsync-randwrite": "--ioengine=vsync --rw=randwrite --bs=8k --iodepth=8",
    "mmap-write": "--ioengine=mmap --rw=write --bs=4k",
    "mmap-randwrite": "--ioengine=mmap --rw=randwrite --bs=4k --fsync=64",
    "mmap-randrw": "--ioengine=mmap --rw=randrw --bs=16k",
    "libaio-randwrite": "--ioengine=libaio --rw=randwrite --bs=16k --iodepth=16",
    "libaio-direct-randwrite": "--ioengine=libaio --rw=randwrite --bs=4k --iodepth=16 --direct=1",
    "libaio-direct-randrw": "--ioengine=libaio --rw=randrw --bs=64k --iodepth=8 --direct=1 --numjobs=2",
    "io_uring-randwrite": "--ioengine=io_uring --rw=randwrite --bs=16k --iodepth=16",
    "io_uring-direct-randrw": "--ioengine=io_uring --rw=randrw --bs=4k --iodepth=16 --direct=1",
}


def prepare(options):
    install_packages({"fio": "fio"})


def run(place, tally, options):
    for name, options in CASES.items():
        started = time.monotonic()
        with place.scratch("fio") as scratch:
            command = ["fio", f"--name={name}", f"--directory={scratch}", "--size=8m", *options.split()]
            command += ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--randseed=1", "--allrandrepeat=1"]
            code, log = place.run("fio", name, command, 180)
        tally.program(name, started, code, log)
