//! Servers that follow each other, a load on them, and questions to them.

use super::common::{PATIENCE, Server, on_postgres, sqlstate};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, SimpleQueryMessage};

/// These are about Canon's own replicas.
pub fn skip() -> bool {
    on_postgres()
}

/// A server that follows `primary`, with more variables.
pub async fn replica_with(primary: &Server, name: &str, env: &[(&str, &str)]) -> Server {
    let of = format!("{}:{}", primary.host, primary.port);
    let mut all = vec![("CANON_REPLICA_OF", of.as_str()), ("CANON_NODE_NAME", name)];
    all.extend(env);
    let mut s = Server::canon(&all);
    s.launch();
    s.ready().await;
    s
}

pub async fn replica(primary: &Server, name: &str) -> Server {
    replica_with(primary, name, &[]).await
}

/// The first value of the first row.
pub async fn one(c: &Client, sql: &str) -> String {
    rows(c, sql).await[0][0]
        .clone()
        .unwrap_or_else(|| "NULL".into())
}

pub async fn rows(c: &Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let all = c.simple_query(sql).await;
    let all = all.unwrap_or_else(|e| panic!("{sql}: {e} {:?}", e.as_db_error()));
    let row = |m| match m {
        SimpleQueryMessage::Row(r) => {
            Some((0..r.len()).map(|i| r.get(i).map(str::to_owned)).collect())
        }
        _ => None,
    };
    all.into_iter().filter_map(row).collect()
}

pub async fn refused(c: &Client, sql: &str) -> (String, String) {
    match c.simple_query(sql).await {
        Ok(_) => panic!("{sql} should be refused"),
        Err(e) => {
            let message = e.as_db_error().map_or("", |d| d.message()).to_owned();
            (sqlstate(&e), message)
        }
    }
}

