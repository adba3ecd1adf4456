//! What changes of the schema do to a transaction that is open at a site: it is refused for those of what it used, and for no others.

use super::common::Server;
use super::helpers::{one, refused, rows, skip};
use super::{ready, site, stays};

/// The transaction of each case runs as `clerk`, a member of `staff`. The transaction reads a view of `boss` and a column of `narrow`, and
/// writes `t`.
const SCHEMA: &str = "
    CREATE TABLE t (k int PRIMARY KEY); CREATE TABLE base (k int, extra int);
    CREATE TABLE far (k int); CREATE TABLE gone (k int); CREATE TABLE narrow (k int, secret int);
    CREATE ROLE clerk; CREATE ROLE staff; CREATE ROLE boss; CREATE ROLE loner;
    GRANT staff TO clerk; GRANT INSERT ON t TO staff; GRANT SELECT (k) ON narrow TO staff;
    GRANT SELECT ON base TO boss; GRANT CREATE ON SCHEMA public TO boss;
    SET ROLE boss; CREATE VIEW v AS SELECT k FROM base; GRANT SELECT ON v TO staff; RESET ROLE";

/// A change, whether it is of what the transaction used, and what undoes it as far as the next case needs.
const CASES: &[(&str, bool, &str)] = &[
    ("CREATE TABLE more (k int)", false, ""),
    ("CREATE INDEX ON far (k)", false, ""),
    ("GRANT SELECT ON far TO clerk", false, ""),
    ("GRANT SELECT (k) ON far TO clerk", false, ""),
    ("ALTER TABLE far ADD COLUMN w int", false, ""),
    ("DROP TABLE gone", false, ""),
    ("CREATE ROLE passer", false, ""),
    ("GRANT staff TO loner", false, ""),
    ("ALTER ROLE loner CREATEDB", false, ""),
    ("CREATE SCHEMA elsewhere", false, ""),
    ("COMMENT ON TABLE t IS 'used'", false, ""),
    (
        "REVOKE INSERT ON t FROM staff",
        true,
        "GRANT INSERT ON t TO staff",
    ),
    (
        "REVOKE SELECT (k) ON narrow FROM staff",
        true,
        "GRANT SELECT (k) ON narrow TO staff",
    ),
    (
        "REVOKE SELECT ON v FROM staff",
        true,
        "GRANT SELECT ON v TO staff",
    ),
    (
        "REVOKE SELECT ON base FROM boss",
        true,
        "GRANT SELECT ON base TO boss",
    ),
    ("REVOKE staff FROM clerk", true, "GRANT staff TO clerk"),
    (
        "ALTER ROLE clerk NOINHERIT",
        true,
        "ALTER ROLE clerk INHERIT",
    ),
    (
        "CREATE OR REPLACE VIEW v AS SELECT k + 1 AS k FROM base",
        true,
        "",
    ),
    ("ALTER TABLE base DROP COLUMN extra", true, ""),
    ("ALTER TABLE t ADD CHECK (k > 0)", true, ""),
    ("TRUNCATE base", true, ""),
    ("REVOKE CREATE ON SCHEMA public FROM boss", true, ""),
];

async fn run(server_env: &[(&str, &str)], cases: &[(&str, bool, &str)]) -> Vec<String> {
    let primary = Server::start_with(server_env).await;
    let p = primary.connect().await;
    rows(&p, SCHEMA).await;
    let here = site(&primary, "here").await;
    let c = stays(&here).await;
    let mut wrong = Vec::new();
    for (n, (change, used, undo)) in cases.iter().enumerate() {
        ready(&p, &[&here]).await;
        rows(&c, "SET ROLE clerk; BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        rows(&c, "SELECT count(*) FROM v").await;
        rows(&c, "SELECT count(k) FROM narrow").await;
        rows(&c, &format!("INSERT INTO t VALUES ({n} + 1)")).await;
        rows(&p, change).await;
        let ended = c.simple_query("COMMIT").await;
        if ended.is_err() != *used {
            wrong.push(format!("{change}: {ended:?}"));
        }
        if ended.is_err() {
            rows(&c, "ROLLBACK").await;
        }
        rows(&c, "RESET ROLE").await;
        rows(&p, undo).await;
    }
    if wrong.is_empty() {
        let committed = cases.iter().filter(|c| !c.1).count();
        assert_eq!(
            one(&p, "SELECT count(*) FROM t").await,
            committed.to_string()
        );
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_schema_refuses_what_used_it_and_no_other() {
    if skip() {
        return;
    }
    let wrong = run(&[], CASES).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A transaction that looks at the catalogs has used all of the schema.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_the_catalogs_uses_all_of_the_schema() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(&p, "CREATE TABLE t (k int PRIMARY KEY)").await;
    let here = site(&primary, "here").await;
    ready(&p, &[&here]).await;
    let c = stays(&here).await;
    rows(&c, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    let found = "INSERT INTO t SELECT count(*)::int FROM pg_class WHERE relname = 'more'";
    rows(&c, found).await;
    rows(&p, "CREATE TABLE more (k int)").await;
    assert_eq!(refused(&c, "COMMIT").await.0, "40001");
}

/// A primary that does not look for changes is found by the cases that it must refuse.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_old_rights() {
    if skip() {
        return;
    }
    let of_rights = |c: &&(&str, bool, &str)| c.0.starts_with("REVOKE INSERT");
    let cases: Vec<_> = CASES.iter().filter(of_rights).copied().collect();
    let wrong = run(&[("CANON_PLANTED", "site.old_rights")], &cases).await;
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
}
