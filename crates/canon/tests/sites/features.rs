//! The same scripts at a primary, at a replica that forwards its writes, and at a site: each answers as PostgreSQL 15 does, or with the refusal that
//! the script names.
//!
//! | a script runs | |
//! |---|---|
//! | at | the primary, the replica, the site; and at the site with `canon.site_read_committed = local` |
//! | at each level | as the level of its blocks and of its statements alone |
//! | by | the simple protocol, and at REPEATABLE READ the extended one, whose answers are compared with the primary's |
//! | on | its tables, and where it has a place for that, on the same tables with a split column |
//!
//! Each run has a schema of its own. In the end all nodes hold equal rows.
//!
//! A script that moves to the primary after a change of rows has the marker `moves`. With `local` such a block is refused with 0A000 at READ COMMITTED.
//!
//! With `CANON_TEST_URL` the scripts run at a PostgreSQL alone: that is how their answers were made.
//!
//! Left out on purpose: what several sessions of several sites do to each other (`sites.rs`, `histories`), what becomes of sessions when a node is lost
//! (`kills`, `coordination.rs`).

#[path = "features/scripts.rs"]
mod scripts;

use super::common::{self, Server, on_postgres, sqlstate};
use super::helpers::{caught_up, one, replica, rows};
use super::{ready, site};
use scripts::{SCRIPTS, SPLIT_REFUSED, Script, Want};
use std::error::Error;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// A value as it came, of any type.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// What a statement has answered: its rows as `a|b c|d`, else the number of its tag; or the SQLSTATE.
async fn simple(c: &Client, sql: &str) -> Result<String, String> {
    let mut found = Vec::new();
    let mut tag = 0;
    for m in c.simple_query(sql).await.map_err(|e| sqlstate(&e))? {
        match m {
            SimpleQueryMessage::Row(r) => {
                let values = (0..r.len()).map(|i| r.get(i).unwrap_or("NULL"));
                found.push(values.collect::<Vec<_>>().join("|"));
            }
            SimpleQueryMessage::CommandComplete(n) => tag = n,
            _ => {}
        }
    }
    Ok(match found.is_empty() {
        true => tag.to_string(),
        false => found.join(" "),
    })
}

/// The same by the extended protocol, with values as they came.
async fn extended(c: &Client, sql: &str) -> Result<String, String> {
    let prepared = c.prepare(sql).await.map_err(|e| sqlstate(&e))?;
    if prepared.columns().is_empty() {
        let n = c.execute(&prepared, &[]).await;
        return n.map(|n| n.to_string()).map_err(|e| sqlstate(&e));
    }
    let found = c.query(&prepared, &[]).await.map_err(|e| sqlstate(&e))?;
    let value = |v: Option<Raw>| v.map_or_else(|| "NULL".to_owned(), |v| format!("{:?}", v.0));
    let row = |r: &tokio_postgres::Row| {
        let values = (0..r.len()).map(|i| value(r.get(i)));
        values.collect::<Vec<_>>().join("|")
    };
    Ok(found.iter().map(row).collect::<Vec<_>>().join(" "))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Primary,
    Replica,
    Site,
    /// A site that runs blocks at READ COMMITTED itself.
    Local,
}

/// How a script runs.
#[derive(Clone, Copy, Debug)]
struct Mode {
    place: Place,
    level: &'static str,
    split: bool,
    by_simple: bool,
}

/// What a run comes to.
enum Outcome {
    /// What each step has answered.
    Answers(Vec<Result<String, String>>),
    /// It would have moved, from where it cannot.
    Refused,
    Wrong(String),
}