/// Waits until a question has this answer.
pub async fn until(c: &Client, sql: &str, wanted: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = rows(c, sql).await;
        let found = found.first().and_then(|r| r[0].clone()).unwrap_or_default();
        if found == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{sql} is {found}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A session on the replica that shows everything the primary has now.
pub async fn caught_up(primary: &Client, replica: &Server) -> Client {
    let at = one(primary, "SELECT pg_current_wal_lsn()").await;
    let wait = format!("WAIT FOR LSN '{at}'");
    let c = replica.connect().await;
    rows(&c, "SET statement_timeout = '60s'").await;
    assert_eq!(one(&c, &wait).await, "success");
    c
}

/// Waits until the replica has on its disk what the primary has published now. What it shows may be in its memory alone.
pub async fn on_disk(primary: &Client, name: &str) {
    let at = one(primary, "SELECT pg_current_wal_lsn()").await;
    let sql = format!(
        "SELECT count(*) FROM pg_stat_replication
            WHERE application_name = '{name}' AND pg_wal_lsn_diff(flush_lsn, '{at}') >= 0"
    );
    until(primary, &sql, "1").await;
}

/// Every row of every table, in the order of all columns; and the same through each index.
pub async fn content(c: &Client) -> Vec<(String, Vec<Vec<Option<String>>>)> {
    let mut all = Vec::new();
    let tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND oid >= 16384 ORDER BY 1";
    for t in rows(c, tables).await {
        let t = t[0].clone().expect("a name");
        let sql = format!(
            "SELECT attname FROM pg_attribute WHERE attrelid = '{t}'::regclass AND attnum > 0
                AND NOT attisdropped ORDER BY attnum"
        );
        let columns: Vec<String> = rows(c, &sql)
            .await
            .into_iter()
            .filter_map(|r| r[0].clone())
            .collect();
        let list = columns.join(", ");
        let content = rows(c, &format!("SELECT {list} FROM {t} ORDER BY {list}")).await;
        let definitions =
            format!("SELECT indexdef FROM pg_indexes WHERE tablename = '{t}' ORDER BY indexname");
        let definitions = rows(c, &definitions).await;
        // Through each index with one column: every value that there is, by equality.
        for d in definitions.iter().filter_map(|d| d[0].as_ref()) {
            let column = d.rsplit_once('(').map(|(_, c)| c.trim_end_matches(')'));
            let Some(at) = columns.iter().position(|c| Some(c.as_str()) == column) else {
                continue;
            };
            let name = &columns[at];
            let values: HashSet<&Option<String>> = content.iter().map(|r| &r[at]).collect();
            let mut found = 0;
            for v in values.into_iter().flatten().take(200) {
                let sql = format!("SELECT count(*) FROM {t} WHERE {name} = '{v}'");
                let n: usize = one(c, &sql).await.parse().expect("a number");
                let wanted = content.iter().filter(|r| r[at].as_ref() == Some(v)).count();
                assert_eq!(n, wanted, "{t}.{name} = {v}");
                found += n;
            }
            assert!(content.is_empty() || found > 0 || content.iter().all(|r| r[at].is_none()));
        }
        all.push((format!("{t} {definitions:?}"), content));
    }
    all
}

pub async fn assert_equal(primary: &Client, replica: &Server) {
    let r = caught_up(primary, replica).await;
    let (here, there) = (content(primary).await, content(&r).await);
    assert_eq!(here.len(), there.len());
    for (p, r) in here.iter().zip(&there) {
        assert!(
            p == r,
            "{} rows of {} and {} of {}",
            p.1.len(),
            p.0,
            r.1.len(),
            r.0
        );
    }
}

pub const ACCOUNTS: i64 = 50;

pub async fn bank(c: &Client) {
    let sql = format!(
        "CREATE TABLE accounts (id int PRIMARY KEY, branch int NOT NULL, balance int NOT NULL);
         CREATE INDEX accounts_branch ON accounts (branch);
         CREATE TABLE moves (id serial PRIMARY KEY, sum int);
         INSERT INTO accounts SELECT n, n % 7, 1000 FROM generate_series(1, {ACCOUNTS}) n;"
    );
    c.batch_execute(&sql).await.expect("a bank");
}

/// Moves money until it is told to stop, also between branches; errors of a lost server end it.
pub struct Movers {
    pub stop: Arc<AtomicBool>,
    pub done: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Movers {
    pub async fn start(server: &Server, n: u64) -> Movers {
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut tasks = Vec::new();
        for i in 0..n {
            let c = server.connect().await;
            let (stop, done) = (stop.clone(), done.clone());
            tasks.push(tokio::spawn(async move {
                let mut x = i * 7919 + 1;
                while !stop.load(Ordering::SeqCst) {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let (a, b) = ((x >> 33) as i64 % ACCOUNTS + 1, (x >> 17) as i64 % ACCOUNTS + 1);
                    let sql = format!(
                        "BEGIN; UPDATE accounts SET balance = balance - 5, branch = branch + 1 WHERE id = {a};
                         UPDATE accounts SET balance = balance + 5 WHERE id = {b};
                         INSERT INTO moves (sum) VALUES (5); COMMIT"
                    );
                    match c.batch_execute(&sql).await {
                        Ok(()) => _ = done.fetch_add(1, Ordering::SeqCst),
                        Err(e) if e.code().is_some_and(|c| c.code().starts_with("40")) => {
                            _ = c.batch_execute("ROLLBACK").await;
                        }
                        Err(_) => return,
                    }
                }
            }));
        }
        Movers { stop, done, tasks }
    }

    pub async fn some(&self, n: u64) {
        let from = self.done.load(Ordering::SeqCst);
        let deadline = Instant::now() + PATIENCE;
        while self.done.load(Ordering::SeqCst) < from + n {
            assert!(Instant::now() < deadline, "the load does not move");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for t in self.tasks {
            t.await.expect("a mover");
        }
    }
}

pub const TOTAL: i64 = ACCOUNTS * 1000;

/// A GET on a local port: status and body.
pub fn get(port: u16, path: &str) -> (u16, String) {
    let Ok(mut s) = std::net::TcpStream::connect(("127.0.0.1", port)) else {
        return (0, String::new());
    };
    _ = write!(s, "GET {path} HTTP/1.1\r\n\r\n");
    let mut text = String::new();
    _ = s.read_to_string(&mut text);
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    (
        status,
        text.split_once("\r\n\r\n")
            .map_or(String::new(), |b| b.1.into()),
    )
}

/// How many times connections of the server with this HTTP address went to another of its threads.
pub fn connections_moved(http: &str) -> u64 {
    counted(http, "canon_connections_moved_total")
}

/// What the server with this HTTP address has counted under this name, with its labels.
pub fn counted(http: &str, name: &str) -> u64 {
    let (_, port) = http.rsplit_once(':').expect("a port");
    let (status, page) = get(port.parse().expect("a number"), "/metrics");
    assert_eq!(status, 200, "{page}");
    let line = |l: &str| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    page.lines().find_map(line).expect("a count")
}

/// Stops or continues a server's process, or whatever the signal does.
pub fn signal(s: &Server, name: &str) {
    let done = std::process::Command::new("kill")
        .args([name, &s.pid().to_string()])
        .status();
    assert!(done.expect("kill runs").success());
}

/// `canon promote` at this server; what it printed.
pub fn promote(s: &Server, arguments: &[&str]) -> String {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_canon"))
        .args(["promote", "--server", &format!("{}:{}", s.host, s.port)])
        .args(arguments)
        .output()
        .expect("canon runs");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{text}{errors}\n{}", s.log_tail());
    text
}

/// Connects with this `replication` parameter and asks for the stream; everything that was answered.
pub fn raw(s: &Server, mode: &str) -> Vec<u8> {
    let mut t = std::net::TcpStream::connect((s.host.as_str(), s.port)).expect("a connection");
    let mut body = 196_608u32.to_be_bytes().to_vec();
    for word in ["user", "canon", "replication", mode, ""] {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    t.write_all(&(body.len() as u32 + 4).to_be_bytes())
        .expect("written");
    t.write_all(&body).expect("written");
    let command = b"START_REPLICATION\0";
    _ = t.write_all(&[b"Q", &(command.len() as u32 + 4).to_be_bytes()[..], command].concat());
    let mut answer = Vec::new();
    _ = t.read_to_end(&mut answer);
    answer
}

/// Segments of the log, oldest first.
pub fn segments(data: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(data.join("wal")).expect("a log");
    let mut all: Vec<PathBuf> = all.map(|e| e.expect("an entry").path()).collect();
    let spare = |p: &PathBuf| {
        p.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("spare"))
    };
    all.retain(|p| !spare(p));
    all.sort();
    all
}

/// The last bytes of what was written to the log are zeros, as on a disk that lied about a sync.
pub fn zero_tail(data: &Path, bytes: usize) {
    let path = segments(data).pop().expect("a segment");
    let mut content = std::fs::read(&path).expect("readable");
    let end = content.iter().rposition(|b| *b != 0).expect("something") + 1;
    assert!(end > bytes, "the last segment holds {end} bytes");
    content[end - bytes..end].fill(0);
    std::fs::write(&path, content).expect("written");
}
