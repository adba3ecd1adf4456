//! A forced promotion, the old primary back: what it set aside is looked at, and put back.

use super::common::Server;
use super::helpers::*;
use super::{canon, text};

const TABLES: &str = "
    CREATE TABLE parents (id int PRIMARY KEY, name text UNIQUE);
    CREATE TABLE children (id int PRIMARY KEY, parent int NOT NULL REFERENCES parents ON DELETE CASCADE, note text);
    CREATE TABLE kinds (id int PRIMARY KEY, a bool, b bytea, c numeric(10,2), d timestamptz, e jsonb, f int[], g char(5),
                        h float8, i interval, j uuid, k date, l varchar(9));
    CREATE TABLE numbered (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
    CREATE TABLE keyless (v int);
    INSERT INTO parents VALUES (1, 'a'), (2, 'b'), (5, 'e'), (6, 'f');
    INSERT INTO children VALUES (1, 1, 'goes with its parent'), (2, 2, NULL), (6, 6, 'goes, too');
    INSERT INTO kinds (id, a, l) VALUES (1, true, 'old');
    CREATE ROLE clerk LOGIN;
    GRANT SELECT, INSERT, UPDATE, DELETE ON parents, children, kinds, numbered, moves TO clerk;";

/// Commits that no conflict hinders.
const LOST: [&str; 9] = [
    "INSERT INTO moves (sum) VALUES (1), (2)",
    "UPDATE accounts SET balance = balance + 1 WHERE id = 1",
    "UPDATE accounts SET balance = balance + 1 WHERE id <= 2",
    "DELETE FROM accounts WHERE id = 7",
    "BEGIN; INSERT INTO parents VALUES (9, 'nine'); INSERT INTO children VALUES (9, 9, 'it''s new'); COMMIT",
    // In the log the parent goes before its child, and the name comes to its second owner before it leaves the first.
    "DELETE FROM parents WHERE id = 1",
    "BEGIN; DELETE FROM parents WHERE id = 5; INSERT INTO parents VALUES (4, 'e'); COMMIT",
    "BEGIN; INSERT INTO kinds VALUES (2, false, '\\x00ff', 1.50, '2026-11-23 06:00:00+02', '{\"a\": [1, \"it''s\"]}', '{1,NULL,3}', 'ab', \
     0.1, '1 mon 2 days 03:00:00', '6b2b7b3e-5e4b-4d5e-9a3c-0123456789ab', '2026-11-23', ''); \
     UPDATE kinds SET a = NULL, l = 'new' WHERE id = 1; COMMIT",
    "INSERT INTO numbered (v) VALUES ('x')",
];

/// Commits that conflict, or cannot be put back.
const DISPUTED: [&str; 5] = [
    "UPDATE accounts SET balance = 5 WHERE id IN (20, 21)",
    "INSERT INTO accounts VALUES (60, 1, 1)",
    "INSERT INTO keyless VALUES (1)",
    "CREATE TABLE made_later (id int PRIMARY KEY)",
    "DELETE FROM parents WHERE id = 6",
];

async fn all_of(c: &tokio_postgres::Client) -> Vec<Vec<Vec<Option<String>>>> {
    let mut all = Vec::new();
    for t in [
        "accounts", "moves", "parents", "children", "kinds", "numbered", "keyless",
    ] {
        all.push(rows(c, &format!("SELECT * FROM {t} ORDER BY 1")).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_set_aside_is_put_back_and_only_onto_what_it_followed() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let mut r = replica(&p, "heir").await;
    let c = p.connect().await;
    bank(&c).await;
    c.batch_execute(TABLES).await.expect("tables");
    assert_equal(&c, &r).await;
    on_disk(&c, "heir").await;
    r.kill();
    for sql in LOST {
        c.batch_execute(sql).await.expect(sql);
    }
    let mut wanted = all_of(&c).await;
    for sql in DISPUTED {
        c.batch_execute(sql).await.expect(sql);
    }
    p.kill();
    r.launch();
    r.ready().await;
    promote(&r, &["--force", "--old-primary-is-down"]);
    // The new primary goes its own way with some of the rows.
    let w = r.connect().await;
    for sql in [
        "UPDATE accounts SET branch = 77 WHERE id = 20",
        "INSERT INTO accounts VALUES (60, 2, 2)",
        "INSERT INTO children VALUES (66, 6, 'of the new primary')",
    ] {
        rows(&w, sql).await;
    }
    p.set_env(&[
        ("CANON_REPLICA_OF", &format!("{}:{}", r.host, r.port)),
        ("CANON_NODE_NAME", "old"),
    ]);
    p.launch();
    p.ready().await;
    assert_equal(&w, &p).await;

    // The node runs meanwhile.
    let data = p.data_dir();
    let data = text(&data);
    let (fine, list) = canon(&["set-aside", "list", "--data", data]);
    assert!(fine && list.contains("yes"), "{list}");
    assert_eq!(list.lines().count(), 2, "{list}");
    let (fine, shown) = canon(&["set-aside", "show", "--data", data]);
    for wanted in [
        "group 1 of",
        "update public.accounts (id = '1'): balance: '1000' to '1001'",
        "delete public.accounts (id = '7'): was id = '7', branch",
        "insert public.children (id = '9'): id = '9', parent = '9', note = 'it's new'",
        "table public.made_later was made (never put back)",
        "sequence public.moves_id_seq was drawn up to",
    ] {
        assert!(fine && shown.contains(wanted), "{wanted}:\n{shown}");
    }

    // A dry run changes nothing, nor does one that finds conflicts.
    let before = all_of(&w).await;
    let server = format!("{}:{}", r.host, r.port);
    let apply = |more: &[&str]| {
        let words = ["set-aside", "apply", "--data", data, "--server", &server];
        canon(&[&words[..], more].concat())
    };
    for more in [&[][..], &["--yes"]] {
        let (fine, said) = apply(more);
        assert!(!fine && said.contains("4 conflict"), "{said}");
        assert!(
            said.contains("9 commits of 15 rows would be put back"),
            "{said}"
        );
        for why in [
            "the row has changed since the histories parted: it is now id = '20', branch = '77'",
            "the row has changed since the histories parted: it is now id = '60', branch = '2'",
            "the table has no primary key",
            "rows that refer to it would be changed with it",
        ] {
            assert!(said.contains(why), "{why}:\n{said}");
        }
        assert_eq!(all_of(&w).await, before);
    }
    // An ordinary role has its own rights and no others.
    let as_clerk = format!("host={} port={} user=clerk", r.host, r.port);
    let words = [
        "set-aside",
        "apply",
        "--data",
        data,
        "--server",
        &as_clerk,
        "--yes",
    ];
    let (fine, said) = canon(&words);
    assert!(
        !fine && said.contains("permission denied for table accounts (42501)"),
        "{said}"
    );
    assert_eq!(all_of(&w).await, before);
    let (fine, said) = canon(&[&words[..], &["--skip-conflicts"]].concat());
    assert!(
        fine && said.contains("6 commits of 11 rows were put back"),
        "{said}"
    );

    // The rest, without those that conflict.
    let (fine, said) = apply(&["--yes", "--skip-conflicts"]);
    assert!(
        fine && said.contains("3 commits of 4 rows were put back; 6 are there already"),
        "{said}"
    );
    let after = all_of(&w).await;
    for (n, t) in wanted[0]
        .iter_mut()
        .enumerate()
        .filter(|(_, t)| t[0].as_deref() == Some("20"))
    {
        t[1] = Some("77".into());
        assert!(n > 0);
    }
    wanted[0].push(["60", "2", "2"].map(|v| Some(v.to_owned())).to_vec());
    wanted[3].push(
        ["66", "6", "of the new primary"]
            .map(|v| Some(v.to_owned()))
            .to_vec(),
    );
    assert_eq!(after, wanted);
    // Again: nothing changes.
    let at = one(&w, "SELECT pg_current_wal_flush_lsn()").await;
    let (fine, said) = apply(&["--yes", "--skip-conflicts"]);
    assert!(
        fine && said.contains("0 commits of 0 rows were put back; 9 are there already"),
        "{said}"
    );
    assert_eq!(all_of(&w).await, after);
    assert_eq!(
        one(&w, "SELECT pg_current_wal_flush_lsn()").await,
        at,
        "nothing was committed"
    );

    // Where the rows that were set aside are wanted all the same.
    let (fine, said) = apply(&["--take", "nowhere"]);
    assert!(!fine && said.contains("no row of such a table"), "{said}");
    let (fine, said) = apply(&["--yes", "--take", "accounts"]);
    assert!(!fine && said.contains("2 conflict"), "{said}");
    let (fine, said) = apply(&["--yes", "--take", "public.accounts", "--skip-conflicts"]);
    assert!(
        fine && said.contains("2 commits of 3 rows were put back"),
        "{said}"
    );
    let found = rows(
        &w,
        "SELECT id, balance FROM accounts WHERE id IN (20, 21, 60) ORDER BY 1",
    )
    .await;
    let found: Vec<_> = found
        .iter()
        .map(|r| r[1].as_deref().unwrap_or(""))
        .collect();
    assert_eq!(found, ["5", "5", "1"]);
    assert_equal(&w, &p).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_checkpoint_still_holds_is_a_conflict_and_can_be_taken() {
    if skip() {
        return;
    }
    let small = [
        ("CANON_SEGMENT_BYTES", "1MB"),
        ("CANON_WAL_KEEP_BYTES", "1MB"),
    ];
    let mut p = Server::start_with(&small).await;
    let mut r = replica(&p, "heir").await;
    let c = p.connect().await;
    bank(&c).await;
    rows(&c, "CREATE TABLE bulk (id int PRIMARY KEY, x text)").await;
    assert_equal(&c, &r).await;
    on_disk(&c, "heir").await;
    r.kill();
    for sql in [
        "UPDATE accounts SET balance = 7 WHERE id = 3",
        "INSERT INTO bulk SELECT n, repeat('x', 100000) FROM generate_series(1, 15) n",
        "INSERT INTO bulk SELECT n, repeat('x', 100000) FROM generate_series(16, 30) n",
        "INSERT INTO bulk SELECT n, repeat('x', 100000) FROM generate_series(31, 45) n",
        "CHECKPOINT",
        "UPDATE accounts SET balance = 8 WHERE id = 3",
    ] {
        c.batch_execute(sql).await.expect(sql);
    }
    p.kill();
    r.launch();
    r.ready().await;
    promote(&r, &["--force", "--old-primary-is-down"]);
    let w = r.connect().await;
    p.set_env(&[
        ("CANON_REPLICA_OF", &format!("{}:{}", r.host, r.port)),
        ("CANON_NODE_NAME", "old"),
        small[0],
        small[1],
    ]);
    p.launch();
    p.ready().await;
    assert_equal(&w, &p).await;
    let data = p.data_dir();
    let server = format!("{}:{}", r.host, r.port);
    let words = [
        "set-aside",
        "apply",
        "--data",
        text(&data),
        "--server",
        &server,
        "--yes",
    ];
    let (fine, list) = canon(&["set-aside", "list", "--data", text(&data)]);
    assert!(fine && list.contains("in part"), "{list}");
    let (fine, said) = canon(&words);
    assert!(
        !fine && said.contains("it is not known how the row stood before"),
        "{said}"
    );
    assert_eq!(one(&w, "SELECT count(*) FROM bulk").await, "0");
    let (fine, said) = canon(&[&words[..], &["--take", "accounts", "--take", "bulk"]].concat());
    assert!(fine && said.contains("; 0 conflict."), "{said}");
    assert_eq!(
        one(&w, "SELECT count(*), sum(length(x)) FROM bulk").await,
        "45"
    );
    assert_eq!(
        one(&w, "SELECT balance FROM accounts WHERE id = 3").await,
        "8"
    );
}
