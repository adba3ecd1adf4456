//! Golden scripts for isolation: one file per anomaly in `isolation/*.iso`, at every level.
//!
//! A script interleaves the statements of a few sessions. The runner sends them one after the
//! other, each over its session's own connection, and writes down what came back; a statement that
//! does not answer is *blocked*, and the line where it goes on shows what released it. The whole
//! schedule with its outcome stands in the file, per level, so that a reader sees what the level
//! does; properties stand beside it, so that a golden file that was updated carelessly still
//! cannot hide an anomaly.
//!
//! ```text
//! # what this anomaly is
//! setup                       statements, one a line, before the first session connects
//! steps                       sN: statement, {level} is the level under test
//! (among the steps) until: Q  goes on when the query answers true: what a worker does meanwhile is done
//! require NAME at LEVELS      the query on the next line answers true in the end
//! never at LEVELS: s2 -> 11   no step of s2 has this outcome
//! count N at LEVELS: OUTCOME  exactly N steps have this outcome
//! expect LEVEL                the transcript
//! expect LEVEL on postgres    PostgreSQL's, where it differs from ours
//! ```
//!
//! The expectation says what to wait for: that a statement answers, or that it answers or
//! `pg_stat_activity` shows that it waits for a lock. Only where nothing is expected a statement is
//! taken for blocked after a while. `UPDATE_GOLDEN=1` rewrites the transcripts (of the target that
//! runs: ours, or PostgreSQL's with `CANON_TEST_URL`). There a split column is a plain one: its options are left out, and
//! no worker is waited for.

mod common;

use common::{PATIENCE, Server, on_postgres, sqlstate, tests_dir, update_golden};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
/// How long a statement may take before it is taken for blocked when nothing is expected: while recording, and after the
/// first difference.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Script {
    /// The lines before the first `expect`, kept as they are.
    head: String,
    setup: Vec<String>,
    steps: Vec<(String, String)>,
    checks: Vec<(Vec<String>, Check)>,
    /// By level, with " on postgres" appended for PostgreSQL's own.
    expect: BTreeMap<String, Vec<String>>,
}

enum Check {
    Require { name: String, sql: String },
    Never { session: String, outcome: String },
    Count { times: usize, outcome: String },
}

fn levels(text: &str) -> Vec<String> {
    let levels: Vec<String> = match text.trim() {
        "EVERY LEVEL" => LEVELS.iter().map(|l| l.to_string()).collect(),
        list => list.split(',').map(|l| l.trim().to_owned()).collect(),
    };
    assert!(
        levels.iter().all(|l| LEVELS.contains(&l.as_str())),
        "what level is {text:?}?"
    );
    levels
}

fn parse(text: &str) -> Script {
    let mut script = Script::default();
    let mut section = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(level) = line.strip_prefix("expect ") {
            section = "expect".into();
            let transcript = lines
                .by_ref()
                .take_while(|l| !l.is_empty())
                .map(str::to_owned);
            script.expect.insert(level.to_owned(), transcript.collect());
            continue;
        }
        assert!(
            section != "expect" || line.is_empty(),
            "{line:?} stands after the expectations"
        );
        if section != "expect" {
            script.head.push_str(line);
            script.head.push('\n');
        }
        if line.starts_with('#') || line.is_empty() {
        } else if line == "setup" || line == "steps" {
            section = line.to_owned();
        } else if let Some(rest) = line.strip_prefix("require ") {
            let (name, at) = rest.split_once(" at ").expect("require NAME at LEVELS");
            let sql = lines
                .next()
                .expect("a query after require")
                .trim()
                .to_owned();
            script.head.push_str(&format!("  {sql}\n"));
            let check = Check::Require {
                name: name.to_owned(),
                sql,
            };
            script.checks.push((levels(at), check));
        } else if let Some(rest) = line.strip_prefix("never at ") {
            let (at, rest) = rest
                .split_once(": ")
                .expect("never at LEVELS: sN -> OUTCOME");
            let (session, outcome) = rest.split_once(" -> ").expect("sN -> OUTCOME");
            let check = Check::Never {
                session: session.into(),
                outcome: outcome.into(),
            };
            script.checks.push((levels(at), check));
        } else if let Some(rest) = line.strip_prefix("count ") {
            let (times, rest) = rest.split_once(" at ").expect("count N at LEVELS: OUTCOME");
            let (at, outcome) = rest.split_once(": ").expect("count N at LEVELS: OUTCOME");
            let times = times.parse().expect("a number");
            script.checks.push((
                levels(at),
                Check::Count {
                    times,
                    outcome: outcome.into(),
                },
            ));
        } else if section == "setup" {
            script.setup.push(line.trim().to_owned());
        } else if section == "steps" {
            let (session, sql) = line.trim().split_once(": ").expect("sN: statement");
            script.steps.push((session.to_owned(), sql.to_owned()));
        } else {
            panic!("what is {line:?}?");
        }
    }
    assert!(!script.steps.is_empty(), "a script without steps");
    assert!(!script.checks.is_empty(), "a script without a property");
    script
}

