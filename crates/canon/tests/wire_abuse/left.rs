//! What clients that misbehaved have left at the server when they are gone: sessions, open files, memory.

use super::common::{PATIENCE, Server, on_postgres};
use super::raw::*;
use std::time::Duration;
use tokio_postgres::Client;

/// What the process has open; nothing of a server that is not ours.
pub fn open_files(server: &Server) -> usize {
    match on_postgres() {
        true => 0,
        false => {
            let all = std::fs::read_dir(format!("/proc/{}/fd", server.pid()));
            all.expect("a process").count()
        }
    }
}

/// Waits until the bystander's session is the only one and the sockets of the others are closed.
pub async fn leaves_nothing(server: &Server, bystander: &Client, files: usize) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()";
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let row = bystander.query_one(sql, &[]).await.expect("it is served");
        let (sessions, open) = (row.get::<_, i64>(0), open_files(server));
        // A few more files than before may be segments of the log.
        if sessions == 1 && open <= files + 4 {
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{sessions} sessions, {open} files after {files}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Resident memory, in bytes.
fn resident(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let status = status.expect("a process");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kilobytes.expect("a number") * 1024
}

/// Each of these makes the server hold megabytes for a client that then goes. When it comes again and again, memory does not grow by half of
/// what all of them would leave. (The process keeps what it frees, so each has a server of its own, and comes often enough to need more than that.)
#[tokio::test(flavor = "multi_thread")]
async fn large_messages_leave_no_memory_behind() {
    if on_postgres() {
        return;
    }
    const LARGE: usize = 4 << 20;
    const TIMES: usize = 40;
    let cases: [(&str, fn(&Server, &str)); 6] = [
        ("a long literal", |server, text| {
            let mut raw = Raw::session(server);
            raw.send(&query(format!("SELECT length('{text}')").as_bytes()));
            raw.until(b'D').expect("an answer");
        }),
        ("half a message", |server, text| {
            let mut raw = Raw::session(server);
            let whole = query(text.as_bytes());
            raw.send(&whole[..LARGE - 1000]);
            // It has come, and is waited for the rest of.
            raw.closes();
        }),
        ("a statement and a parameter", |server, text| {
            let mut raw = Raw::session(server);
            raw.send(&parse("kept", b"SELECT length($1::text)", &[]));
            raw.send(&bind("", "kept", &[text.as_bytes()]));
            raw.send(&message(b'H', b""));
            raw.until(b'2').expect("it is bound");
        }),
        ("an answer that nobody reads", |server, _| {
            let mut raw = Raw::session(server);
            let sql = format!("SELECT repeat('x', {})", LARGE / 4);
            (0..4).for_each(|_| raw.send(&query(sql.as_bytes())));
            raw.until(b'T').expect("it has begun");
        }),
        ("COPY that breaks off", |server, text| {
            let mut raw = Raw::session(server);
            raw.send(&query(b"COPY t FROM STDIN"));
            raw.until(b'G').expect("CopyInResponse");
            raw.send(&message(b'd', format!("900001\t{text}").as_bytes()));
            raw.closes();
        }),
        ("an insert that is not committed", |server, _| {
            let mut raw = Raw::session(server);
            let sql = format!("BEGIN; INSERT INTO t VALUES (900002, repeat('x', {LARGE}))");
            raw.send(&query(sql.as_bytes()));
            raw.until(b'Z').expect("an answer");
        }),
    ];
    let text = "x".repeat(LARGE);
    for (name, case) in cases {
        let server = Server::start().await;
        let bystander = server.connect().await;
        let table = "CREATE TABLE t (id int PRIMARY KEY, v text)";
        bystander.batch_execute(table).await.expect("a table");
        let files = open_files(&server);
        let mut before = 0;
        for turn in 0..TIMES + 4 {
            // What is kept for the next one is there after the first few.
            if turn == 4 {
                before = resident(&server);
            }
            tokio::task::block_in_place(|| case(&server, &text));
            leaves_nothing(&server, &bystander, files).await;
        }
        let grown = resident(&server).saturating_sub(before);
        println!("{name}: {} MB more", grown >> 20);
        assert!(grown < TIMES * LARGE / 2, "{name}: {grown} bytes stay");
    }
}
