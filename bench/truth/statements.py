"""Statements that hold up a group or a node for seconds: DDL, and large changes of rows."""

from collections.abc import Iterator
from contextlib import contextmanager

from harness.galera import DEMO, Node

_SECONDS = 120.0
_TABLES = {
    "big": """
        CREATE OR REPLACE TABLE big (id INT PRIMARY KEY, k INT, pad CHAR(200), words TEXT);
        INSERT INTO big SELECT seq, seq, MD5(seq), SHA2(seq, 512) FROM seq_1_to_400000
    """,
    "keyless": """
        CREATE OR REPLACE TABLE keyless (n INT, pad CHAR(100));
        INSERT INTO keyless SELECT seq, MD5(seq) FROM seq_1_to_15000
    """,
    "huge": """
        CREATE OR REPLACE TABLE huge (n INT);
        INSERT INTO huge SELECT seq FROM seq_1_to_2000000
    """,
    "wide": """
        CREATE OR REPLACE TABLE wide (n INT, pad TEXT);
        INSERT INTO wide SELECT seq, REPEAT('x', 4000) FROM seq_1_to_20000
    """,
    "parent": """
        DROP TABLE IF EXISTS child, parent;
        CREATE TABLE parent (id INT PRIMARY KEY);
        CREATE TABLE child (id INT PRIMARY KEY, parent INT, pad CHAR(200), FOREIGN KEY (parent)
            REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE);
        INSERT INTO parent SELECT seq FROM seq_1_to_4000;
        INSERT INTO child SELECT seq, 1 + seq % 4000, MD5(seq) FROM seq_1_to_300000
    """,
    "files": """
        SET GLOBAL wsrep_mode='REPLICATE_MYISAM';
        CREATE OR REPLACE TABLE files (n INT) ENGINE=MyISAM;
        INSERT INTO files SELECT seq FROM seq_1_to_80
    """,
    "filled": """
        CREATE OR REPLACE TABLE filled (id INT PRIMARY KEY AUTO_INCREMENT, pad TEXT)
    """,
}
"""What makes the tables that the statements name."""

STATEMENTS = {
    "ALTER, copy": "ALTER TABLE big FORCE, ALGORITHM=COPY",
    "ALTER, in place": "ALTER TABLE big FORCE, ALGORITHM=INPLACE",
    "ALTER, instant": "ALTER TABLE big ADD COLUMN c INT, ALGORITHM=INSTANT",
    "indexes": """
        ALTER TABLE big ADD INDEX i (pad, k);
        CREATE INDEX j ON big (k);
        ALTER TABLE big DROP INDEX i
    """,
    "FULLTEXT index": "ALTER TABLE big ADD FULLTEXT f (words)",
    "partitions": """
        ALTER TABLE big PARTITION BY HASH (id) PARTITIONS 16;
        ALTER TABLE big REMOVE PARTITIONING
    """,
    "OPTIMIZE, ANALYZE": "OPTIMIZE TABLE big; ANALYZE TABLE big PERSISTENT FOR ALL",
    "CHECK TABLE": "CHECK TABLE big EXTENDED",
    "TRUNCATE, DROP": """
        CREATE OR REPLACE TABLE second LIKE big;
        INSERT INTO second SELECT * FROM big;
        TRUNCATE TABLE second;
        DROP TABLE second, big
    """,
    "CREATE TABLE, SELECT": "CREATE OR REPLACE TABLE copied SELECT * FROM big",
    "RSU": "SET SESSION wsrep_OSU_method=RSU; ALTER TABLE big FORCE, ALGORITHM=COPY",
    "UPDATE, no key": "UPDATE keyless SET pad='' WHERE n % 12 = 0",
    "DELETE, no key": "DELETE FROM keyless WHERE n % 12 = 0",
    "UPDATE of few rows, no key": "UPDATE huge SET n=0 WHERE n > 1999997",
    "UPDATE of wide rows, no key": "UPDATE wide SET pad='' WHERE n % 100 = 0",
    "INSERT of wide rows": "INSERT INTO filled (pad) SELECT REPEAT('x', 8000) FROM seq_1_to_40000",
    "UPDATE of MyISAM in total order": "UPDATE files SET n=n+SLEEP(0.1)",
    "UPDATE, many rows": "UPDATE big SET k=k+1",
    "DELETE, many rows": "DELETE FROM big",
    "FK cascade": """
        UPDATE parent SET id=id+4000 ORDER BY id DESC;
        DELETE FROM parent
    """,
    "FK cascade from one row": """
        UPDATE child SET parent=1;
        DELETE FROM parent
    """,
    "LOAD DATA": """
        CREATE OR REPLACE TABLE loaded LIKE big;
        SELECT * INTO OUTFILE 'loaded.txt' FROM big;
        LOAD DATA INFILE 'loaded.txt' INTO TABLE loaded
    """,
    "large transaction": "INSERT INTO filled (pad) SELECT REPEAT('x', 1000) FROM seq_1_to_200000",
    "streaming replication": """
        SET SESSION wsrep_trx_fragment_unit='rows', wsrep_trx_fragment_size=500;
        INSERT INTO filled (pad) SELECT REPEAT('x', 500) FROM seq_1_to_200000
    """,
    "streaming replication, rolled back": """
        SET SESSION wsrep_trx_fragment_unit='rows', wsrep_trx_fragment_size=500;
        BEGIN;
        INSERT INTO filled (pad) SELECT REPEAT('x', 100) FROM seq_1_to_200000;
        ROLLBACK
    """,
}


@contextmanager
def running(node: Node, kind: str) -> Iterator[None]:
    """Run the statements of this kind on a node, then the block."""
    _run(node, STATEMENTS[kind])
    yield


def prepare(node: Node, kind: str) -> None:
    """Make the tables for the statements of this kind, and room in the binary log."""
    _run(node, "FLUSH BINARY LOGS; PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
    for table, statements in _TABLES.items():
        if table in STATEMENTS[kind]:
            _run(node, statements)
    (node.data / DEMO / "loaded.txt").unlink(missing_ok=True)


def _run(node: Node, statements: str) -> None:
    with node.connect(seconds=_SECONDS) as session:
        session.select_db(DEMO)
        for statement in statements.split(";"):
            session.query(statement)