/// Stands in the place of a session, before a query that is waited for.
const UNTIL: &str = "until";

/// A statement of the setup as the server takes it: PostgreSQL has no split columns.
fn plain(sql: &str) -> String {
    let (before, after) = match sql.split_once(" WITH (split = ") {
        Some((before, rest)) if on_postgres() => (before, rest.split_once(')').map_or("", |r| r.1)),
        _ => (sql, ""),
    };
    let option = on_postgres() && before.contains("SET (split");
    match option {
        true => String::new(),
        false => format!("{before}{after}"),
    }
}

/// One statement's outcome, on one line.
async fn execute(client: Arc<Client>, sql: String) -> String {
    let messages = match client.simple_query(&sql).await {
        Ok(messages) => messages,
        Err(error) => return format!("ERROR {}", sqlstate(&error)),
    };
    let (mut rows, mut has_rows, mut changed) = (Vec::new(), false, 0);
    for message in &messages {
        match message {
            SimpleQueryMessage::RowDescription(_) => has_rows = true,
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|i| row.get(i).unwrap_or("NULL"));
                rows.push(cells.collect::<Vec<_>>().join("|"));
            }
            SimpleQueryMessage::CommandComplete(n) => changed = *n,
            _ => {}
        }
    }
    let verb = sql.split_whitespace().next().unwrap_or_default();
    match has_rows {
        true if rows.is_empty() => "no rows".into(),
        true => rows.join(", "),
        false if matches!(verb, "INSERT" | "UPDATE" | "DELETE") => format!("{changed} changed"),
        false => "ok".into(),
    }
}

/// A session and the number that it has in `pg_stat_activity`.
struct Session {
    client: Arc<Client>,
    pid: i32,
}

struct Run<'a> {
    /// Looks at the others.
    admin: &'a Client,
    expected: &'a [String],
    transcript: Vec<String>,
    blocked: BTreeMap<String, JoinHandle<String>>,
    /// Session and outcome of every step, for the properties.
    outcomes: Vec<(String, String)>,
}

