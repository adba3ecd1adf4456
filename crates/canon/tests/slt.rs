//! SQL logic tests: what a statement answers, statement by statement, in `slt/*.slt`.
//!
//! The expected results come from PostgreSQL 15 (collation C, time zone UTC): with `UPDATE_GOLDEN=1`
//! and `CANON_TEST_URL` naming such a server the files are rewritten from its answers. The format is
//! close to sqllogictest's; records are separated by blank lines:
//!
//! ```text
//! # a comment
//! statement ok            the statement succeeds
//! statement error 22012   it fails with this SQLSTATE
//! query                   it returns the rows after ----, columns separated by |
//! query rowsort           the same, in any order
//! ours REASON             before a record: PostgreSQL differs on purpose, never rewritten
//! ```
//!
//! NULL is shown as NULL, an empty string as (empty), one of
//! spaces as (blank 3), line ends as \n, a row of nothing as (no columns). Every file runs in a
//! database of its own, on one connection, and all its mismatches are shown.

mod common;

use common::{Server, on_postgres, sqlstate, tests_dir, update_golden};
use std::fmt::Write;
use tokio_postgres::{Client, SimpleQueryMessage};

#[derive(Clone, Debug, PartialEq)]
enum Expect {
    Ok,
    Error(String),
    Rows { sorted: bool, rows: Vec<String> },
}

#[derive(Clone, Debug)]
struct Record {
    line: usize,
    comments: String,
    ours: bool,
    expect: Expect,
    sql: String,
}

fn parse(text: &str) -> (Vec<Record>, String) {
    let mut records = Vec::new();
    let mut comments = String::new();
    let mut ours = false;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {
                comments.push('\n');
                continue;
            }
            [first, ..] if first.starts_with('#') => {
                comments.push_str(line);
                comments.push('\n');
                continue;
            }
            ["ours", ..] => {
                ours = true;
                comments.push_str(line);
                comments.push('\n');
                continue;
            }
            _ => {}
        }
        let mut sql = Vec::new();
        let mut rows = Vec::new();
        let mut in_rows = false;
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.trim().is_empty()) {
            if line == "----" {
                in_rows = true;
            } else if in_rows {
                rows.push(line.to_owned());
            } else {
                sql.push(line);
            }
        }
        let expect = match words[..] {
            ["statement", "ok"] => Expect::Ok,
            ["statement", "error", code] => Expect::Error(code.to_owned()),
            ["query"] => Expect::Rows {
                sorted: false,
                rows,
            },
            ["query", "rowsort"] => Expect::Rows { sorted: true, rows },
            _ => panic!("line {}: what is {line:?}?", number + 1),
        };
        records.push(Record {
            line: number + 1,
            comments: std::mem::take(&mut comments),
            ours: std::mem::take(&mut ours),
            expect,
            sql: sql.join("\n"),
        });
    }
    (records, comments)
}

fn render(records: &[Record], end: &str) -> String {
    let mut text = String::new();
    for record in records {
        text.push_str(&record.comments);
        match &record.expect {
            Expect::Ok => text.push_str("statement ok\n"),
            Expect::Error(code) => writeln!(text, "statement error {code}").unwrap(),
            Expect::Rows { sorted: false, .. } => text.push_str("query\n"),
            Expect::Rows { sorted: true, .. } => text.push_str("query rowsort\n"),
        }
        text.push_str(&record.sql);
        text.push('\n');
        if let Expect::Rows { rows, .. } = &record.expect {
            text.push_str("----\n");
            for row in rows {
                text.push_str(row);
                text.push('\n');
            }
        }
    }
    text.push_str(end);
    text
}

fn show(cell: Option<&str>) -> String {
    match cell {
        None => "NULL".into(),
        Some("") => "(empty)".into(),
        Some(text) if text.trim().is_empty() => format!("(blank {})", text.len()),
        Some(text) => text.replace('\\', "\\\\").replace('\n', "\\n"),
    }
}

async fn answer(client: &Client, record: &Record) -> Expect {
    let messages = match client.simple_query(&record.sql).await {
        Ok(messages) => messages,
        Err(error) => return Expect::Error(sqlstate(&error)),
    };
    let Expect::Rows { sorted, .. } = record.expect else {
        return Expect::Ok;
    };
    let mut rows = Vec::new();
    for message in &messages {
        if let SimpleQueryMessage::Row(row) = message {
            let cells: Vec<String> = (0..row.len()).map(|i| show(row.get(i))).collect();
            rows.push(match cells.is_empty() {
                true => "(no columns)".into(),
                false => cells.join("|"),
            });
        }
    }
    if sorted {
        rows.sort();
    }
    Expect::Rows { sorted, rows }
}

fn run(name: &str) {
    let path = tests_dir().join("slt").join(format!("{name}.slt"));
    let text = std::fs::read_to_string(&path).expect("the file");
    let (mut records, end) = parse(&text);
    assert!(!records.is_empty(), "{name} holds no record");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut wrong = Vec::new();
    let mut mismatches = String::new();
    runtime.block_on(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        for (i, record) in records.iter().enumerate() {
            let got = answer(&client, record).await;
            if client.is_closed() {
                writeln!(
                    mismatches,
                    "\n{name}.slt:{}: connection lost\n{}",
                    record.line, record.sql
                )
                .unwrap();
                client = server.connect().await;
            }
            if got != record.expect && !(record.ours && on_postgres()) {
                writeln!(
                    mismatches,
                    "\n{name}.slt:{}\n{}\n  expected {:?}\n  got      {got:?}",
                    record.line, record.sql, record.expect
                )
                .unwrap();
                wrong.push((i, got));
            }
        }
    });
    if update_golden() {
        assert!(
            on_postgres(),
            "expected results come from PostgreSQL: set CANON_TEST_URL"
        );
        for (i, got) in wrong {
            // A query that now fails becomes a statement, and the other way round by hand.
            records[i].expect = got;
        }
        std::fs::write(&path, render(&records, &end)).expect("the file can be written");
        return;
    }
    assert!(
        wrong.is_empty() && mismatches.is_empty(),
        "{} of {} records differ:{mismatches}",
        wrong.len(),
        records.len()
    );
}

macro_rules! files {
    ($($name:ident)*) => {
        $(#[test] fn $name() { run(stringify!($name)); })*

        #[test]
        fn every_file_is_run() {
            let mut here: Vec<String> = std::fs::read_dir(tests_dir().join("slt"))
                .expect("the directory")
                .map(|entry| entry.expect("an entry").path())
                .filter(|path| path.extension().is_some_and(|e| e == "slt"))
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
    bits
    spelled split_limits suites upkeep
    enums domains extensions
    aggregates answers arithmetic arrays
    catalog column_grants column_rights composites constraints cursors
    datetime ddl default_privileges deferrable_keys dml
    formats
    generated grants
    indexes
    joins json
    levels literals locking
    made membership merge
    networks
    no_columns not_valid nulls
    programs
    refused role_limits
    select split strings subqueries system_columns
    temporary ties timetz tools types views
    windows writes_in_with cascades kept_texts
}
