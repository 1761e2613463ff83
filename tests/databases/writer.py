"""One of several writers of a SQLite database.

    writer.py DATABASE JOURNAL NUMBER SEED

Each transaction inserts rows that belong together and moves an amount between two accounts. After each commit that
returned, its number goes to standard output. Ends by being killed, or when the file system fails beneath it.
"""

import os
import random
import sqlite3
import sys

path, journal, number, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
db = sqlite3.connect(path, timeout=60, isolation_level=None)
db.execute(f"PRAGMA journal_mode={journal}")
db.execute("PRAGMA synchronous=FULL")
(done,) = db.execute("SELECT coalesce(max(txn), 0) FROM entry WHERE writer=?", (number,)).fetchone()
while True:
    done += 1
    rows = 1 + rng.randrange(8)
    db.execute("BEGIN IMMEDIATE")
    for row in range(rows):
        filler = bytes([done % 256]) * rng.randrange(3000)
        db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", (number, done, row, rows, filler))
    amount = rng.randrange(100)
    db.execute("UPDATE account SET balance = balance - ? WHERE id = ?", (amount, rng.randrange(20)))
    db.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (amount, rng.randrange(20)))
    if done > 40:
        db.execute("DELETE FROM entry WHERE writer = ? AND txn = ?", (number, done - 40))
    db.execute("COMMIT")
    os.write(1, f"{done}\n".encode())