impl Run<'_> {
    /// What the expectation says of the next line, while everything has been as expected.
    fn next_expected(&self) -> Option<&str> {
        let n = self.transcript.len();
        (self.expected.get(..n) == Some(&self.transcript[..]))
            .then(|| self.expected.get(n).map(String::as_str))
            .flatten()
    }

    /// Waits until the statement has ended, or its session waits for a lock.
    async fn ended_or_waits(&self, running: &JoinHandle<String>, pid: i32) {
        let sql = format!(
            "SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'"
        );
        let deadline = Instant::now() + PATIENCE;
        while !running.is_finished() && self.admin.query(&sql, &[]).await.unwrap().is_empty() {
            assert!(Instant::now() < deadline, "neither ends nor waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for what a worker does, and notes that it is done.
    async fn until(&mut self, sql: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !on_postgres() {
            let answer = self.admin.query_one(sql, &[]).await.expect("an answer");
            if answer.get::<_, Option<bool>>(0) == Some(true) {
                break;
            }
            let so_far = self.transcript.join("\n");
            assert!(Instant::now() < deadline, "not true: {sql}\n{so_far}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.transcript.push(format!("until: {sql} -> true"));
        self.released(None).await;
    }

    async fn step(&mut self, of: &Session, session: &str, sql: &str) {
        if self.blocked.contains_key(session) {
            self.released(Some(session)).await;
        }
        let blocks = self
            .next_expected()
            .map(|line| line.ends_with("-> blocked"));
        let mut running = tokio::spawn(execute(of.client.clone(), sql.to_owned()));
        let patience = match blocks {
            Some(true) => {
                self.ended_or_waits(&running, of.pid).await;
                Duration::ZERO
            }
            Some(false) => PATIENCE,
            None => GRACE,
        };
        match tokio::time::timeout(patience, &mut running).await {
            Ok(outcome) => {
                let outcome = outcome.expect("the task ends");
                self.transcript
                    .push(format!("{session}: {sql} -> {outcome}"));
                self.outcomes.push((session.to_owned(), outcome));
            }
            Err(_) => {
                self.transcript.push(format!("{session}: {sql} -> blocked"));
                self.blocked.insert(session.to_owned(), running);
            }
        }
        self.released(None).await;
    }

    /// Notes blocked statements that go on now; with `wanted`, waits until that one does.
    async fn released(&mut self, wanted: Option<&str>) {
        loop {
            let expected = self.next_expected().map(str::to_owned);
            let mut found = None;
            for (session, running) in &mut self.blocked {
                let mine = format!("    {session} goes on -> ");
                let patience = if wanted == Some(session)
                    || expected
                        .as_ref()
                        .is_some_and(|line| line.starts_with(&mine))
                {
                    PATIENCE
                } else if wanted.is_some() || expected.is_some() {
                    continue;
                } else {
                    GRACE
                };
                if let Ok(outcome) = tokio::time::timeout(patience, running).await {
                    found = Some((session.clone(), outcome.expect("the task ends")));
                    break;
                }
                assert!(
                    wanted.is_none(),
                    "{session} stays blocked:\n{}",
                    self.transcript.join("\n")
                );
            }
            let Some((session, outcome)) = found else {
                return;
            };
            self.blocked.remove(&session);
            self.transcript
                .push(format!("    {session} goes on -> {outcome}"));
            self.outcomes.push((session.clone(), outcome));
            if wanted == Some(&session) {
                return;
            }
        }
    }
}

async fn run_level(
    script: &Script,
    level: &str,
    expected: &[String],
) -> (Vec<String>, Vec<String>) {
    let server = Server::start().await;
    let admin = server.connect().await;
    for sql in &script.setup {
        admin
            .batch_execute(&plain(sql))
            .await
            .unwrap_or_else(|e| panic!("setup: {sql}: {e:?}"));
    }
    let mut sessions: BTreeMap<&str, Session> = BTreeMap::new();
    for (session, _) in script.steps.iter().filter(|s| s.0 != UNTIL) {
        if !sessions.contains_key(session.as_str()) {
            let client = Arc::new(server.connect().await);
            let pid = client.query_one("SELECT pg_backend_pid()", &[]).await;
            let pid = pid.expect("a number").get(0);
            sessions.insert(session, Session { client, pid });
        }
    }
    let mut run = Run {
        admin: &admin,
        expected,
        transcript: Vec::new(),
        blocked: BTreeMap::new(),
        outcomes: Vec::new(),
    };
    for (session, sql) in &script.steps {
        let sql = sql.replace("{level}", level);
        if session == UNTIL {
            run.until(&sql).await;
            continue;
        }
        run.step(&sessions[session.as_str()], session, &sql).await;
    }
    while let Some(session) = run.blocked.keys().next().cloned() {
        run.released(Some(&session)).await;
    }
    drop(sessions);

    let mut failed = Vec::new();
    for (_, check) in script
        .checks
        .iter()
        .filter(|(at, _)| at.iter().any(|l| l == level))
    {
        match check {
            Check::Require { name, sql } => {
                let answer = admin
                    .query_one(sql, &[])
                    .await
                    .expect("the query of a require");
                if answer.get::<_, Option<bool>>(0) != Some(true) {
                    failed.push(format!("{level}: {name} does not hold"));
                }
            }
            Check::Never { session, outcome } => {
                if run
                    .outcomes
                    .iter()
                    .any(|(s, o)| s == session && o == outcome)
                {
                    failed.push(format!("{level}: {session} has seen {outcome}"));
                }
            }
            Check::Count { times, outcome } => {
                let found = run.outcomes.iter().filter(|(_, o)| o == outcome).count();
                if found != *times {
                    failed.push(format!("{level}: {found} times {outcome}, not {times}"));
                }
            }
        }
    }
    (run.transcript, failed)
}

fn run(name: &str) {
    let path = tests_dir().join("isolation").join(format!("{name}.iso"));
    let mut script = parse(&std::fs::read_to_string(&path).expect("the file"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut failed = Vec::new();
    for level in LEVELS {
        let theirs = format!("{level} on postgres");
        let ours = script.expect.get(level);
        let expected = script
            .expect
            .get(&theirs)
            .filter(|_| on_postgres())
            .or(ours);
        let expected = expected.cloned().unwrap_or_default();
        let recording = update_golden();
        let (transcript, broken) = runtime.block_on(run_level(
            &script,
            level,
            if recording { &[] } else { &expected },
        ));
        failed.extend(broken);
        if recording {
            if !on_postgres() || ours.is_none() {
                script.expect.insert(level.to_owned(), transcript);
            } else if ours == Some(&transcript) {
                script.expect.remove(&theirs);
            } else {
                script.expect.insert(theirs, transcript);
            }
        } else if transcript != expected {
            failed.push(format!(
                "{level}: expected\n  {}\ngot\n  {}",
                expected.join("\n  "),
                transcript.join("\n  ")
            ));
        }
    }
    if update_golden() {
        let mut text = script.head.trim_end().to_owned() + "\n";
        for level in LEVELS {
            for key in [level.to_owned(), format!("{level} on postgres")] {
                if let Some(transcript) = script.expect.get(&key) {
                    text += &format!("\nexpect {key}\n{}\n", transcript.join("\n"));
                }
            }
        }
        std::fs::write(&path, text).expect("the file can be written");
    }
    assert!(failed.is_empty(), "{name}:\n{}", failed.join("\n"));
}

macro_rules! files {
    ($($name:ident)*) => {
        $(#[test] fn $name() { run(stringify!($name)); })*

        #[test]
        fn every_file_is_run() {
            let mut here: Vec<String> = std::fs::read_dir(tests_dir().join("isolation"))
                .expect("the directory")
                .map(|entry| entry.expect("an entry").path())
                .filter(|path| path.extension().is_some_and(|e| e == "iso"))
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            here.sort();
            let mut listed = vec![$(stringify!($name)),*];
            listed.sort();
            assert_eq!(here, listed);
        }
    };
}

files! {
    cursor_lock savepoint_locks soft_deadlock upkeep_waits
    aborted_read altered_meanwhile circular_information_flow deadlock deferrable_race dirty_write foreign_key_race
    intermediate_read lock_exclusive lock_modes lock_subquery lock_table lock_upgrade lost_update nowait_skip_locked
    observed_transaction_vanishes phantom rewritten_meanwhile rewritten_while_waiting open_portal predicate_many_preceders predicate_many_preceders_write read_only_anomaly read_skew
    read_skew_predicate scans_that_miss snapshot_moved unique_given_up unique_given_up_computed unique_race wait_and_recheck write_skew
    split_bound split_delete split_deltas split_exact split_read split_reserved split_reset split_rows_first_committer split_rows_one_record split_rows_too_little split_runs_out split_shrink split_spread split_spread_delete
    split_for_update split_refused split_returning
    split_spread_exact split_spread_for_update split_upsert split_worker write_skew_error write_skew_predicate write_skew_scan
}
