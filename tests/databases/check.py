"""Makes the database of `writer.py`, or checks it and prints the last transaction of each writer.

    check.py make DATABASE JOURNAL
    check.py check DATABASE
"""

import sqlite3
import sys

db = sqlite3.connect(sys.argv[2], timeout=60, isolation_level=None)
if sys.argv[1] == "make":
    (mode,) = db.execute(f"PRAGMA journal_mode={sys.argv[3]}").fetchone()
    assert mode == sys.argv[3], mode
    db.execute("PRAGMA synchronous=FULL")
    db.executescript("""
        CREATE TABLE entry (writer INT, txn INT, part INT, parts INT, filler BLOB, PRIMARY KEY (writer, txn, part));
        CREATE INDEX by_length ON entry (length(filler));
        CREATE TABLE account (id INTEGER PRIMARY KEY, balance INT);
    """)
    db.executemany("INSERT INTO account VALUES (?, 1000)", [(number,) for number in range(20)])
else:
    faults = db.execute("PRAGMA integrity_check").fetchall()
    assert faults == [("ok",)], faults
    halves = db.execute("SELECT writer, txn FROM entry GROUP BY writer, txn HAVING count(*) <> max(parts)").fetchall()
    assert halves == [], f"half transactions: {halves}"
    (total,) = db.execute("SELECT sum(balance) FROM account").fetchone()
    assert total == 20_000, total
    for writer, last, kept in db.execute("SELECT writer, max(txn), count(DISTINCT txn) FROM entry GROUP BY writer"):
        assert kept == min(last, 40), (writer, last, kept)
        print(writer, last)