/// Runs a script in a schema of its own.
async fn run(script: &Script, mode: Mode, c: &Client, other: &Client) -> Outcome {
    let name = format!(
        "s_{}_{:?}_{}_{}_{}",
        script.name,
        mode.place,
        &mode.level[..6].replace(' ', "_"),
        mode.split,
        mode.by_simple
    )
    .to_lowercase();
    rows(
        c,
        &format!("CREATE SCHEMA {name}; SET search_path = {name}; SET default_transaction_isolation = '{}'", mode.level),
    )
    .await;
    let shown = format!("SET search_path = {name}; SET lock_timeout = '20s'");
    rows(other, &shown).await;
    let split = if mode.split {
        " WITH (split = 'n')"
    } else {
        ""
    };
    let begin = format!("BEGIN ISOLATION LEVEL {}", mode.level);
    let mut answers = Vec::new();
    for step in script.steps {
        let sql = step
            .sql
            .replace("{split}", split)
            .replace("{begin}", &begin);
        let at = if step.by_other { other } else { c };
        let found = match mode.by_simple || step.by_other {
            true => simple(at, &sql).await,
            false => extended(at, &sql).await,
        };
        if mode.place == Place::Local
            && mode.level == LEVELS[0]
            && script.moves
            && found == Err("0A000".into())
        {
            rows(c, "ROLLBACK").await;
            rows(c, "DEALLOCATE ALL").await;
            return Outcome::Refused;
        }
        let want = step.want;
        if !is_as(want, &found, mode.by_simple || step.by_other) {
            for sql in [
                "ROLLBACK",
                "SELECT pg_advisory_unlock_all()",
                "DISCARD TEMP",
            ] {
                rows(c, sql).await;
                rows(other, sql).await;
            }
            let what = format!("{}: {mode:?}: {sql}\n{found:?}, not {want:?}", script.name);
            return Outcome::Wrong(what);
        }
        answers.push(found);
    }
    Outcome::Answers(answers)
}

/// Whether an answer is the one that the table says. By the extended protocol only its SQLSTATE is known.
fn is_as(want: Want, found: &Result<String, String>, by_simple: bool) -> bool {
    match (want, found) {
        (Want::Any, Ok(_)) => true,
        (Want::Is(w), Ok(f)) => !by_simple || w == f,
        (Want::Code(w), Err(f)) => w == f,
        _ => false,
    }
}

