//! A prepared point statement allocates little, and nothing for the row that it gives beyond the bytes of the result; short ranges
//! neither. A long range allocates what its long texts take.
//!
//! A server in this process, and a client that speaks the protocol out of buffers that stand ready, so that what is counted is the
//! server's. Others of its threads work a little beside it (the flusher, the reclaimer): so the smallest count of several rounds is
//! taken, for rounds of many statements.

use canon::{Cluster, Options};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use store::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: usize = 7;
const STATEMENTS: usize = 100;

struct Client {
    stream: TcpStream,
    read: Box<[u8]>,
}

/// A message of the client's.
fn message(tag: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}

/// Bind, Execute and Sync of the statement `name`, with these parameters as text.
fn execute(name: &str, params: &[String], out: &mut Vec<u8>) {
    let mut bind = format!("\0{name}\0\0\0").into_bytes();
    bind.extend_from_slice(&(params.len() as u16).to_be_bytes());
    for p in params {
        bind.extend_from_slice(&(p.len() as u32).to_be_bytes());
        bind.extend_from_slice(p.as_bytes());
    }
    bind.extend_from_slice(&[0, 0]);
    message(b'B', &bind, out);
    message(b'E', &[0, 0, 0, 0, 0], out);
    message(b'S', &[], out);
}

impl Client {
    fn connect(cluster: &Cluster) -> Client {
        let stream = TcpStream::connect(cluster.address(cluster.primary())).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut client = Client {
            stream,
            read: vec![0; 1 << 20].into(),
        };
        let mut startup = vec![0, 0, 0, 0, 0, 3, 0, 0];
        startup.extend_from_slice(b"user\0canon\0database\0canon\0\0");
        let len = startup.len() as u32;
        startup[..4].copy_from_slice(&len.to_be_bytes());
        client.send(&startup, 1);
        client
    }

    /// Sends messages and reads until the server was ready `times` more times. How many rows came. Allocates nothing.
    fn send(&mut self, bytes: &[u8], times: usize) -> usize {
        self.stream.write_all(bytes).expect("the server reads");
        let (mut ready, mut rows, mut filled) = (0, 0, 0);
        while ready < times {
            let n = self.stream.read(&mut self.read[filled..]);
            filled += n.expect("the server answers");
            let mut at = 0;
            while let Some(head) = self.read[at..filled].first_chunk::<5>() {
                let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize + 1;
                if at + len > filled {
                    break;
                }
                match head[0] {
                    b'Z' => ready += 1,
                    b'D' => rows += 1,
                    b'E' => panic!("{}", String::from_utf8_lossy(&self.read[at..at + len])),
                    _ => {}
                }
                at += len;
            }
            self.read.copy_within(at..filled, 0);
            filled -= at;
        }
        rows
    }

    fn query(&mut self, sql: &str) {
        let mut m = Vec::new();
        message(b'Q', format!("{sql}\0").as_bytes(), &mut m);
        self.send(&m, 1);
    }

    fn prepare(&mut self, name: &str, sql: &str) {
        let mut m = Vec::new();
        message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes(), &mut m);
        message(b'S', &[], &mut m);
        self.send(&m, 1);
    }

    /// Allocations per statement of `STATEMENTS` runs of `name`, each of which gives `rows` rows.
    fn allocations(&mut self, name: &str, params: &[String], rows: usize) -> f64 {
        let mut m = Vec::new();
        (0..STATEMENTS).for_each(|_| execute(name, params, &mut m));
        let mut least = u64::MAX;
        for _ in 0..ROUNDS {
            let before = Counting::calls();
            let came = self.send(&m, STATEMENTS);
            least = least.min(Counting::calls() - before);
            assert_eq!(came, rows * STATEMENTS);
        }
        least as f64 / STATEMENTS as f64
    }
}

fn numbers(n: &[usize]) -> Vec<String> {
    n.iter().map(usize::to_string).collect()
}

#[test]
fn rows_are_given_without_allocations() {
    let options = Options {
        log_level: Some("error".into()),
        settings: vec!["default_transaction_isolation=serializable".into()],
        ..Options::default()
    };
    let cluster = Cluster::start(options, 0).expect("a server");
    let mut c = Client::connect(&cluster);
    c.query("CREATE TABLE t (id int PRIMARY KEY, n bigint NOT NULL, v text)");
    c.query(
        "INSERT INTO t SELECT i, i * 7, 'a text that is longer than what fits into a word ' || i \
         FROM generate_series(1, 4000) i",
    );
    c.prepare("point", "SELECT id, n, v FROM t WHERE id = $1");
    c.prepare("range", "SELECT id, n, v FROM t WHERE id BETWEEN $1 AND $2");
    c.prepare("sum", "SELECT sum(n) FROM t WHERE id BETWEEN $1 AND $2");
    c.prepare(
        "sorted",
        "SELECT id, n, v FROM t WHERE id BETWEEN $1 AND $2 ORDER BY n DESC",
    );
    let point = c.allocations("point", &numbers(&[1234]), 1);
    let none = c.allocations("point", &numbers(&[12345]), 0);
    assert!(point <= 8.0, "a point read allocates {point} times");
    assert!(
        point < none + 0.5,
        "a row adds to the allocations of a point read: {point}, without {none}"
    );
    let mut of = |name, rows: usize| {
        let given = if name == "sum" { 1 } else { rows };
        c.allocations(name, &numbers(&[100, 99 + rows]), given)
    };
    // Short ranges are sent from the rows' own bytes; what is left are buffers that double.
    for name in ["range", "sum", "sorted"] {
        let (few, many) = (of(name, 1), of(name, 201));
        assert!(many < few + 5.0, "{name}: {few} for 1 row, {many} for 201");
    }
    // Long ones pass through the operators as values, and a long text is an allocation.
    let (few, many) = (of("range", 1001), of("range", 3001));
    assert!(
        many - few < 1.5 * 2000.0,
        "{few} for 1001 rows, {many} for 3001"
    );
}
