//! Clients that exist, unchanged: psql, pgbench, sysbench and psycopg 3.
//!
//! The programs come from where `cargo xtask clients` found or put them (`CANON_PG_BIN`,
//! `CANON_SYSBENCH`, `CANON_PYTHON`), else from the `PATH` and the target directory's virtual
//! environment. A program that is not there is a failure, not a skip.

mod common;
#[path = "clients/dump.rs"]
mod dump;
#[path = "clients/programs.rs"]
mod programs;

use common::Server;
use programs::{pg_program, python, run};
use std::process::Command;

fn psql(server: &Server, script: &[&str]) -> Command {
    let mut command = Command::new(pg_program("psql"));
    command.args([
        "-X",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-P",
        "pager=off",
        &server.url(),
    ]);
    for line in script {
        command.args(["-c", line]);
    }
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_describes() {
    let server = Server::start().await;
    let schema = "CREATE TABLE parent (id int PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'x');
        CREATE TABLE child (id serial PRIMARY KEY, parent_id int REFERENCES parent ON DELETE CASCADE,
                            amount numeric(10,2) CHECK (amount > 0), at timestamptz, UNIQUE (parent_id, at));
        CREATE INDEX child_amount ON child (amount DESC);
        CREATE VIEW sums AS SELECT parent_id, sum(amount) AS total FROM child GROUP BY parent_id;
        CREATE SEQUENCE counter START 5";
    run(psql(&server, &[schema])).await;
    let shows = |script: &'static str, parts: &'static [&'static str]| {
        let command = psql(&server, &[script]);
        async move {
            let out = run(command).await;
            for part in parts {
                assert!(
                    out.contains(part),
                    "{script} does not show {part:?}:\n{out}"
                );
            }
        }
    };
    shows(
        "\\d",
        &[
            "parent",
            "child",
            "child_id_seq",
            "sums",
            "counter",
            "view",
            "sequence",
        ],
    )
    .await;
    shows("\\dt", &["child", "parent", "table"]).await;
    shows("\\dt+", &["child", "parent", "permanent"]).await;
    shows("\\dv", &["sums", "view"]).await;
    shows("\\ds", &["counter", "child_id_seq"]).await;
    shows(
        "\\di",
        &[
            "child_amount",
            "child_pkey",
            "parent_pkey",
            "child_parent_id_at_key",
        ],
    )
    .await;
    shows("\\d parent", &[
        "character varying(20)",
        "not null",
        "'x'::character varying",
        "\"parent_pkey\" PRIMARY KEY, btree (id)",
        "Referenced by:",
        "TABLE \"child\" CONSTRAINT \"child_parent_id_fkey\" FOREIGN KEY (parent_id) REFERENCES parent(id) ON DELETE CASCADE",
    ])
    .await;
    shows(
        "\\d child",
        &[
            "nextval('child_id_seq'::regclass)",
            "numeric(10,2)",
            "timestamp with time zone",
            "\"child_amount\" btree (amount DESC)",
            "\"child_parent_id_at_key\" UNIQUE CONSTRAINT, btree (parent_id, at)",
            "Check constraints:",
            "\"child_amount_check\" CHECK (amount > 0::numeric)",
            "Foreign-key constraints:",
        ],
    )
    .await;
    shows("\\d child_amount", &["amount", "btree"]).await;
    shows("\\d sums", &["parent_id", "total", "numeric"]).await;
    shows("\\d counter", &["bigint", "5"]).await;
    shows("\\du", &["List of roles", "Superuser"]).await;
    shows("\\dn", &["List of schemas", "public"]).await;
    shows("\\df", &["List of functions"]).await;
    shows("\\l", &["List of databases"]).await;
    shows("\\conninfo", &["You are connected to database"]).await;
    shows("\\d+ child", &["Storage", "amount"]).await;
    shows("\\dp child", &["Access privileges", "child"]).await;
    shows("\\sv sums", &["CREATE OR REPLACE VIEW public.sums AS"]).await;
    shows("SHOW server_version", &["15"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_copies_and_reports_errors() {
    let server = Server::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (input, output) = (dir.path().join("in.csv"), dir.path().join("out.txt"));
    std::fs::write(&input, "id,v\n1,plain\n2,\"with, comma\"\n3,\n4,\"\"\n").unwrap();
    let copy_in = format!(
        "\\copy t FROM '{}' WITH (FORMAT csv, HEADER)",
        input.display()
    );
    let copy_out = format!(
        "\\copy (SELECT * FROM t ORDER BY id) TO '{}'",
        output.display()
    );
    run(psql(
        &server,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            &copy_in,
            &copy_out,
        ],
    ))
    .await;
    let text = std::fs::read_to_string(&output).unwrap();
    assert_eq!(text, "1\tplain\n2\twith, comma\n3\t\\N\n4\t\n");
    let csv = run(psql(
        &server,
        &["COPY t TO STDOUT (FORMAT csv, HEADER, NULL 'nil')"],
    ))
    .await;
    assert_eq!(csv, "id,v\n1,plain\n2,\"with, comma\"\n3,nil\n4,\n");

    let mut failing = psql(
        &server,
        &[
            "\\set VERBOSITY verbose",
            "INSERT INTO t VALUES (1, 'again')",
        ],
    );
    let output = tokio::task::spawn_blocking(move || failing.output())
        .await
        .unwrap()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in ["23505", "t_pkey", "Key (id)=(1) already exists."] {
        assert!(err.contains(part), "no {part:?} in:\n{err}");
    }
    let out = run(psql(
        &server,
        &["\\timing off", "BEGIN; SELECT 1 AS one; COMMIT", "\\gset"],
    ))
    .await;
    assert!(out.contains("one"));
    let out = run(psql(&server, &["\\x on", "SELECT 1 AS a, NULL AS b"])).await;
    assert!(out.contains("-[ RECORD 1 ]"));
}

/// pgbench's own tables, and its built-in scripts in the three query modes.
/// A dump sets columns split before it makes the primary key that they need.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_split_columns_loads() {
    let server = Server::start().await;
    let schema =
        "CREATE TABLE stock (id int PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0), note text)
                      WITH (split = 'qty');
                  ALTER TABLE stock ALTER COLUMN qty SET (split_max = 8);
                  INSERT INTO stock SELECT g, g, 'n' || g FROM generate_series(1, 20) g";
    run(psql(&server, &[schema])).await;
    let mut dump = Command::new(pg_program("pg_dump"));
    dump.args(["--no-owner", &server.url()]);
    let text = run(dump).await;
    let (set, key) = (text.find("SET (split=on"), text.find("PRIMARY KEY"));
    assert!(set.is_some() && set < key, "{text}");
    let file = std::env::temp_dir().join(format!("canon-split-dump-{}.sql", std::process::id()));
    std::fs::write(&file, text).expect("a file for the dump");
    let mut load = psql(&server, &["DROP TABLE stock"]);
    load.arg("-f").arg(&file);
    run(load).await;
    std::fs::remove_file(file).expect("the dump's file");
    let show = "SELECT attname, attoptions FROM pg_attribute WHERE attrelid = 'stock'::regclass AND attoptions IS NOT NULL;
                EXPLAIN (COSTS OFF) UPDATE stock SET qty = qty - 1 WHERE id = 7 AND qty >= 1;
                SELECT sum(qty), count(note) FROM stock";
    let out = run(psql(&server, &["\\pset format unaligned", show])).await;
    for part in ["qty|{split=on,split_max=8}", "Delta: qty - 1", "210|20"] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    let sell = "UPDATE stock SET qty = qty - 8 WHERE id = 7";
    let mut refused = psql(&server, &[sell]);
    let refused = tokio::task::spawn_blocking(move || refused.output());
    let refused = refused.await.expect("the task ends").expect("psql runs");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("violates check constraint"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbench() {
    let server = Server::start().await;
    let url = server.url();
    let pgbench = |args: &[&str]| {
        let mut command = Command::new(pg_program("pgbench"));
        command.args(args).arg(&url);
        command
    };
    run(pgbench(&["-i", "-s", "1", "-q"])).await;
    let client = server.connect().await;
    let rows: i64 = client
        .query_one("SELECT count(*) FROM pgbench_accounts", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(rows, 100_000);
    let mut committed = 0;
    for mode in ["simple", "extended", "prepared"] {
        for script in ["tpcb-like", "simple-update", "select-only"] {
            let out = run(pgbench(&[
                "-n",
                "-b",
                script,
                "-M",
                mode,
                "-c",
                "4",
                "-j",
                "2",
                "-t",
                "40",
                "--max-tries=100",
            ]))
            .await;
            assert!(
                out.contains("number of transactions actually processed: 160/160"),
                "{out}"
            );
            assert!(out.contains("number of failed transactions: 0"), "{out}");
            committed += if script == "select-only" { 0 } else { 160 };
        }
    }
    let sums = "SELECT (SELECT count(*) FROM pgbench_history), \
                       (SELECT sum(abalance)::bigint FROM pgbench_accounts), \
                       (SELECT sum(delta)::bigint FROM pgbench_history)";
    let row = client.query_one(sums, &[]).await.expect("the sums");
    assert_eq!(
        row.get::<_, i64>(0),
        committed,
        "every transaction left its history"
    );
    assert_eq!(
        row.get::<_, i64>(1),
        row.get::<_, i64>(2),
        "accounts and history agree"
    );
    let sums = "SELECT (SELECT sum(tbalance)::bigint FROM pgbench_tellers), \
                       (SELECT sum(bbalance)::bigint FROM pgbench_branches)";
    let row = client.query_one(sums, &[]).await.expect("the sums");
    assert_eq!(
        row.get::<_, i64>(0),
        row.get::<_, i64>(1),
        "tellers and branches agree"
    );
    run(pgbench(&["-i", "-s", "1", "-q", "-I", "dtGvp"])).await;
    run(pgbench(&[
        "-i",
        "-s",
        "1",
        "-q",
        "--foreign-keys",
        "-I",
        "dtgpf",
    ]))
    .await;
}

/// sysbench's oltp_* tests: prepare, a short run, cleanup.
#[tokio::test(flavor = "multi_thread")]
async fn sysbench() {
    let server = Server::start().await;
    let program = std::env::var_os("CANON_SYSBENCH").unwrap_or("sysbench".into());
    let sysbench = |test: &str, verb: &str| {
        let mut command = Command::new(&program);
        command.args([
            test,
            "--db-driver=pgsql",
            &format!("--pgsql-host={}", server.host),
            &format!("--pgsql-port={}", server.port),
            &format!("--pgsql-user={}", server.user),
            &format!("--pgsql-db={}", server.database),
            "--tables=2",
            "--table-size=500",
            "--threads=4",
            "--events=80",
            "--time=60",
            verb,
        ]);
        command
    };
    run(sysbench("oltp_read_write", "prepare")).await;
    for test in [
        "oltp_point_select",
        "oltp_read_only",
        "oltp_read_write",
        "oltp_write_only",
        "oltp_update_index",
        "oltp_update_non_index",
        "oltp_insert",
        "oltp_delete",
        "select_random_points",
        "select_random_ranges",
    ] {
        let out = run(sysbench(test, "run")).await;
        assert!(out.contains("total number of events:"), "{test}:\n{out}");
    }
    run(sysbench("oltp_read_write", "cleanup")).await;
    let client = server.connect().await;
    let left = client.batch_execute("SELECT 1 FROM sbtest1").await;
    assert!(left.is_err(), "cleanup dropped the tables");
}

/// psycopg 3: types both ways, server-side cursors, COPY, pipelines, errors. See `psycopg_script.py`.
#[tokio::test(flavor = "multi_thread")]
async fn psycopg() {
    let server = Server::start().await;
    let mut command = Command::new(python());
    command
        .arg(common::tests_dir().join("psycopg_script.py"))
        .arg(server.url());
    let out = run(command).await;
    assert!(out.trim_end().ends_with("all done"), "{out}");
}