/// The rows of all lasting tables, as text.
async fn all_rows(c: &Client) -> Vec<String> {
    let tables = "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE relkind = 'r' AND c.oid >= 16384 AND relpersistence <> 't' ORDER BY 1";
    let mut all = Vec::new();
    for t in rows(c, tables).await {
        let t = t[0].clone().expect("a name");
        for r in rows(c, &format!("SELECT x::text FROM {t} x ORDER BY 1")).await {
            all.push(format!("{t}: {:?}", r[0]));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn features_are_the_same_at_a_primary_a_replica_and_a_site() {
    let primary = Server::start().await;
    let other = primary.connect().await;
    let mut servers = Vec::new();
    if !on_postgres() {
        servers.push((Place::Replica, replica(&primary, "replica").await));
        servers.push((Place::Site, site(&primary, "site").await));
        let s: Vec<_> = servers.iter().map(|s| &s.1).collect();
        ready(&other, &s).await;
    }
    let mut places = vec![(Place::Primary, primary.connect().await)];
    for (place, s) in &servers {
        places.push((*place, s.connect().await));
    }
    if let Some((_, s)) = servers.last() {
        let c = s.connect().await;
        rows(&c, "SET canon.site_read_committed = local").await;
        places.push((Place::Local, c));
    }
    let (mut refused, mut wrong) = (Vec::new(), Vec::new());
    for script in SCRIPTS {
        let splits: &[bool] = match script.steps.iter().any(|s| s.sql.contains("{split}")) {
            true if !on_postgres() => &[false, true],
            _ => &[false],
        };
        for (level, split) in LEVELS
            .iter()
            .flat_map(|l| splits.iter().map(move |s| (*l, *s)))
        {
            let protocols: &[bool] = match level {
                "REPEATABLE READ" => &[true, false],
                _ => &[true],
            };
            for &by_simple in protocols {
                let mut first = None;
                for (place, c) in &places {
                    if *place == Place::Local && level != LEVELS[0] {
                        continue;
                    }
                    let mode = Mode {
                        place: *place,
                        level,
                        split,
                        by_simple,
                    };
                    match run(script, mode, c, &other).await {
                        Outcome::Refused => refused.push(script.name),
                        Outcome::Wrong(what) => wrong.push(what),
                        Outcome::Answers(found) => {
                            let first = first.get_or_insert_with(|| found.clone());
                            if *first != found {
                                let what =
                                    format!("{}: {mode:?}: not as at the primary", script.name);
                                wrong.push(what);
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if on_postgres() {
        return;
    }
    refused.dedup();
    let moves: Vec<_> = SCRIPTS.iter().filter(|s| s.moves).map(|s| s.name).collect();
    assert_eq!(refused, moves, "refused where READ COMMITTED is local");
    let here = all_rows(&other).await;
    assert!(here.len() > 500, "{} rows", here.len());
    for (place, s) in &servers {
        let there = all_rows(&caught_up(&other, s).await).await;
        let differs = here.iter().zip(&there).find(|(a, b)| a != b);
        assert_eq!(differs, None, "{place:?}");
        assert_eq!(here.len(), there.len(), "{place:?}");
    }
}

/// What a table with a split column cannot have is refused alike, wherever it is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn what_split_columns_exclude_is_refused_at_each_node() {
    if on_postgres() {
        return;
    }
    let primary = Server::start().await;
    let (r, s) = (
        replica(&primary, "replica").await,
        site(&primary, "site").await,
    );
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE t (id int PRIMARY KEY, n bigint NOT NULL, name text) WITH (split = 'n'); INSERT INTO t VALUES (1, 5, 'a')",
    )
    .await;
    for at in [&primary, &r, &s] {
        let c = at.connect().await;
        for sql in SPLIT_REFUSED {
            let alone = simple(&c, sql).await;
            assert_eq!(alone, Err("0A000".into()), "{sql}");
            for level in LEVELS {
                rows(&c, &format!("BEGIN ISOLATION LEVEL {level}")).await;
                rows(&c, "UPDATE t SET name = name || 'b' WHERE id = 1").await;
                let after = simple(&c, sql).await;
                assert_eq!(after, Err("0A000".into()), "{level}: {sql}");
                rows(&c, "ROLLBACK").await;
            }
        }
        assert_eq!(one(&c, "SELECT t::text FROM t").await, "(1,5,a)");
    }
}

/// A notification of a block that has changed rows at the site is heard at each node, once, and the row is there by then.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_at_a_site_is_heard_at_each_node() {
    if on_postgres() {
        return;
    }
    let primary = Server::start().await;
    let (r, s) = (
        replica(&primary, "replica").await,
        site(&primary, "site").await,
    );
    let p = primary.connect().await;
    rows(&p, "CREATE TABLE t (id int PRIMARY KEY)").await;
    ready(&p, &[&r, &s]).await;
    let mut ears = Vec::new();
    for at in [&primary, &r, &s] {
        let (client, mut connection) = at
            .config()
            .connect(tokio_postgres::NoTls)
            .await
            .expect("connects");
        let (said, heard) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(tokio_postgres::AsyncMessage::Notification(n))) => _ = said.send(n),
                    Some(Ok(_)) => {}
                    _ => return,
                }
            }
        });
        rows(&client, "LISTEN told").await;
        rows(&client, "SET canon.read_consistency = 'eventual'").await;
        ears.push((client, heard));
    }
    let c = s.connect().await;
    let mut id = 0;
    for level in LEVELS {
        for says in ["NOTIFY told, '{}'", "SELECT pg_notify('told', '{}')"] {
            for ends in ["COMMIT", "ROLLBACK"] {
                id += 1;
                rows(&c, &format!("BEGIN ISOLATION LEVEL {level}")).await;
                rows(&c, &format!("INSERT INTO t VALUES ({id})")).await;
                rows(&c, &says.replace("{}", &id.to_string())).await;
                rows(&c, ends).await;
                if ends == "ROLLBACK" {
                    continue;
                }
                for (client, heard) in &mut ears {
                    let n = tokio::time::timeout(common::PATIENCE, heard.recv()).await;
                    let n = n.expect("a notification").expect("the connection");
                    assert_eq!(n.payload(), id.to_string(), "{level}: {says}");
                    let there = format!("SELECT count(*) FROM t WHERE id = {id}");
                    assert_eq!(one(client, &there).await, "1", "{level}: {says}");
                }
            }
        }
    }
    // A listener in a block that has changed rows at the site listens from its commit on.
    let (listener, heard) = &mut ears[2];
    rows(listener, "UNLISTEN *").await;
    rows(listener, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    rows(listener, "INSERT INTO t VALUES (1000)").await;
    rows(listener, "LISTEN told").await;
    rows(&p, "NOTIFY told, 'before'").await;
    rows(listener, "COMMIT").await;
    rows(&p, "NOTIFY told, 'after'").await;
    let n = tokio::time::timeout(common::PATIENCE, heard.recv()).await;
    let n = n.expect("a notification").expect("the connection");
    assert_eq!(n.payload(), "after");
    assert_eq!(one(&p, "SELECT count(*) FROM t").await, "7");
}
